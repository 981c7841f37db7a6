package node

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/replication"
)

// maxAssignments is how many replicas one AssignReplicasToDirs names, as in Kafka.
const maxAssignments = 2250

// assigner tells the active controller which replicas are damaged and which are whole again (AssignReplicasToDirs,
// KIP-858): all that is to be said in one request, one request at a time, again until the controller has taken it.
type assigner struct {
	broker *broker

	mu      sync.Mutex
	waiting map[*replica]int // and which of all the times it was that the replica asked last
	asked   int
	kick    chan struct{}

	trouble string // that the log has already; the loop's
}

func newAssigner(b *broker) *assigner {
	return &assigner{broker: b, waiting: map[*replica]int{}, kick: make(chan struct{}, 1)}
}

// want has the replica's wish looked at. The replica's mutex is held.
func (a *assigner) want(r *replica) {
	a.mu.Lock()
	a.asked++
	a.waiting[r] = a.asked
	a.mu.Unlock()
	wakeUp(a.kick)
}

// settled says that nothing more is to be said for the replica, unless it has asked anew since: while a request was
// under way it may have been refilled and want something else.
func (a *assigner) settled(w waitingWish) {
	a.mu.Lock()
	if a.waiting[w.replica] == w.asked {
		delete(a.waiting, w.replica)
	}
	a.mu.Unlock()
}

// waitingWish is a replica and which time it was that it asked.
type waitingWish struct {
	*replica
	asked int
}

func (a *assigner) run(ctx context.Context) {
	for {
		again := a.send(ctx)
		var retry <-chan time.Time
		if again {
			retry = time.After(a.broker.cfg.Timing.RetryBackoff)
		}
		select {
		case <-ctx.Done():
			return
		case <-a.kick:
		case <-retry:
		}
	}
}

// wishes are what is to be said now, by directory.
func (a *assigner) wishes() map[ident.UUID][]waitingWish {
	a.mu.Lock()
	var asking []waitingWish
	for r, asked := range a.waiting {
		asking = append(asking, waitingWish{r, asked})
	}
	a.mu.Unlock()
	slices.SortFunc(asking, func(x, y waitingWish) int { return x.id.Compare(y.id) })
	out := map[ident.UUID][]waitingWish{}
	n := 0
	for _, r := range asking {
		switch wish := r.directoryWish(); {
		case wish == replication.NoWish:
			a.settled(r)
		case n == maxAssignments:
		case wish == replication.WishLost:
			out[ident.LostDirectory] = append(out[ident.LostDirectory], r)
			n++
		default:
			out[a.broker.cfg.DirectoryID] = append(out[a.broker.cfg.DirectoryID], r)
			n++
		}
	}
	return out
}

// directoryWish is what the replica wants to have said.
func (r *replica) directoryWish() replication.DirectoryWish {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return replication.NoWish
	}
	return r.partition.Core().DirectoryWish()
}

// send says what is to be said. It returns true when something is left to be said again.
func (a *assigner) send(ctx context.Context) (again bool) {
	wishes := a.wishes()
	if len(wishes) == 0 {
		return false
	}
	b := a.broker
	if b.epoch() < 0 {
		return true
	}
	resp, err := a.request(ctx, wishes)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
		if errors.Is(err, kerr.StaleBrokerEpoch) {
			b.lifecycle.wake() // a heartbeat finds out, and the life cycle registers anew
		}
	}
	if err != nil {
		if err.Error() != a.trouble && ctx.Err() == nil {
			a.trouble = err.Error()
			b.logger.Info("AssignReplicasToDirs failed, it is tried again", "error", err)
		}
		return true
	}
	a.trouble = ""
	codes := map[ident.TopicPartition]int16{}
	for _, dir := range resp.Directories {
		for _, topic := range dir.Topics {
			for _, p := range topic.Partitions {
				codes[ident.TopicPartition{Topic: topic.TopicID, Index: p.Partition}] = p.ErrorCode
			}
		}
	}
	for _, replicas := range wishes {
		for _, r := range replicas {
			code, answered := codes[r.id]
			switch {
			case !answered:
				again = true
			case code == 0, code == kerr.UnknownTopicID.Code, code == kerr.UnknownTopicOrPartition.Code, code == kerr.NotLeaderForPartition.Code:
				// Taken, or there is no such replica any more: metadata tells, and what the replica wants then it says anew.
				a.settled(r)
			default:
				again = true
			}
		}
	}
	return again
}

func (a *assigner) request(ctx context.Context, wishes map[ident.UUID][]waitingWish) (*kmsg.AssignReplicasToDirsResponse, error) {
	b := a.broker
	req := kmsg.NewPtrAssignReplicasToDirsRequest()
	req.BrokerID, req.BrokerEpoch = int32(b.cfg.NodeID), b.epoch()
	for id, replicas := range wishes {
		dir := kmsg.NewAssignReplicasToDirsRequestDirectory()
		dir.ID = id
		for _, r := range replicas { // in the order of their topics
			if n := len(dir.Topics); n == 0 || dir.Topics[n-1].TopicID != r.id.Topic {
				topic := kmsg.NewAssignReplicasToDirsRequestDirectoryTopic()
				topic.TopicID = r.id.Topic
				dir.Topics = append(dir.Topics, topic)
			}
			part := kmsg.NewAssignReplicasToDirsRequestDirectoryTopicPartition()
			part.Partition = r.id.Index
			topic := &dir.Topics[len(dir.Topics)-1]
			topic.Partitions = append(topic.Partitions, part)
		}
		req.Directories = append(req.Directories, dir)
	}
	answer, err := b.controllers.request(ctx, laneDirectories, req)
	if err != nil {
		return nil, err
	}
	resp, ok := answer.(*kmsg.AssignReplicasToDirsResponse)
	if !ok {
		return nil, errors.New("the controller answered AssignReplicasToDirs with something else")
	}
	return resp, nil
}
