// Package bigcluster makes the metadata of a large cluster, for benchmarks and for tests of what things cost at size.
package bigcluster

import (
	"crypto/sha256"
	"fmt"
	"iter"
	"sync"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// Shape is how large: so many topics with so many partitions each, of three replicas, on so many brokers (3 or more).
type Shape struct{ Topics, Partitions, Brokers int }

// Shapes are the two of 100,000 partitions that the benchmarks show: few wide topics, and many narrow ones.
var Shapes = []Shape{{1_000, 100, 12}, {10_000, 10, 12}}

// replicationFactor of all topics.
const replicationFactor = 3

// String is short: "1000x100".
func (s Shape) String() string { return fmt.Sprintf("%dx%d", s.Topics, s.Partitions) }

// Records goes through the records that the shape's metadata begin with: feature levels, brokers that are unfenced, and
// topics with their partitions and three configs each. They are the same each time, ids included.
func (s Shape) Records() iter.Seq[metadata.Record] {
	return func(yield func(metadata.Record) bool) {
		for _, part := range []iter.Seq[metadata.Record]{features, s.brokers, s.topics} {
			for r := range part {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// Where the images stand.
const (
	Offset ident.Offset = 1 << 20
	Epoch  ident.Epoch  = 1
)

var (
	imagesMu sync.Mutex
	images   = map[Shape]*metadata.Image{}
)

// Image is what the records make, as of Offset and Epoch. It is made once for each shape, since that takes a while. It
// fails never, unless the shape has fewer than three brokers.
func (s Shape) Image() (*metadata.Image, error) {
	imagesMu.Lock()
	defer imagesMu.Unlock()
	if im := images[s]; im != nil {
		return im, nil
	}
	d := metadata.NewDelta(metadata.Empty())
	for r := range s.Records() {
		if err := d.Replay(r); err != nil {
			return nil, err
		}
	}
	images[s] = d.Image(Offset, Epoch)
	return images[s], nil
}

// BrokerID of the i-th broker; they begin above the ids that voters and nodes of a benchmark have.
func BrokerID(i int) ident.NodeID { return ident.NodeID(1001 + i) }

// BrokerEpoch of each broker.
const BrokerEpoch = 5

// TopicName of the i-th topic.
func TopicName(i int) string { return fmt.Sprintf("team-%02d.orders-%05d", i%37, i) }

// TopicID of the i-th topic.
func TopicID(i int) ident.UUID { return uuid("topic", i) }

// Directory is where a broker's replicas are.
func Directory(broker int) ident.UUID { return uuid("directory", broker) }

// uuid looks drawn, as real ids do: the order of topics by id is not the order of their names.
func uuid(what string, i int) ident.UUID {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", what, i))
	return ident.UUID(sum[:16])
}

func features(yield func(metadata.Record) bool) {
	_ = yield(&metadata.FeatureLevelRecord{Name: metadata.FeatureMetadataVersion, FeatureLevel: metadata.LatestMetadataVersion})
}

func (s Shape) brokers(yield func(metadata.Record) bool) {
	for i := range s.Brokers {
		rack := fmt.Sprintf("zone-%c", 'a'+rune(i%replicationFactor))
		host := fmt.Sprintf("prod-nodes-%d.prod-nodes.streaming.svc", i)
		r := &metadata.RegisterBrokerRecord{
			Version: 3, BrokerID: BrokerID(i), IncarnationID: uuid("incarnation", i), BrokerEpoch: BrokerEpoch, Rack: &rack,
			EndPoints: []metadata.Endpoint{{Name: "EXTERNAL", Host: host, Port: 9092}, {Name: "INTERNAL", Host: host, Port: 9094}},
			Features:  []metadata.SupportedFeature{{Name: metadata.FeatureMetadataVersion, MinSupportedVersion: 7, MaxSupportedVersion: 27}},
			LogDirs:   []ident.UUID{Directory(i)},
		}
		if !yield(r) {
			return
		}
	}
}

func (s Shape) topics(yield func(metadata.Record) bool) {
	for t := range s.Topics {
		if !yield(&metadata.TopicRecord{Name: TopicName(t), TopicID: TopicID(t)}) {
			return
		}
		for p := range s.Partitions {
			if !yield(s.partition(t, p)) {
				return
			}
		}
		for _, c := range [][2]string{{"cleanup.policy", "delete"}, {"min.insync.replicas", "2"}, {"retention.ms", "604800000"}} {
			if !yield(&metadata.ConfigRecord{ResourceType: metadata.ResourceTopic, ResourceName: TopicName(t), Name: c[0], Value: &c[1]}) {
				return
			}
		}
	}
}

func (s Shape) partition(topic, index int) *metadata.PartitionRecord {
	replicas, directories := make([]ident.NodeID, replicationFactor), make([]ident.UUID, replicationFactor)
	for i := range replicas {
		broker := (topic + index + i) % s.Brokers
		replicas[i], directories[i] = BrokerID(broker), Directory(broker)
	}
	return &metadata.PartitionRecord{
		Version: 1, PartitionID: int32(index), TopicID: TopicID(topic), Replicas: replicas, ISR: replicas, Directories: directories,
		Leader: replicas[0], LeaderEpoch: 3, PartitionEpoch: 17,
	}
}
