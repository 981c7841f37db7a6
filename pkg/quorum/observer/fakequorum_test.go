package observer

import (
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/wire"
)

// fakeQuorum is a set of voters on real sockets that share one log. It answers fetches as KRaft does and makes
// no decisions: the test does.
type fakeQuorum struct {
	t *testing.T

	mu        sync.Mutex
	log       *modelLog
	leader    ident.NodeID // ident.NoNode when there is none
	clusterID string
	snapshot  *metadata.SnapshotID // is offered to whoever fetches from below its end
	content   []byte               // of the snapshot
	chunk     int                  // bytes sent at a time
	pieces    int                  // sent so far
	logStart  ident.Offset
	voters    []*fakeVoter
	parked    []*parkedFetch
	asked     func() // after each fetch, when not nil
}

type fakeVoter struct {
	id     ident.NodeID
	addr   string
	server *wire.Server
	ended  chan error
}

type parkedFetch struct {
	voter   *fakeVoter
	request *wire.Request
	timer   *time.Timer
}

func startQuorum(t *testing.T, voters int) *fakeQuorum {
	q := &fakeQuorum{t: t, log: &modelLog{epoch: 1}, leader: 1, clusterID: "right"}
	for i := range voters {
		v := &fakeVoter{id: ident.NodeID(i + 1), addr: "127.0.0.1:0"}
		q.voters = append(q.voters, v)
		q.start(v)
	}
	t.Cleanup(func() {
		for _, v := range q.voters {
			q.stop(v)
		}
	})
	return q
}

// start makes a voter listen, on its old address when it had one.
func (q *fakeQuorum) start(v *fakeVoter) {
	q.t.Helper()
	server, err := wire.NewServer(wire.ServerConfig{
		Listener: wire.Controller, Log: slog.New(slog.DiscardHandler),
		Handler: wire.HandlerFunc(func(r *wire.Request) { q.handle(v, r) }),
	})
	if err != nil {
		q.t.Fatal(err)
	}
	ln, err := net.Listen("tcp", v.addr)
	if err != nil {
		q.t.Fatal(err)
	}
	v.server, v.addr, v.ended = server, ln.Addr().String(), make(chan error, 1)
	go func() { v.ended <- server.Serve(ln) }()
}

func (q *fakeQuorum) stop(v *fakeVoter) {
	if v.server == nil {
		return
	}
	v.server.Close()
	if err := <-v.ended; !errors.Is(err, wire.ErrServerClosed) {
		q.t.Errorf("voter %s stopped serving: %v", v.addr, err)
	}
	v.server = nil
	// Answers to a closed connection go nowhere, but are due.
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wake(func(p *parkedFetch) bool { return p.voter == v })
}

// change does something to the quorum and answers the fetches that wait for it.
func (q *fakeQuorum) change(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
	q.wake(func(p *parkedFetch) bool { return q.news(p.voter, p.request.Body.(*kmsg.FetchRequest)) })
}

func (q *fakeQuorum) wake(due func(*parkedFetch) bool) {
	q.parked = slices.DeleteFunc(q.parked, func(p *parkedFetch) bool {
		if !due(p) {
			return false
		}
		p.timer.Stop()
		p.request.Reply(q.answer(p.voter, p.request.Body.(*kmsg.FetchRequest)))
		return true
	})
}

func (q *fakeQuorum) addrs() []string {
	var addrs []string
	for _, v := range q.voters {
		addrs = append(addrs, v.addr)
	}
	return addrs
}

func (q *fakeQuorum) handle(v *fakeVoter, r *wire.Request) {
	if req, ok := r.Body.(*kmsg.FetchSnapshotRequest); ok {
		q.mu.Lock()
		defer q.mu.Unlock()
		r.Reply(q.piece(v, req))
		return
	}
	req, ok := r.Body.(*kmsg.FetchRequest)
	if !ok {
		q.t.Errorf("the observer sent a %s", kmsg.NameForKey(r.Key))
		r.Fail(kerr.InvalidRequest)
		return
	}
	if id, _ := wire.FetchReplica(req); id != -1 || req.Topics[0].TopicID != ident.MetadataTopicID {
		q.t.Errorf("fetch as replica %d of topic %x", id, req.Topics[0].TopicID)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.asked != nil {
		defer q.asked()
	}
	if req.MaxWaitMillis == 0 || q.news(v, req) {
		r.Reply(q.answer(v, req))
		return
	}
	p := &parkedFetch{voter: v, request: r}
	p.timer = time.AfterFunc(time.Duration(req.MaxWaitMillis)*time.Millisecond, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.wake(func(other *parkedFetch) bool { return other == p })
	})
	q.parked = append(q.parked, p)
}

