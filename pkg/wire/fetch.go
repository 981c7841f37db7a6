package wire

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// FetchResult is a Fetch response whose records may be file ranges. Fields are those of kmsg.FetchResponse.
type FetchResult struct {
	ThrottleMillis int32
	ErrorCode      int16
	SessionID      int32
	Topics         []FetchTopic
	// Brokers are the endpoints that NOT_LEADER_OR_FOLLOWER hints at (KIP-951).
	Brokers []kmsg.FetchResponseBroker
}

// FetchTopic is one topic of a FetchResult: by name up to version 12, by id from 13 on.
type FetchTopic struct {
	Topic      string
	TopicID    [16]byte
	Partitions []FetchPartition
}

// FetchPartition is one partition of a FetchResult. Its zero value means something else than "not set" in
// several fields: start from NewFetchPartition.
type FetchPartition struct {
	Partition            int32
	ErrorCode            int16
	HighWatermark        int64
	LastStableOffset     int64
	LogStartOffset       int64
	AbortedTransactions  []kmsg.FetchResponseTopicPartitionAbortedTransaction // nil is null: read_uncommitted
	PreferredReadReplica int32
	DivergingEpoch       kmsg.FetchResponseTopicPartitionDivergingEpoch
	CurrentLeader        kmsg.FetchResponseTopicPartitionCurrentLeader
	SnapshotID           kmsg.FetchResponseTopicPartitionSnapshotID
	// Records are whole batches. None are sent as an empty set, never as null: librdkafka refuses null.
	Records []Segment
	// Release, when not nil, is called once when the records are no longer needed.
	Release func()
}

// NewFetchPartition returns a partition with Kafka's "not set" in every field.
func NewFetchPartition(index int32) FetchPartition {
	p := FetchPartition{
		Partition: index, HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1, PreferredReadReplica: -1,
	}
	p.DivergingEpoch.Default()
	p.CurrentLeader.Default()
	p.SnapshotID.Default()
	return p
}

// EncodeFetch encodes r for a version from 4 to 18, without copying records. What it puts on the wire is
// byte for byte what kmsg would. The response takes over the partitions' Release.
func EncodeFetch(version int16, r *FetchResult) *Response {
	e := fetchEncoder{flexible: version >= 12, buf: make([]byte, 0, 256)}
	e.int32(r.ThrottleMillis)
	if version >= 7 {
		e.int16(r.ErrorCode)
		e.int32(r.SessionID)
	}
	e.arrayLen(len(r.Topics))
	for i := range r.Topics {
		t := &r.Topics[i]
		if version <= 12 {
			e.string(t.Topic)
		} else {
			e.buf = append(e.buf, t.TopicID[:]...)
		}
		e.arrayLen(len(t.Partitions))
		for j := range t.Partitions {
			e.partition(version, &t.Partitions[j])
		}
		e.noTags()
	}
	if e.flexible {
		e.brokers(r.Brokers)
	}
	return e.response()
}

// fetchEncoder appends to buf; where records lie between, it notes the cut.
type fetchEncoder struct {
	flexible bool
	buf      []byte
	cuts     []fetchCut
	releases []func()
}

// fetchCut puts records behind the first at bytes of the buffer.
type fetchCut struct {
	at      int
	records []Segment
}

func (e *fetchEncoder) partition(version int16, p *FetchPartition) {
	e.int32(p.Partition)
	e.int16(p.ErrorCode)
	e.int64(p.HighWatermark)
	e.int64(p.LastStableOffset)
	if version >= 5 {
		e.int64(p.LogStartOffset)
	}
	e.aborted(p.AbortedTransactions)
	if version >= 11 {
		e.int32(p.PreferredReadReplica)
	}
	size := 0
	for _, s := range p.Records {
		size += int(s.Size())
	}
	if e.flexible {
		e.uvarint(uint32(size) + 1)
	} else {
		e.int32(int32(size))
	}
	if size > 0 {
		e.cuts = append(e.cuts, fetchCut{len(e.buf), p.Records})
	}
	if p.Release != nil {
		e.releases = append(e.releases, p.Release)
	}
	if e.flexible {
		e.partitionTags(p)
	}
}

