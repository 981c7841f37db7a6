package node

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/nodefact"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/topicconfig"
	"github.com/highwater-io/highwater/pkg/vfs"
	"github.com/highwater-io/highwater/pkg/wire"
)

// broker is the data side of a node: its replicas, and the loops that keep them going.
type broker struct {
	cfg         Config
	logger      *slog.Logger
	clock       clock
	fs          vfs.FS
	incarnation ident.UUID
	defaults    topicconfig.Defaults
	facts       *factStream
	metrics     *nodeMetrics

	controllers *controllerChannel
	timers      *timers
	flusher     *flusher
	fetchers    *fetchers
	alterer     *alterer
	lifecycle   *lifecycle
	producerIDs *producerIDs
	checkpoints *checkpoints
	openings    *openings
	removals    *removals
	// cleanStart says that the directory was closed in order: no log needs a scan.
	cleanStart bool

	current  atomic.Pointer[metadata.Image]
	replicas sync.Map // ident.TopicPartition -> *replica
	// applying serialises image changes; the loops read without it.
	applying sync.Mutex
	// following says that images are acted on; guarded by applying.
	following bool
	// offline is set once the data directory failed; every replica on it is lost then.
	offline atomic.Pointer[string]

	// stop ends the node when the broker can't go on.
	stop func(error)
}

// newBroker makes the data side. Nothing runs before start.
func newBroker(cfg Config, logger *slog.Logger, c clock, fs vfs.FS, incarnation ident.UUID, controllers *controllerChannel,
	dialer *wire.Dialer, facts *factStream, metrics *nodeMetrics, stop func(error)) (*broker, error) {
	mark, clean, err := log.TakeCleanShutdown(fs, cfg.DataDir)
	if err != nil {
		return nil, fmt.Errorf("reading the mark of a clean shutdown: %w", err)
	}
	checkpoints, err := loadCheckpoints(fs, cfg.DataDir, logger)
	if err != nil {
		return nil, fmt.Errorf("reading the checkpoints: %w", err)
	}
	b := &broker{
		cfg: cfg, logger: logger, clock: c, fs: fs, incarnation: incarnation, defaults: topicDefaults(cfg.Shared.Defaults),
		facts: facts, metrics: metrics, controllers: controllers, timers: newTimers(c),
		checkpoints: checkpoints, cleanStart: clean, stop: stop,
	}
	b.current.Store(metadata.Empty())
	b.openings, b.removals = newOpenings(b), newRemovals(b)
	if err := b.finishRemovals(); err != nil {
		logger.Error("the deletion of replicas can't be finished", "dir", cfg.DataDir, "error", err)
	}
	b.flusher = newFlusher()
	b.fetchers = newFetchers(b, dialer)
	b.alterer = newAlterer(b)
	b.lifecycle = newLifecycle(b, mark.BrokerEpoch)
	b.producerIDs = newProducerIDs(b)
	metrics.registry.MustRegister(partitionCollector{b}, recoveryCollector{b.openings.progress})
	return b, nil
}

// topicDefaults are the configured defaults as topic configs: what the controller goes by and DescribeConfigs shows.
func topicDefaults(d Defaults) topicconfig.Defaults {
	defaults := topicconfig.Defaults{topicconfig.MinInsyncReplicas: strconv.Itoa(int(d.MinInSyncReplicas))}
	if d.Flush == FlushAlways {
		defaults[topicconfig.FlushMessages] = "1"
	}
	return defaults
}

// start runs the broker's loops until ctx ends.
func (b *broker) start(ctx context.Context, running *sync.WaitGroup) {
	for _, loop := range []func(context.Context){
		b.timers.run, b.alterer.run, b.lifecycle.run, b.checkpointLoop, b.sealedFlushLoop, b.retentionLoop, b.recoveryLoop,
	} {
		running.Go(func() { loop(ctx) })
	}
	b.fetchers.start(ctx, running)
}

// image is the committed metadata that this node goes by.
func (b *broker) image() *metadata.Image { return b.current.Load() }

// Broker is what the replicas' cores ask of metadata (replication.Cluster).
func (b *broker) Broker(id ident.NodeID) (replication.Broker, bool) {
	registered, ok := b.image().Broker(id)
	if !ok {
		return replication.Broker{}, false
	}
	return replication.Broker{Epoch: registered.Epoch, Fenced: registered.Fenced, ShuttingDown: registered.InControlledShutdown}, true
}

// epoch is this node's broker epoch, -1 before it is registered.
func (b *broker) epoch() int64 { return b.lifecycle.epoch() }

// replica returns a replica that this node hosts.
func (b *broker) replica(id ident.TopicPartition) (*replica, bool) {
	r, ok := b.replicas.Load(id)
	if !ok {
		return nil, false
	}
	return r.(*replica), true
}

