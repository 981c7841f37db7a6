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
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/nodefact"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/topicconfig"
	"github.com/highwater-io/highwater/pkg/wire"
)

// broker is the data side of a node: its replicas, and the loops that keep them going.
type broker struct {
	cfg         Config
	logger      *slog.Logger
	clock       clock
	dir         *logDir // and the file system of all who write there
	incarnation ident.UUID
	defaults    topicconfig.Defaults
	facts       *factStream
	metrics     *nodeMetrics

	controllers *controllerChannel
	timers      *timers
	flusher     *replicaQueue // each log by one flush at a time, which all share who wait for it (group commit)
	maintenance *replicaQueue // the logs' chores
	fetchers    *fetchers
	alterer     *alterer
	assigner    *assigner
	scrubber    *scrubber
	lifecycle   *lifecycle
	producerIDs *producerIDs
	checkpoints *checkpoints
	files       *log.Files
	cleaner     *cleaner
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

	// replies are those that wait for the disk, beside whoever found out what they say.
	replies sync.WaitGroup

	// stop ends the node when the broker can't go on.
	stop func(error)
}

// newBroker makes the data side. Nothing runs before start.
func newBroker(cfg Config, logger *slog.Logger, c clock, dir *logDir, incarnation ident.UUID, controllers *controllerChannel,
	dialer *wire.Dialer, facts *factStream, metrics *nodeMetrics, stop func(error)) (*broker, error) {
	mark, clean, err := log.TakeCleanShutdown(dir, cfg.DataDir)
	if err != nil && dir.offline() == nil {
		return nil, fmt.Errorf("reading the mark of a clean shutdown: %w", err)
	}
	checkpoints, err := loadCheckpoints(dir, cfg.DataDir, logger)
	if err != nil && dir.offline() == nil {
		return nil, fmt.Errorf("reading the checkpoints: %w", err)
	}
	b := &broker{
		cfg: cfg, logger: logger, clock: c, dir: dir, incarnation: incarnation, defaults: topicDefaults(cfg.Shared.Defaults),
		facts: facts, metrics: metrics, controllers: controllers, timers: newTimers(c),
		checkpoints: checkpoints, files: log.NewFiles(openSegmentFiles, segmentIndexBytes), cleanStart: clean, stop: stop,
	}
	b.current.Store(metadata.Empty())
	b.openings, b.removals = newOpenings(b), newRemovals(b)
	if err := b.finishRemovals(); err != nil && dir.offline() == nil {
		logger.Error("the deletion of replicas can't be finished", "dir", cfg.DataDir, "error", err)
	}
	b.flusher = newReplicaQueue(flushWorkers, func(r *replica) { r.flush((*exec.Partition).BeginFlush) })
	b.maintenance = newReplicaQueue(choreWorkers, (*replica).runChores)
	b.fetchers = newFetchers(b, dialer)
	b.alterer = newAlterer(b)
	b.assigner = newAssigner(b)
	b.scrubber = newScrubber(b)
	b.lifecycle = newLifecycle(b, mark.BrokerEpoch)
	b.producerIDs = newProducerIDs(b)
	b.cleaner = newCleaner(b)
	metrics.registry.MustRegister(b.cleaner.metrics, partitionCollector{b}, recoveryCollector{b.openings.progress}, logDirCollector{dir}, logCollector{b.files}, damageCollector{b})
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
		b.offlineLoop, b.timers.run, b.alterer.run, b.assigner.run, b.scrubber.run, b.scrubber.suspectLoop, b.lifecycle.run, b.checkpointLoop, b.sealedFlushLoop, b.retentionLoop, b.recoveryLoop, b.producerExpirationLoop,
		b.cleaner.run,
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
	if b.dir.offline() != nil {
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

// takeOffline takes the data directory out of service: after an error of a log, or with one that can't be opened,
// nobody knows what the disk holds. Where the directory itself saw the error, it is offline already.
func (b *broker) takeOffline(err error) { _ = b.dir.fail("", err) }

// offlineLoop waits until the data directory is offline. The controller is told by the next heartbeat, which goes
// out at once, and moves the leaders away; no replica serves any more.
func (b *broker) offlineLoop(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-b.dir.down:
	}
	failure := b.dir.offline()
	b.lifecycle.wake()
	tellOffline(b.logger, b.facts, b.cfg.NodeID, failure)
	b.eachReplica(func(r *replica) { r.failDir(failure) })
}

// tellOffline says to people and to the operator that a directory is out of service.
func tellOffline(logger *slog.Logger, facts *factStream, self ident.NodeID, failure *logDirFailure) {
	logger.Error("a directory is offline", "dir", failure.dir, "reason", failure.reason, "error", failure.err, "do", failure.whatToDo())
	facts.add(nodefact.Fact{
		Kind: nodefact.LogDirOffline, Time: failure.since.UTC(), Index: -1, Replica: self,
		Reason: failure.reason, Message: failure.Error(),
	})
}