// partitionTags encodes the three tagged structs, each of 12 or 8 bytes and an empty tag section of its own.
func (e *fetchEncoder) partitionTags(p *FetchPartition) {
	diverging := p.DivergingEpoch.Epoch != -1 || p.DivergingEpoch.EndOffset != -1
	leader := p.CurrentLeader.LeaderID != -1 || p.CurrentLeader.LeaderEpoch != -1
	snapshot := p.SnapshotID.EndOffset != -1 || p.SnapshotID.Epoch != -1
	n := uint32(0)
	for _, present := range []bool{diverging, leader, snapshot} {
		if present {
			n++
		}
	}
	e.uvarint(n)
	if diverging {
		e.tag(0, 13)
		e.int32(p.DivergingEpoch.Epoch)
		e.int64(p.DivergingEpoch.EndOffset)
		e.noTags()
	}
	if leader {
		e.tag(1, 9)
		e.int32(p.CurrentLeader.LeaderID)
		e.int32(p.CurrentLeader.LeaderEpoch)
		e.noTags()
	}
	if snapshot {
		e.tag(2, 13)
		e.int64(p.SnapshotID.EndOffset)
		e.int32(p.SnapshotID.Epoch)
		e.noTags()
	}
}

func (e *fetchEncoder) aborted(txns []kmsg.FetchResponseTopicPartitionAbortedTransaction) {
	switch {
	case txns != nil:
		e.arrayLen(len(txns))
	case e.flexible:
		e.uvarint(0)
	default:
		e.int32(-1)
	}
	for i := range txns {
		e.int64(txns[i].ProducerID)
		e.int64(txns[i].FirstOffset)
		e.noTags()
	}
}

func (e *fetchEncoder) brokers(brokers []kmsg.FetchResponseBroker) {
	if len(brokers) == 0 {
		e.uvarint(0)
		return
	}
	inner := fetchEncoder{flexible: true}
	inner.arrayLen(len(brokers))
	for i := range brokers {
		inner.int32(brokers[i].NodeID)
		inner.string(brokers[i].Host)
		inner.int32(brokers[i].Port)
		inner.buf = kbin.AppendCompactNullableString(inner.buf, brokers[i].Rack)
		inner.noTags()
	}
	e.uvarint(1)
	e.tag(0, uint32(len(inner.buf)))
	e.buf = append(e.buf, inner.buf...)
}

// response cuts the buffer where records lie between.
func (e *fetchEncoder) response() *Response {
	r := &Response{Segments: make([]Segment, 0, 2*len(e.cuts)+1)}
	from := 0
	for _, cut := range e.cuts {
		r.Segments = append(r.Segments, Segment{Bytes: e.buf[from:cut.at:cut.at]})
		r.Segments = append(r.Segments, cut.records...)
		from = cut.at
	}
	if from < len(e.buf) {
		r.Segments = append(r.Segments, Segment{Bytes: e.buf[from:]})
	}
	if releases := e.releases; len(releases) > 0 {
		r.Release = func() {
			for _, release := range releases {
				release()
			}
		}
	}
	return r
}

func (e *fetchEncoder) int16(v int16)    { e.buf = binary.BigEndian.AppendUint16(e.buf, uint16(v)) }
func (e *fetchEncoder) int32(v int32)    { e.buf = binary.BigEndian.AppendUint32(e.buf, uint32(v)) }
func (e *fetchEncoder) int64(v int64)    { e.buf = binary.BigEndian.AppendUint64(e.buf, uint64(v)) }
func (e *fetchEncoder) uvarint(v uint32) { e.buf = kbin.AppendUvarint(e.buf, v) }

func (e *fetchEncoder) tag(number, size uint32) {
	e.uvarint(number)
	e.uvarint(size)
}

func (e *fetchEncoder) noTags() {
	if e.flexible {
		e.buf = append(e.buf, 0)
	}
}

func (e *fetchEncoder) arrayLen(n int) {
	if e.flexible {
		e.uvarint(uint32(n) + 1)
	} else {
		e.int32(int32(n))
	}
}

func (e *fetchEncoder) string(s string) {
	if e.flexible {
		e.buf = kbin.AppendCompactString(e.buf, s)
	} else {
		e.buf = kbin.AppendString(e.buf, s)
	}
}
