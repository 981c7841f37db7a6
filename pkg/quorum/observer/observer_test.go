package observer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is an observer at work; what it tells is kept.
type running struct {
	t *testing.T
	*Observer
	cancel context.CancelFunc
	ended  chan error

	mu      sync.Mutex
	changed *sync.Cond
	steps   []Step
	states  []State
}

func runObserver(t *testing.T, cfg Config, addrs ...string) *running {
	t.Helper()
	r := &running{t: t, ended: make(chan error, 1)}
	r.changed = sync.NewCond(&r.mu)
	cfg.Bootstrap = func() []string { return addrs }
	cfg.Log = slog.New(slog.DiscardHandler)
	cfg.BackOffMin, cfg.BackOffMax = 5*time.Millisecond, 20*time.Millisecond
	cfg.OnStep = func(s Step) { r.note(func() { r.steps = append(r.steps, s) }) }
	cfg.OnState = func(s State) { r.note(func() { r.states = append(r.states, s) }) }
	o, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Observer = o
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.ended <- o.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-r.ended; err == nil {
			t.Error("Run returned nil")
		}
	})
	return r
}

func (r *running) note(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	r.changed.Broadcast()
}

// await waits until cond holds, which looks at steps and states.
func (r *running) await(what string, cond func() bool) {
	r.t.Helper()
	late := time.AfterFunc(20*time.Second, func() { r.note(func() {}) })
	defer late.Stop()
	deadline := time.Now().Add(20 * time.Second)
	r.mu.Lock()
	defer r.mu.Unlock()
	for !cond() {
		if !time.Now().Before(deadline) {
			r.t.Fatalf("waited in vain: %s; state %+v, %d steps", what, r.State(), len(r.steps))
		}
		r.changed.Wait()
	}
}

func (r *running) awaitState(want Status) State {
	r.t.Helper()
	var got State
	r.await("state "+want.String(), func() bool {
		if len(r.states) > 0 {
			got = r.states[len(r.states)-1]
		}
		return got.Status == want
	})
	return got
}

func (r *running) awaitOffset(want ident.Offset) {
	r.t.Helper()
	r.await("an offset", func() bool {
		if len(r.steps) == 0 {
			return false
		}
		got, _ := r.steps[len(r.steps)-1].New.Position()
		if got > want {
			r.t.Fatalf("published up to %d, committed is %d", got, want)
		}
		return got == want
	})
}

