package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/nodefact"
	"github.com/highwater-io/highwater/pkg/quorum/observer"
	"github.com/highwater-io/highwater/pkg/wire"
)

// clientID is how the operator calls itself towards nodes.
const clientID = "highwater-operator"

// restartPause is how long the operator waits before it reads the metadata anew from the beginning, after it could
// not be followed any more.
const restartPause = 10 * time.Second

// OpenLive returns an Opener of connections to real nodes. hosts, which may be nil, says where names are.
func OpenLive(hosts *wire.HostTable, log logr.Logger) Opener {
	return func(target Target, notify func(Change)) Connection {
		dialer := &wire.Dialer{Hosts: hosts, ClientID: clientID}
		ctx, cancel := context.WithCancel(context.Background())
		l := &live{
			target: target,
			notify: notify,
			dialer: dialer,
			pool:   &wire.Pool{Dialer: dialer},
			log:    log.WithValues("replicaSet", target.ReplicaSet.String()),
			facts:  NewFactBook(),
			cancel: cancel,
			state:  State{Leader: ident.NoNode, Epoch: ident.UnknownEpoch, Since: time.Now()},
		}
		l.running.Go(func() { l.observe(ctx) })
		client := newFactClient(hosts)
		acknowledgers := map[ident.NodeID]*factAcknowledger{}
		l.facts.OnWrittenDown(func(node ident.NodeID, incarnation ident.UUID, upTo int64) {
			acknowledgers[node].acknowledge(incarnation, upTo)
		})
		for node, address := range target.Facts {
			acknowledger := newFactAcknowledger(address, client, l.log)
			acknowledgers[node] = acknowledger
			l.running.Go(func() { acknowledger.run(ctx) })
		}
		for node, address := range target.Facts {
			reader := &factReader{
				address: address, client: client, log: l.log,
				began: func(incarnation ident.UUID) { l.facts.Began(node, incarnation) },
				opened: func(directory ident.UUID) {
					if l.facts.Opened(node, directory) {
						l.notify(Change{ReplicaSet: l.target.ReplicaSet})
					}
				},
				take: func(incarnation ident.UUID, f nodefact.Fact) { l.takeFact(node, incarnation, f) },
			}
			l.running.Go(func() { reader.run(ctx) })
		}
		return l
	}
}

// live is a connection to real nodes.
type live struct {
	target  Target
	notify  func(Change)
	dialer  *wire.Dialer
	pool    *wire.Pool
	log     logr.Logger
	facts   *FactBook
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	state    State
	leaderAt string // address of the quorum's leader, empty when none is known
}

func (l *live) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

func (l *live) Admin() Admin     { return controllerAdmin{l.request} }
func (l *live) Facts() *FactBook { return l.facts }

func (l *live) Close() {
	l.cancel()
	l.pool.Close()
	l.running.Wait()
}

// request goes to the active controller, which is the quorum's leader.
func (l *live) request(ctx context.Context, request kmsg.Request) (kmsg.Response, error) {
	l.mu.Lock()
	address := l.leaderAt
	l.mu.Unlock()
	if address == "" {
		return nil, ErrNoQuorumLeader
	}
	return l.pool.Request(ctx, address, request)
}

// observe follows the metadata log. When that can't go on, it begins anew from the start of the log; what was known
// stands until it has caught up again.
func (l *live) observe(ctx context.Context) {
	for ctx.Err() == nil {
		err := l.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		l.log.Error(err, "the metadata log can't be followed; it is read anew", "in", restartPause.String())
		select {
		case <-ctx.Done():
		case <-time.After(restartPause):
		}
	}
}

func (l *live) follow(ctx context.Context) error {
	var addresses []string
	for _, address := range l.target.Voters {
		addresses = append(addresses, address)
	}
	slices.Sort(addresses)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	run := &following{live: l}
	o, err := observer.New(observer.Config{
		Bootstrap: func() []string { return addresses },
		ClusterID: l.target.ClusterID.String(),
		Dialer:    l.dialer,
		OnStep:    run.step,
		OnState:   run.stateChanged,
		Log:       slog.New(logr.ToSlogHandler(l.log)),
	})
	if err != nil {
		return err
	}
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-o.CaughtUpOnce():
			run.caughtUp(o)
		case <-ctx.Done():
		}
	})
	err = o.Run(ctx)
	cancel()
	waiting.Wait()
	return err
}

