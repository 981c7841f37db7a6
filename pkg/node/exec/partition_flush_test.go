package exec

import (
	"errors"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/vfs"
)

func TestFlushAlwaysAnswersAfterTheFlush(t *testing.T) {
	r := newRig(t, 1, true)
	r.role(1, 3, 1)
	for i := range replication.Token(3) {
		r.Produce(r.now, replication.Produce{Token: i, Acks: -1, Timeout: time.Second}, records("a").Build())
	}
	syncs := 0
	r.fault = func(op, _ string) error {
		if op == vfs.OpSync {
			syncs++
		}
		return nil
	}
	if out := r.drain(); len(out.Completed) != 3 || syncs == 0 || syncs > 2 || r.Log().FlushedOffset() != 3 {
		t.Fatalf("%d completed by %d syncs, flushed to %d; want all by one flush of log and epochs", len(out.Completed), syncs, r.Log().FlushedOffset())
	}
}

func TestFlushApartCoversWhatCameBeforeIt(t *testing.T) {
	r := newRig(t, 1, true)
	r.cfg.FlushApart = true
	r.open()
	r.role(1, 3, 1)
	put := func(token replication.Token) {
		r.Produce(r.now, replication.Produce{Token: token, Acks: -1, Timeout: time.Second}, records("a").Build())
	}
	put(1)
	put(2)
	if out := r.drain(); !out.Flush || len(out.Completed) != 0 {
		t.Fatalf("flush wanted %v, completed %+v", out.Flush, out.Completed)
	}
	f, ok := r.BeginFlush(r.now)
	if !ok {
		t.Fatal("no flush begins")
	}
	put(3)
	if _, again := r.BeginFlush(r.now); again || r.drain().Flush {
		t.Fatal("a second flush beside the first")
	}
	r.EndFlush(r.now, f, f.Sync())
	if out := r.drain(); len(out.Completed) != 2 || !out.Flush {
		t.Fatalf("completed %+v, flush wanted %v; want 1 and 2, and a flush for 3", out.Completed, out.Flush)
	}
	f, _ = r.BeginFlush(r.now)
	r.EndFlush(r.now, f, errors.New("input/output error"))
	if out := r.drain(); out.Failed == nil || len(out.Completed) != 1 || out.Completed[0].Code != replication.KafkaStorageError {
		t.Fatalf("failed %v, completed %+v", out.Failed, out.Completed)
	}
}

func TestFlushPolicySwitchedOnCountsOnlyWhatIsFlushed(t *testing.T) {
	l, f := newRig(t, 1, false), newRig(t, 2, false)
	for _, r := range []*rig{l, f} {
		r.cfg.FlushApart = true
		r.open()
		r.role(1, 3, 1, 2)
	}
	put := func(token replication.Token, acks int16) {
		l.Produce(l.now, replication.Produce{Token: token, Acks: acks, Timeout: time.Second}, records("a").Build())
		l.drain()
	}
	put(1, 1)
	if len(l.out.Completed) != 1 || l.out.Flush {
		t.Fatalf("page cache: completed %+v, flush wanted %v", l.out.Completed, l.out.Flush)
	}
	for range 2 {
		pull(f, l)
	}
	if l.HighWatermark() != 1 {
		t.Fatalf("high watermark %d", l.HighWatermark())
	}
	flush := func(r *rig) {
		t.Helper()
		pending, ok := r.BeginFlush(r.now)
		if !ok {
			t.Fatal("no flush is wanted")
		}
		r.EndFlush(r.now, pending, pending.Sync())
		r.drain()
	}
	for _, r := range []*rig{l, f} {
		r.SetFlushPolicy(r.now, FlushPolicy{Always: true})
		if out := r.drain(); !out.Flush || r.HighWatermark() != 1 {
			t.Fatalf("switched on: flush wanted %v, high watermark %d; want the flush of what there is, and nothing taken back", out.Flush, r.HighWatermark())
		}
	}
	put(2, 1)
	put(3, -1)
	if _, asks := f.NextFetch(); asks || len(l.out.Completed) != 0 {
		t.Fatalf("asks %v, completed %+v before a flush", asks, l.out.Completed)
	}
	flush(f)
	if asked, asks := f.NextFetch(); !asks || asked.Offset != f.Log().FlushedOffset() {
		t.Fatalf("asks %+v, flushed to %d", asked, f.Log().FlushedOffset())
	}
	pull(f, l) // brings 2 and 3
	if _, asks := f.NextFetch(); asks {
		t.Fatal("asks on before its flush")
	}
	flush(l)
	if c := l.out.Completed; len(c) != 1 || c[0].Token != 2 || l.HighWatermark() != 1 {
		t.Fatalf("after the leader's flush: %+v, high watermark %d; want acks=1 answered", c, l.HighWatermark())
	}
	flush(f)
	pull(f, l)
	if c := l.out.Completed; len(c) != 1 || c[0].Token != 3 || l.HighWatermark() != 3 {
		t.Fatalf("after the follower's flush: %+v, high watermark %d", c, l.HighWatermark())
	}

	put(4, 1)
	if len(l.out.Completed) != 0 {
		t.Fatalf("completed %+v", l.out.Completed)
	}
	l.SetFlushPolicy(l.now, FlushPolicy{})
	if out := l.drain(); len(out.Completed) != 1 {
		t.Fatalf("switched off: completed %+v", out.Completed)
	}
}

