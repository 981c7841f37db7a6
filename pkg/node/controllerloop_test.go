package node

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// fakeMetadataLog takes the appends of one epoch's leader.
type fakeMetadataLog struct {
	mu        sync.Mutex
	leads     ident.Epoch
	end       ident.Offset
	err       error
	resigned  []ident.Epoch
	proposing func() // called at the begin of each propose
}

func (f *fakeMetadataLog) propose(epoch ident.Epoch, at ident.Offset, batches []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.proposing != nil {
		f.proposing()
	}
	switch {
	case f.err != nil:
		return f.err
	case epoch != f.leads:
		return errNotLeading
	case at != f.end:
		return &otherOffsetError{f.end}
	}
	h, err := batch.ParseHeader(batches)
	if err != nil {
		return err
	}
	f.end += ident.Offset(h.NumRecords)
	return nil
}

func (f *fakeMetadataLog) resign(epoch ident.Epoch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resigned = append(f.resigned, epoch)
}

func (f *fakeMetadataLog) set(change func()) ident.Offset {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	return f.end
}

// loopTest is a controller loop of node 1000 over a fake log.
type loopTest struct {
	*controllerLoop
	t    *testing.T
	log  *fakeMetadataLog
	stop func()
}

func newLoopTest(t *testing.T) *loopTest {
	t.Helper()
	cfg := Config{NodeID: 1000, Timing: DefaultTiming(), Shared: SharedConfig{
		ClusterID: ident.UUID{0: 7, 15: 200}, Defaults: Defaults{MinInSyncReplicas: 1, ReplicationFactor: 1, Partitions: 1},
	}}
	log := &fakeMetadataLog{}
	loop, err := newControllerLoop(cfg, slog.New(slog.DiscardHandler), newClock(), log, 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		loop.run(ctx)
	}()
	l := &loopTest{controllerLoop: loop, t: t, log: log, stop: func() { cancel(); <-ended }}
	t.Cleanup(l.stop)
	return l
}

// lead makes the loop the active controller of an epoch whose log begins with its leader change record.
func (l *loopTest) lead(epoch ident.Epoch) {
	l.t.Helper()
	next := l.log.set(func() {
		l.log.leads = epoch
		l.log.end++
	})
	l.leadership(raft.Leadership{Leader: 1000, Epoch: epoch})
	l.becomeLeader(epoch, metadata.Empty(), next, false)
	l.settle()
}

// settle waits until everything that was queued is done.
func (l *loopTest) settle() {
	l.t.Helper()
	done := make(chan struct{})
	if !l.enqueue(func() { close(done) }) {
		l.t.Fatal("the loop has ended")
	}
	<-done
}

// ask sends a request; the answers come into the returned channel, which has room for one too many.
func (l *loopTest) ask(request kmsg.Request) chan kmsg.Response {
	answers := make(chan kmsg.Response, 2)
	l.handle(request, func(r kmsg.Response) { answers <- r })
	return answers
}

func (l *loopTest) registration(id ident.NodeID) *kmsg.BrokerRegistrationRequest {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.BrokerID, req.ClusterID = int32(id), ident.UUID{0: 7, 15: 200}.String()
	req.IncarnationID, req.LogDirs = ident.UUID{1: 5, 15: byte(id)}, [][16]byte{testUUID(9, id)}
	for _, f := range supportedFeatures() {
		feature := kmsg.NewBrokerRegistrationRequestFeature()
		feature.Name, feature.MinSupportedVersion, feature.MaxSupportedVersion = f.Name, f.Min, f.Max
		req.Features = append(req.Features, feature)
	}
	return req
}

func (l *loopTest) mustWait(answers chan kmsg.Response) {
	l.t.Helper()
	l.settle()
	if len(answers) != 0 {
		l.t.Fatalf("answered before its commit: %+v", <-answers)
	}
}

func (l *loopTest) registered(answers chan kmsg.Response) *kmsg.BrokerRegistrationResponse {
	l.t.Helper()
	answer := (<-answers).(*kmsg.BrokerRegistrationResponse)
	l.settle()
	if len(answers) != 0 {
		l.t.Fatal("answered twice")
	}
	return answer
}

func TestControllerAnswersWhenTheRecordsAreCommitted(t *testing.T) {
	l := newLoopTest(t)
	l.lead(3)
	before := l.log.set(func() {})
	answers := l.ask(l.registration(0))
	l.mustWait(answers)
	l.committed(before)
	l.mustWait(answers)
	end := l.log.set(func() {})
	l.committed(end)
	if got := l.registered(answers); got.ErrorCode != 0 || got.BrokerEpoch < int64(before) || got.BrokerEpoch >= int64(end) {
		t.Fatalf("code %d, broker epoch %d; want the offset of the record, %d or more and below %d", got.ErrorCode, got.BrokerEpoch, before, end)
	}
}