// piece answers a FetchSnapshot.
func (q *fakeQuorum) piece(v *fakeVoter, req *kmsg.FetchSnapshotRequest) *kmsg.FetchSnapshotResponse {
	asked := req.Topics[0].Partitions[0]
	part := kmsg.NewFetchSnapshotResponseTopicPartition()
	part.SnapshotID.EndOffset, part.SnapshotID.Epoch = asked.SnapshotID.EndOffset, asked.SnapshotID.Epoch
	part.Bytes = []byte{}
	switch {
	case req.ReplicaID != -1 || req.ClusterID == nil || *req.ClusterID != q.clusterID:
		q.t.Errorf("snapshot asked for as replica %d", req.ReplicaID)
	case ident.Epoch(asked.CurrentLeaderEpoch) != q.log.epoch || v.id != q.leader:
		part.ErrorCode = kerr.NotLeaderForPartition.Code
	case q.snapshot == nil || asked.SnapshotID.EndOffset != int64(q.snapshot.EndOffset):
		part.ErrorCode = kerr.SnapshotNotFound.Code
	default:
		q.pieces++
		part.Size, part.Position = int64(len(q.content)), asked.Position
		part.Bytes = q.content[asked.Position:min(len(q.content), int(asked.Position)+q.chunk)]
	}
	topic := kmsg.NewFetchSnapshotResponseTopic()
	topic.Topic = ident.MetadataTopic
	topic.Partitions = append(topic.Partitions, part)
	resp := kmsg.NewPtrFetchSnapshotResponse()
	resp.Topics = append(resp.Topics, topic)
	return resp
}

// news says whether a fetch is answered at once.
func (q *fakeQuorum) news(v *fakeVoter, req *kmsg.FetchRequest) bool {
	p := req.Topics[0].Partitions[0]
	resp := q.answer(v, req)
	if resp.ErrorCode != 0 {
		return true
	}
	a := resp.Topics[0].Partitions[0]
	return a.ErrorCode != 0 || len(a.RecordBatches) > 0 || a.DivergingEpoch.Epoch >= 0 || a.SnapshotID.Epoch >= 0 || a.HighWatermark > p.HighWatermark
}

func (q *fakeQuorum) answer(v *fakeVoter, req *kmsg.FetchRequest) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	if req.ClusterID != nil && *req.ClusterID != q.clusterID {
		resp.ErrorCode = kerr.InconsistentClusterID.Code
		return resp
	}
	asked := req.Topics[0].Partitions[0]
	part := kmsg.NewFetchResponseTopicPartition()
	part.RecordBatches = []byte{}
	part.HighWatermark, part.LogStartOffset = -1, int64(q.logStart)
	part.CurrentLeader.LeaderID, part.CurrentLeader.LeaderEpoch = int32(q.leader), int32(q.log.epoch)
	at := position{offset: ident.Offset(asked.FetchOffset), lastEpoch: ident.Epoch(asked.LastFetchedEpoch)}
	switch epoch := ident.Epoch(asked.CurrentLeaderEpoch); {
	case epoch < q.log.epoch:
		part.ErrorCode = kerr.FencedLeaderEpoch.Code
	case epoch > q.log.epoch:
		part.ErrorCode = kerr.UnknownLeaderEpoch.Code
	case q.leader != v.id:
		part.ErrorCode = kerr.NotLeaderForPartition.Code
	case q.snapshot != nil && at.offset < q.snapshot.EndOffset:
		part.HighWatermark = int64(q.log.high)
		part.SnapshotID.EndOffset, part.SnapshotID.Epoch = int64(q.snapshot.EndOffset), int32(q.snapshot.Epoch)
	case at.offset < q.logStart:
		part.ErrorCode = kerr.OffsetOutOfRange.Code
	default:
		a := q.log.answer(at, 3)
		part.HighWatermark = int64(a.highWatermark)
		part.RecordBatches = append(part.RecordBatches, a.records...)
		if a.diverging {
			part.DivergingEpoch.Epoch, part.DivergingEpoch.EndOffset = int32(a.divergingEpoch), int64(a.divergingEnd)
		}
	}
	topic := kmsg.NewFetchResponseTopic()
	topic.TopicID = ident.MetadataTopicID
	topic.Partitions = append(topic.Partitions, part)
	resp.Topics = append(resp.Topics, topic)
	for _, other := range q.voters {
		if other.id == q.leader {
			host, port, _ := net.SplitHostPort(other.addr)
			b := kmsg.NewFetchResponseBroker()
			b.NodeID, b.Host = int32(other.id), host
			for _, digit := range port {
				b.Port = 10*b.Port + digit - '0'
			}
			resp.Brokers = append(resp.Brokers, b)
		}
	}
	return resp
}
