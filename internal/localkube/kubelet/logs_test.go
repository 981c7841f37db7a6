package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/highwater-io/highwater/internal/testscale"
)

func logOf(t *testing.T, lines int) (string, *logWriter) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "0.log")
	l, err := openLog(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	for i := range lines {
		stream := "stdout"
		if i%2 == 1 {
			stream = "stderr"
		}
		l.line(stream, fmt.Appendf(nil, "line %d\n", i))
	}
	return name, l
}

func read(t *testing.T, name string, o LogOptions) string {
	t.Helper()
	var out strings.Builder
	if err := readLog(t.Context(), &out, name, o, func() bool { return false }); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestLogOptionsSelectLines(t *testing.T) {
	name, l := logOf(t, 5)
	if got := read(t, name, LogOptions{Tail: -1}); got != "line 0\nline 1\nline 2\nline 3\nline 4\n" {
		t.Errorf("all: %q", got)
	}
	for tail, want := range map[int64]string{0: "", 1: "line 4\n", 2: "line 3\nline 4\n", 5: read(t, name, LogOptions{Tail: -1}), 9: read(t, name, LogOptions{Tail: -1})} {
		if got := read(t, name, LogOptions{Tail: tail}); got != want {
			t.Errorf("tail %d: %q, want %q", tail, got, want)
		}
	}
	if got := read(t, name, LogOptions{Tail: -1, LimitBytes: 10}); got != "line 0\nlin" {
		t.Errorf("10 bytes: %q", got)
	}
	if got := read(t, name, LogOptions{Tail: -1, Stream: "stderr"}); got != "line 1\nline 3\n" {
		t.Errorf("stderr: %q", got)
	}
	if got := read(t, name, LogOptions{Tail: -1, Since: time.Now().Add(time.Hour)}); got != "" {
		t.Errorf("since an hour from now: %q", got)
	}
	if got := read(t, name, LogOptions{Tail: 1, Timestamps: true}); !strings.HasSuffix(got, "Z line 4\n") {
		t.Errorf("with time: %q", got)
	}
	long := strings.Repeat("x", maxLogLine+10)
	l.copy("stdout", strings.NewReader(long+"\nend without a newline"))
	if got := read(t, name, LogOptions{Tail: 3}); got != long+"\nend without a newline" {
		t.Errorf("a line in parts: %d bytes, want %d", len(got), len(long)+22)
	}
}

func TestFollowedLogGoesOnOverRotationUntilTheEnd(t *testing.T) {
	name, l := logOf(t, 1)
	var running atomic.Bool
	running.Store(true)
	var mu sync.Mutex
	var out strings.Builder
	done := make(chan error, 1)
	go func() {
		done <- readLog(t.Context(), writerFunc(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return out.Write(p)
		}), name, LogOptions{Tail: -1, Follow: true}, running.Load)
	}()
	wait := func(want string) {
		t.Helper()
		deadline := time.Now().Add(testscale.Duration(20 * time.Second))
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			mu.Lock()
			got := out.String()
			mu.Unlock()
			if got == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("followed %q, want %q", got, want)
			}
			<-tick.C
		}
	}
	wait("line 0\n")
	l.mu.Lock()
	l.rotate()
	l.mu.Unlock()
	l.line("stdout", []byte("after\n"))
	wait("line 0\nafter\n")
	l.line("stdout", []byte("last\n"))
	running.Store(false)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wait("line 0\nafter\nlast\n")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := readLog(ctx, &out, name, LogOptions{Tail: 0, Follow: true}, func() bool { return true }); !errors.Is(err, context.Canceled) {
		t.Errorf("a follower that went away: %v", err)
	}
	if err := readLog(ctx, &out, name+".none", LogOptions{}, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a log that is not there: %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestLogQueryIsChecked(t *testing.T) {
	now := time.Now()
	o, previous, err := parseLogQuery(map[string][]string{"tailLines": {"3"}, "sinceSeconds": {"60"}, "previous": {"true"}, "stream": {"Stderr"}}, now)
	if err != nil || !previous || o.Tail != 3 || !o.Since.Equal(now.Add(-time.Minute)) || o.Stream != "stderr" {
		t.Errorf("%+v, %v, %v", o, previous, err)
	}
	for _, key := range []string{"tailLines", "limitBytes", "sinceSeconds", "sinceTime"} {
		if _, _, err := parseLogQuery(map[string][]string{key: {"-x"}}, now); err == nil {
			t.Errorf("%s=-x was taken", key)
		}
	}
}