func TestControllerAnswersAtOnceWhatRestsOnNothingNew(t *testing.T) {
	l := newLoopTest(t)
	l.lead(3)
	for {
		end := l.log.set(func() {})
		l.committed(end)
		// No record comes of it, and nothing more is committed.
		req := kmsg.NewPtrBrokerHeartbeatRequest()
		req.BrokerID = 77
		answers := l.ask(req)
		l.settle()
		if len(answers) == 1 {
			if code := (<-answers).(*kmsg.BrokerHeartbeatResponse).ErrorCode; code != kerr.BrokerIDNotRegistered.Code {
				t.Fatalf("code %d", code)
			}
			return
		}
		if l.log.set(func() {}) == end { // else time has brought a record meanwhile
			t.Fatal("a refusal waits for a commit although all that it rests on is committed")
		}
	}
}

func TestControllerThatLostItsLeadershipTakesNoOtherRecordsForItsOwn(t *testing.T) {
	for name, l := range map[string]raft.Leadership{
		"another leads":          {Leader: 1001, Epoch: 4},
		"nobody leads":           {Leader: ident.NoNode, Epoch: 4},
		"resigned in this epoch": {Leader: ident.NoNode, Epoch: 3},
	} {
		t.Run(name, func(t *testing.T) {
			loop := newLoopTest(t)
			loop.lead(3)
			answers := loop.ask(loop.registration(0))
			loop.mustWait(answers)
			loop.leadership(l)
			loop.committed(1000)
			if got := loop.registered(answers); got.ErrorCode != kerr.NotController.Code {
				t.Fatalf("code %d for a record that was never committed", got.ErrorCode)
			}
		})
	}
}

func TestControllerDoesNotTakeUpALeadershipThatIsOver(t *testing.T) {
	l := newLoopTest(t)
	l.log.set(func() { l.log.leads, l.log.end = 3, 1 })
	l.leadership(raft.Leadership{Leader: 1000, Epoch: 3})
	l.leadership(raft.Leadership{Leader: 1001, Epoch: 4})
	l.becomeLeader(3, metadata.Empty(), 1, false)
	if got := l.registered(l.ask(l.registration(0))); got.ErrorCode != kerr.NotController.Code {
		t.Fatalf("code %d", got.ErrorCode)
	}
	if end := l.log.set(func() {}); end != 1 {
		t.Fatalf("records up to %d were appended", end)
	}
}

func TestControllerDecidesAnewWhenTheLogEndsElsewhere(t *testing.T) {
	l := newLoopTest(t)
	l.lead(3)
	elsewhere := l.log.set(func() { l.log.end += 2 }) // control records of the quorum
	answers := l.ask(l.registration(0))
	l.settle()
	l.committed(l.log.set(func() {}))
	if got := l.registered(answers); got.ErrorCode != 0 || got.BrokerEpoch < int64(elsewhere) {
		t.Fatalf("code %d, broker epoch %d; want %d or more", got.ErrorCode, got.BrokerEpoch, elsewhere)
	}
}

func TestControllerThatCannotAppendGivesItsLeadershipUp(t *testing.T) {
	for name, err := range map[string]error{"not leading": errNotLeading, "refused": raft.ErrTooLarge, "other": errors.New("disk")} {
		t.Run(name, func(t *testing.T) {
			l := newLoopTest(t)
			l.lead(3)
			waiting := l.ask(l.registration(0))
			l.mustWait(waiting)
			l.log.set(func() { l.log.err = err })
			for _, answers := range []chan kmsg.Response{l.ask(l.registration(1)), waiting} {
				if got := l.registered(answers); got.ErrorCode != kerr.NotController.Code {
					t.Fatalf("code %d", got.ErrorCode)
				}
			}
			l.log.set(func() {
				if !slices.Equal(l.log.resigned, []ident.Epoch{3}) {
					t.Fatalf("resigned from %v: the quorum would follow a controller that answers nobody", l.log.resigned)
				}
			})
		})
	}
}

func TestControllerLoopMayBeToldOfLeadershipWhileItAppends(t *testing.T) {
	l := newLoopTest(t)
	l.log.set(func() {
		l.log.proposing = func() {
			for range 5000 {
				l.leadership(raft.Leadership{Leader: 1000, Epoch: 3})
			}
		}
	})
	l.lead(3)
	answers := l.ask(l.registration(0))
	l.settle()
	l.committed(l.log.set(func() {}))
	if got := l.registered(answers); got.ErrorCode != 0 {
		t.Fatalf("code %d", got.ErrorCode)
	}
}

func TestControllerLoopThatStopsAnswersEverybodyOnce(t *testing.T) {
	l := newLoopTest(t)
	l.lead(3)
	waiting := l.ask(l.registration(0))
	l.mustWait(waiting)
	busy, goOn := make(chan struct{}), make(chan struct{})
	l.enqueue(func() { close(busy); <-goOn })
	<-busy
	all := []chan kmsg.Response{waiting}
	for id := range ident.NodeID(20) {
		all = append(all, l.ask(l.registration(id+1)))
	}
	stopped := make(chan struct{})
	go func() { l.stop(); close(stopped) }()
	close(goOn)
	<-stopped
	all = append(all, l.ask(l.registration(99)))
	for i, answers := range all {
		if len(answers) != 1 {
			t.Fatalf("request %d has %d answers", i, len(answers))
		}
	}
	if code := (<-waiting).(*kmsg.BrokerRegistrationResponse).ErrorCode; code != kerr.NotController.Code {
		t.Fatalf("code %d", code)
	}
}