// following is one reading of the log, from its start.
type following struct {
	live *live
	done bool // caught up once; guarded by live.mu
}

func (f *following) caughtUp(o *observer.Observer) {
	f.live.mu.Lock()
	f.done = true
	f.live.state.Image, f.live.state.Voters = o.Image(), voterSet(o.Voters())
	f.live.mu.Unlock()
	f.live.notify(Change{ReplicaSet: f.live.target.ReplicaSet, Everything: true})
}

func (f *following) step(s observer.Step) {
	f.live.mu.Lock()
	if !f.done {
		f.live.mu.Unlock()
		return
	}
	f.live.state.Image = s.New
	if s.VotersChanged {
		f.live.state.Voters = voterSet(s.Voters)
	}
	f.live.mu.Unlock()
	if change, changed := changeOf(f.live.target, s); changed {
		f.live.notify(change)
	}
}

// changeOf tells which topics a step concerns. Most steps concern nothing: they are the quorum's sign of life.
func changeOf(target Target, s observer.Step) (Change, bool) {
	change := Change{ReplicaSet: target.ReplicaSet, Everything: len(s.Delta.ChangedBrokers()) > 0}
	for _, id := range s.Delta.ChangedTopics() {
		if topic, found := s.New.TopicByID(id); found {
			change.Topics = append(change.Topics, topic.Name)
		}
	}
	for _, topic := range s.Delta.DeletedTopics() {
		change.Topics = append(change.Topics, topic.Name)
	}
	for _, resource := range s.Delta.ChangedConfigs() {
		if resource.Type == metadata.ResourceTopic {
			change.Topics = append(change.Topics, resource.Name)
		}
	}
	return change, s.Delta.Changed() || s.VotersChanged
}

func voterSet(voters []observer.Voter) []Voter {
	var set []Voter
	for _, v := range voters {
		set = append(set, Voter(v))
	}
	return set
}

func (f *following) stateChanged(s observer.State) {
	l := f.live
	l.mu.Lock()
	reach := Starting
	l.leaderAt = ""
	var tried []string
	switch s.Status {
	case observer.Searching:
	case observer.Connected, observer.LoadingSnapshot:
		reach, l.leaderAt = Following, s.Addr
	case observer.NoLeader:
		reach = NoLeader
	case observer.Disconnected:
		reach = Disconnected
		for _, attempt := range s.Attempts {
			tried = append(tried, attempt.Addr)
		}
	case observer.Failed:
		reach = Disconnected
		tried = []string{strings.TrimSpace(fmt.Sprintf("%s (%v)", s.Addr, s.Err))}
	}
	if reach != l.state.Reach {
		l.state.Since = time.Now()
	}
	l.state.Reach, l.state.Tried = reach, tried
	l.state.Leader, l.state.Epoch = s.Leader, s.Epoch
	l.mu.Unlock()
	l.notify(Change{ReplicaSet: l.target.ReplicaSet, Everything: true})
}

func (l *live) takeFact(node ident.NodeID, incarnation ident.UUID, fact nodefact.Fact) {
	if !l.facts.Add(node, incarnation, fact) {
		return
	}
	switch {
	case fact.Kind == nodefact.LogDirOffline:
		l.notify(Change{ReplicaSet: l.target.ReplicaSet, Everything: true})
		return
	case fact.TopicID.IsZero(): // of the node alone: no Partition is concerned
		l.notify(Change{ReplicaSet: l.target.ReplicaSet})
		return
	}
	if image := l.State().Image; image != nil {
		if topic, found := image.TopicByID(fact.TopicID); found {
			l.notify(Change{ReplicaSet: l.target.ReplicaSet, Topics: []string{topic.Name}})
		}
	}
}