// eachReplica calls f for every hosted replica, in no order that matters.
func (b *broker) eachReplica(f func(*replica)) {
	b.replicas.Range(func(_, r any) bool { f(r.(*replica)); return true })
}

// resolveTopic finds the topic that a request names, by id where its version has ids.
func (b *broker) resolveTopic(image *metadata.Image, byID bool, name string, id [16]byte) (*metadata.Topic, *kerr.Error) {
	if byID {
		if topic, ok := image.TopicByID(id); ok {
			return topic, nil
		}
		return nil, kerr.UnknownTopicID
	}
	if topic, ok := image.Topic(name); ok {
		return topic, nil
	}
	return nil, kerr.UnknownTopicOrPartition
}

// topicFor is resolveTopic for somebody who must be allowed an operation on the topic.
func (b *broker) topicFor(req *wire.Request, op wire.Operation, image *metadata.Image, byID bool, name string, id [16]byte) (*metadata.Topic, *kerr.Error) {
	topic, code := b.resolveTopic(image, byID, name, id)
	if code == nil && !req.Authorize(op, wire.Resource{Type: wire.ResourceTopic, Name: topic.Name}) {
		return nil, kerr.TopicAuthorizationFailed
	}
	return topic, code
}

// hosted returns this node's replica of a partition, or why a client should ask elsewhere.
func (b *broker) hosted(topic *metadata.Topic, index int32) (*replica, *kerr.Error) {
	if _, ok := topic.Partition(index); !ok {
		return nil, kerr.UnknownTopicOrPartition
	}
	if r, ok := b.replica(ident.TopicPartition{Topic: topic.ID, Index: index}); ok {
		return r, nil
	}
	if b.offline.Load() != nil {
		return nil, kerr.KafkaStorageError
	}
	return nil, kerr.NotLeaderForPartition
}

// endpoint is where clients reach a node.
type endpoint struct {
	id   ident.NodeID
	host string
	port int32
	rack *string
}

// externalEndpoints lists where clients reach the given nodes, in the order of their ids; nil means every live one.
func (b *broker) externalEndpoints(image *metadata.Image, only map[ident.NodeID]bool) []endpoint {
	return endpointsOf(image, wire.External, only)
}

func endpointsOf(image *metadata.Image, listener wire.Listener, only map[ident.NodeID]bool) []endpoint {
	var out []endpoint
	for registered := range image.Brokers() {
		if only != nil && !only[registered.ID] || only == nil && registered.Fenced {
			continue
		}
		if e, ok := registered.Endpoint(string(listener)); ok {
			out = append(out, endpoint{registered.ID, e.Host, int32(e.Port), registered.Rack})
		}
	}
	return out
}

// noteFact puts what a core found into the fact stream and the metrics.
func (b *broker) noteFact(r *replica, f replication.Fact) {
	kind := nodefact.ISRChange
	switch f.Kind {
	case replication.ISRShrunk:
		b.metrics.isrShrinks.Inc()
	case replication.ISRExpanded:
		b.metrics.isrExpands.Inc()
	case replication.ReplicaReset:
		kind = nodefact.ReplicaReset
		b.logger.Warn("replica restarted at the leader's log start", "topic", r.topic, "index", r.id.Index, "from", f.From, "to", f.To)
	case replication.TruncatedBelowHW:
		b.logger.Warn("records below the high watermark were cut off: the leader does not have them",
			"topic", r.topic, "index", r.id.Index, "from", f.From, "to", f.To)
		return
	case replication.ISRChangeRefused:
		b.metrics.isrRefused.Inc()
		b.logger.Info("the controller refused an ISR change", "topic", r.topic, "index", r.id.Index,
			"replica", f.Replica, "code", kerr.ErrorForCode(int16(f.Code)))
		return
	}
	b.facts.add(nodefact.Fact{
		Kind: kind, Time: time.Now().UTC(), TopicID: r.id.Topic, Topic: r.topic, Index: r.id.Index,
		LeaderEpoch: f.LeaderEpoch, PartitionEpoch: f.PartitionEpoch, Replica: f.Replica,
		Reason: string(f.Reason), LagOffsets: f.LagOffsets, LagMillis: f.LagTime.Milliseconds(),
	})
}

// takeOffline takes the data directory out of service: after a failed write or flush, or with a log that can't be
// opened, nobody knows what the disk holds. The node tells the controller by its heartbeats, which then moves the
// leaders away. r is the replica that noticed and knows, nil when there is none.
func (b *broker) takeOffline(r *replica, err error) {
	message := err.Error()
	if !b.offline.CompareAndSwap(nil, &message) {
		return
	}
	b.logger.Error("the data directory is offline", "dir", b.cfg.DataDir, "error", err)
	b.lifecycle.wake()
	// Every other replica is on the same disk. Not in this goroutine: it may be inside another replica's act.
	go b.eachReplica(func(other *replica) {
		if other != r {
			other.failDir(err)
		}
	})
}
