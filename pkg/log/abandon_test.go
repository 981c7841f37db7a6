package log

import (
	"errors"
	"testing"
)

// A flush that has begun and not yet come to the disk must not keep the disk's time from whoever was told that there is
// nothing to wait for.
func TestFlushAfterAnAbandonThatIsOverFails(t *testing.T) {
	l, _ := newLog(t, small)
	mustAppend(t, l, 0, 1, 50)
	f, err := l.BeginFlush()
	if err != nil {
		t.Fatal(err)
	}
	if !l.BeginAbandon().Over() {
		t.Fatal("nothing is under way, yet it is to be waited for")
	}
	if err := f.Sync(); !errors.Is(err, ErrClosed) {
		t.Fatalf("the flush ran: %v", err)
	}
	l.Abandon()
	if _, err := l.EndFlush(f, ErrClosed); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
}
