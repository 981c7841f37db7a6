package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"k8s.io/apimachinery/pkg/types"

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
			replicaSet: target.ReplicaSet,
			clusterID:  target.ClusterID.String(),
			notify:     notify,
			dialer:     dialer,
			pool:       &wire.Pool{Dialer: dialer},
			factClient: newFactClient(hosts),
			log:        log.WithValues("replicaSet", target.ReplicaSet.String()),
			facts:      NewFactBook(),
			ctx:        ctx,
			cancel:     cancel,
			tellers:    map[ident.NodeID]*teller{},
			state:      State{Leader: ident.NoNode, Epoch: ident.UnknownEpoch, Since: time.Now()},
		}
		l.facts.OnWrittenDown(l.writtenDown)
		l.Retarget(target)
		l.running.Go(func() { l.observe(ctx) })
		return l
	}
}

// live is a connection to real nodes.
type live struct {
	replicaSet types.NamespacedName
	clusterID  string
	notify     func(Change)
	dialer     *wire.Dialer
	pool       *wire.Pool
	factClient *http.Client
	log        logr.Logger
	facts      *FactBook
	ctx        context.Context //nolint:containedctx // of the connection: it bounds what Retarget starts
	cancel     context.CancelFunc
	running    sync.WaitGroup

	mu       sync.Mutex
	state    State
	leaderAt string   // address of the quorum's leader, empty when none is known
	voters   []string // addresses, sorted
	tellers  map[ident.NodeID]*teller
}

// teller is a node whose facts are read.
type teller struct {
	address      string
	acknowledger *factAcknowledger
	stop         context.CancelFunc
}

// Retarget follows nodes that came, went or moved.
func (l *live) Retarget(target Target) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.voters = slices.Sorted(maps.Values(target.Voters))
	for node, t := range l.tellers {
		if address, stays := target.Facts[node]; !stays || address != t.address {
			t.stop()
			delete(l.tellers, node)
		}
	}
	for node, address := range target.Facts {
		if l.tellers[node] == nil {
			l.tellers[node] = l.listenTo(node, address)
		}
	}
}

// listenTo reads a node's facts until it is stopped.
func (l *live) listenTo(node ident.NodeID, address string) *teller {
	ctx, stop := context.WithCancel(l.ctx)
	acknowledger := newFactAcknowledger(address, l.factClient, l.log)
	reader := &factReader{
		address: address, client: l.factClient, log: l.log,
		began: func(incarnation ident.UUID) { l.facts.Began(node, incarnation) },
		opened: func(directory ident.UUID) {
			if l.facts.Opened(node, directory) {
				l.notify(Change{ReplicaSet: l.replicaSet})
			}
		},
		take: func(incarnation ident.UUID, f nodefact.Fact) { l.takeFact(node, incarnation, f) },
	}
	l.running.Go(func() { acknowledger.run(ctx) })
	l.running.Go(func() { reader.run(ctx) })
	return &teller{address, acknowledger, stop}
}

// writtenDown tells a node what it need not keep any more.
func (l *live) writtenDown(node ident.NodeID, incarnation ident.UUID, upTo int64) {
	l.mu.Lock()
	t := l.tellers[node]
	l.mu.Unlock()
	if t != nil {
		t.acknowledger.acknowledge(incarnation, upTo)
	}
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	run := &following{live: l}
	o, err := observer.New(observer.Config{
		Bootstrap: func() []string {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.voters
		},
		ClusterID: l.clusterID,
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
	f.live.notify(Change{ReplicaSet: f.live.replicaSet, Everything: true})
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
	if change, changed := changeOf(f.live.replicaSet, s); changed {
		f.live.notify(change)
	}
}

// changeOf tells which topics a step concerns. Most steps concern nothing: they are the quorum's sign of life.
func changeOf(replicaSet types.NamespacedName, s observer.Step) (Change, bool) {
	change := Change{ReplicaSet: replicaSet, Everything: len(s.Delta.ChangedBrokers()) > 0}
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
	l.notify(Change{ReplicaSet: l.replicaSet, Everything: true})
}

func (l *live) takeFact(node ident.NodeID, incarnation ident.UUID, fact nodefact.Fact) {
	if !l.facts.Add(node, incarnation, fact) {
		return
	}
	switch {
	case fact.Kind == nodefact.LogDirOffline:
		l.notify(Change{ReplicaSet: l.replicaSet, Everything: true})
		return
	case fact.TopicID.IsZero(): // of the node alone: no Partition is concerned
		l.notify(Change{ReplicaSet: l.replicaSet})
		return
	}
	if image := l.State().Image; image != nil {
		if topic, found := image.TopicByID(fact.TopicID); found {
			l.notify(Change{ReplicaSet: l.replicaSet, Topics: []string{topic.Name}})
		}
	}
}