func TestFlushInTheBackgroundByRecordsAndByTime(t *testing.T) {
	r := newRig(t, 1, false)
	r.cfg.FlushApart, r.cfg.Flush = true, FlushPolicy{Records: 3, After: 50 * time.Millisecond}
	r.open()
	r.role(1, 3, 1)
	put := func() {
		t.Helper()
		if c := r.produce(-1, records("a").Build()); c.Code != 0 { // nobody waits for it
			t.Fatalf("%+v", c)
		}
	}
	put()
	if r.out.Flush || r.NextDeadline() != r.now.Add(50*time.Millisecond) {
		t.Fatalf("one record: flush wanted %v, deadline %v", r.out.Flush, r.NextDeadline())
	}
	r.now = r.now.Add(20 * time.Millisecond)
	put()
	if r.out.Flush || r.NextDeadline() != r.now.Add(30*time.Millisecond) {
		t.Fatalf("two records: flush wanted %v, deadline %v; the older record counts", r.out.Flush, r.NextDeadline())
	}
	put()
	if !r.out.Flush || r.NextDeadline() < r.now.Add(time.Second) {
		t.Fatalf("three records: flush wanted %v, deadline %v", r.out.Flush, r.NextDeadline())
	}
	f, ok := r.BeginFlush(r.now)
	if !ok || f.Records() != 3 || f.Bytes() != 3*int64(len(records("a").Build())) {
		t.Fatalf("begun %v", f)
	}
	put() // for the next one
	if r.out.Flush || r.NextDeadline() != r.now.Add(50*time.Millisecond) {
		t.Fatalf("beside a flush: wanted %v, deadline %v", r.out.Flush, r.NextDeadline())
	}
	r.EndFlush(r.now, f, f.Sync())
	r.now = r.NextDeadline()
	r.Tick(r.now)
	if out := r.drain(); !out.Flush || r.Log().FlushedOffset() != 3 {
		t.Fatalf("when the time is over: flush wanted %v, flushed to %d", out.Flush, r.Log().FlushedOffset())
	}
	f, _ = r.BeginFlush(r.now)
	r.EndFlush(r.now, f, f.Sync())
	if r.drain(); r.NextDeadline() < r.now.Add(time.Second) || r.Log().FlushedOffset() != 4 {
		t.Fatalf("all flushed to %d: deadline %v", r.Log().FlushedOffset(), r.NextDeadline())
	}
}