func TestFollowsTheLeaderBelowItsHighWatermark(t *testing.T) {
	q := startQuorum(t, 3)
	q.change(func() {
		for i := range 20 {
			q.log.append(topicRecord(i))
		}
		q.log.high = 15
	})
	// Only a voter that doesn't lead is known.
	r := runObserver(t, Config{ClusterID: "right"}, q.voters[2].addr)
	r.awaitOffset(14)
	s := r.awaitState(Connected)
	if s.Leader != 1 || s.Epoch != 1 || s.Addr != q.voters[0].addr {
		t.Fatalf("state %+v", s)
	}
	<-r.CaughtUpOnce()

	// The high watermark alone moves: it is told at once, not after MaxWait.
	q.change(func() { q.log.high = 20 })
	r.awaitOffset(19)
	q.change(func() { q.log.append(topicRecord(100), topicRecord(101)) })
	q.change(func() { q.log.high = 21 })
	r.awaitOffset(21)
	if r.Image().NumTopics() != 22 {
		t.Fatalf("%d topics", r.Image().NumTopics())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	image := metadata.Empty()
	topics := 0
	for _, step := range r.steps {
		if step.Old != image {
			t.Fatal("a step is missing")
		}
		image = step.New
		topics += len(step.Delta.ChangedTopics())
	}
	if topics != 22 {
		t.Fatalf("the deltas have %d topics", topics)
	}
}

func TestNewLeaderReplacesWhatWasNotCommitted(t *testing.T) {
	q := startQuorum(t, 3)
	q.change(func() {
		q.log.append(topicRecord(1))
		q.log.high = 1
		q.log.append(topicRecord(2))
		q.log.append(topicRecord(3))
	})
	r := runObserver(t, Config{}, q.addrs()...)
	r.awaitOffset(0)
	q.change(func() {
		q.leader, q.log.epoch = 2, 4
		q.log.batches = q.log.batches[:1]
		q.log.append(topicRecord(7))
		q.log.high = 2
	})
	r.awaitOffset(1)
	if _, ok := r.Image().Topic("t7"); !ok || r.Image().NumTopics() != 2 {
		t.Fatal("the image has records that the new leader never had")
	}
	r.await("the new leader", func() bool {
		s := r.states[len(r.states)-1]
		return s.Status == Connected && s.Leader == 2 && s.Epoch == 4 && s.Addr == q.voters[1].addr
	})
}

func TestSaysWhenThereIsNoLeaderAndWhenNobodyAnswers(t *testing.T) {
	q := startQuorum(t, 2)
	q.change(func() { q.log.append(topicRecord(1)); q.log.high = 1 })
	r := runObserver(t, Config{}, q.addrs()...)
	r.awaitState(Connected)

	q.change(func() { q.leader = ident.NoNode; q.log.epoch = 2 })
	s := r.awaitState(NoLeader)
	if len(s.Attempts) != 2 || !s.Attempts[0].Reached || s.Leader != ident.NoNode || s.Epoch != 2 {
		t.Fatalf("state %+v", s)
	}
	q.stop(q.voters[0])
	q.stop(q.voters[1])
	s = r.awaitState(Disconnected)
	if tried := s.Tried(); !strings.Contains(tried, q.voters[0].addr) || !strings.Contains(tried, "refused") || len(s.Attempts) != 2 {
		t.Fatalf("tried %q", tried)
	}
	q.change(func() { q.leader, q.log.epoch = 2, 3; q.log.append(topicRecord(2)); q.log.high = 2 })
	q.start(q.voters[1])
	if s = r.awaitState(Connected); s.Leader != 2 || s.Epoch != 3 {
		t.Fatalf("state %+v", s)
	}
	r.awaitOffset(1)
}

func TestLeaderThatHangsIsGivenUp(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	q := startQuorum(t, 1)
	q.change(func() { q.log.append(topicRecord(1)); q.log.high = 1 })
	// The silent address accepts (in the kernel) and never answers; the leader beside it is found regardless.
	r := runObserver(t, Config{AttemptTimeout: 300 * time.Millisecond, RequestTimeout: 50 * time.Millisecond, MaxWait: 10 * time.Millisecond},
		silent.Addr().String(), q.voters[0].addr)
	r.awaitState(Connected)
	q.mu.Lock() // The leader hangs.
	s := r.awaitState(Disconnected)
	q.mu.Unlock()
	for _, a := range s.Attempts {
		if a.Reached || !errors.Is(a.Err, context.DeadlineExceeded) {
			t.Fatalf("attempt %+v", a)
		}
	}
	r.awaitState(Connected)
}

func TestElectionThatEndsWhileAnAddressHangsIsSeen(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	q := startQuorum(t, 2)
	elect := make(chan struct{})
	var once sync.Once
	q.change(func() {
		q.leader, q.asked = ident.NoNode, func() { once.Do(func() { close(elect) }) }
	})
	const hang = 15 * time.Second
	began := time.Now()
	r := runObserver(t, Config{AttemptTimeout: hang}, append(q.addrs(), silent.Addr().String())...)
	<-elect
	q.change(func() { q.leader, q.log.epoch = 2, 2; q.log.append(topicRecord(1)); q.log.high = 1 })
	r.awaitState(Connected)
	if took := time.Since(began); took > hang/2 {
		t.Fatalf("the new leader was found after %v", took)
	}
}

// imageOf has topics s0 to s(n-1), and stands as if n records had made it.
func imageOf(t *testing.T, n int) *metadata.Image {
	t.Helper()
	d := metadata.NewDelta(metadata.Empty())
	for i := range n {
		if err := d.Replay(&metadata.TopicRecord{Name: fmt.Sprint("s", i), TopicID: ident.UUID{9, byte(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	return d.Image(ident.Offset(n-1), 1)
}

func TestLogThatBeginsLaterIsFollowedBehindASnapshot(t *testing.T) {
	q := startQuorum(t, 1)
	image := imageOf(t, 6)
	q.change(func() {
		for n := range 8 {
			q.log.append(topicRecord(n))
		}
		q.log.high = 8
		q.snapshot, q.logStart, q.chunk = &metadata.SnapshotID{EndOffset: 6, Epoch: 1}, 6, 100
		q.content = metadata.AppendSnapshot(nil, image, metadata.SnapshotHeader{LastContainedLogTimestamp: 77})
	})
	r := runObserver(t, Config{ClusterID: "right"}, q.addrs()...)
	r.await("eight topics", func() bool { return len(r.steps) > 1 && r.steps[len(r.steps)-1].New.NumTopics() == 8 })
	<-r.CaughtUpOnce()
	r.mu.Lock()
	first := r.steps[0]
	r.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if !first.New.Equal(image) || first.Old.NumTopics() != 0 || first.Timestamp != 77 || len(first.Delta.ChangedTopics()) != 6 || q.pieces < 3 {
		t.Fatalf("first step %+v after %d pieces", first, q.pieces)
	}
	if got := r.Image(); got.NumTopics() != 8 {
		t.Fatalf("%d topics in the end", got.NumTopics())
	}
}

func TestSpoiltSnapshotIsFetchedAgain(t *testing.T) {
	q := startQuorum(t, 1)
	image := imageOf(t, 6)
	whole := metadata.AppendSnapshot(nil, image, metadata.SnapshotHeader{})
	spoilt := bytes.Clone(whole)
	spoilt[len(spoilt)/2] ^= 1
	q.change(func() {
		q.snapshot, q.logStart, q.chunk, q.content = &metadata.SnapshotID{EndOffset: 6, Epoch: 1}, 6, 1000, spoilt
		for n := range 6 {
			q.log.append(topicRecord(n))
		}
		q.log.high = 6
	})
	r := runObserver(t, Config{ClusterID: "right"}, q.addrs()...)
	r.await("an error that names the snapshot", func() bool {
		s := r.State()
		return s.Status == Disconnected && len(s.Attempts) == 1 && errors.Is(s.Attempts[0].Err, metadata.ErrSnapshot)
	})
	q.change(func() { q.content = whole })
	r.await("the state of the snapshot", func() bool { return r.Image().NumTopics() == 6 })
}

func TestLeaderThatNamesNoSnapshotIsOfNoUse(t *testing.T) {
	q := startQuorum(t, 1)
	q.change(func() { q.logStart = 500 })
	r := runObserver(t, Config{}, q.addrs()...)
	r.await("an error that says so", func() bool {
		s := r.State()
		return s.Status == Disconnected && strings.Contains(s.Tried(), "names no snapshot")
	})
	select {
	case <-r.CaughtUpOnce():
		t.Fatal("caught up without a record")
	default:
	}
}

func TestLogThatCannotBeUnderstoodEndsRunWithAClearMessage(t *testing.T) {
	unknown := batch.NewBuilder(1, 1, 0)
	unknown.Append(nil, []byte{1, 99, 0}) // frame version 1, record type 99, version 0
	for name, test := range map[string]struct {
		raw  []byte
		says string
	}{
		"unknown record":        {unknown.Build(), "99"},
		"record that can't fit": {metadata.EncodeBatch(1, 1, 0, topicRecord(1)), "offset 1"},
	} {
		t.Run(name, func(t *testing.T) {
			q := startQuorum(t, 1)
			q.change(func() {
				q.log.append(topicRecord(1))
				q.log.batches = append(q.log.batches, modelBatch{base: 1, end: 2, epoch: 1, raw: test.raw})
				q.log.high = 2
			})
			r := runObserver(t, Config{}, q.addrs()...)
			err := <-r.ended
			r.ended <- err
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Fatalf("Run returned %v", err)
			}
			if s := r.State(); s.Status != Failed || !errors.Is(err, s.Err) {
				t.Fatalf("state %+v", s)
			}
		})
	}
}

func TestCorruptAnswerIsReportedAndAskedForAgain(t *testing.T) {
	q := startQuorum(t, 1)
	q.change(func() {
		q.log.append(topicRecord(1))
		q.log.high = 1
		q.log.batches[0].raw[70] ^= 1
	})
	r := runObserver(t, Config{}, q.addrs()...)
	s := r.awaitState(Disconnected)
	if len(s.Attempts) != 1 || !s.Attempts[0].Reached || s.Attempts[0].Err == nil {
		t.Fatalf("state %+v", s)
	}
	q.change(func() { q.log.batches[0].raw[70] ^= 1 })
	r.awaitState(Connected)
	r.awaitOffset(0)
}

func TestAnotherClusterIsNoLeader(t *testing.T) {
	q := startQuorum(t, 1)
	r := runObserver(t, Config{ClusterID: "wrong"}, q.addrs()...)
	s := r.awaitState(Disconnected)
	if !strings.Contains(s.Tried(), "INCONSISTENT_CLUSTER_ID") {
		t.Fatalf("tried %q", s.Tried())
	}
}

func TestConfigIsChecked(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("no bootstrap addresses went unnoticed")
	}
	if _, err := New(Config{Bootstrap: func() []string { return nil }, MaxWait: -1}); err == nil {
		t.Error("a negative time went unnoticed")
	}
}
