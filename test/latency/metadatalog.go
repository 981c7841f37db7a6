package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The metadata log's topic id, and the replica id of a reader that is no member (KIP-595).
var metadataTopicID = [16]byte{15: 1}

const metadataTopic = "__cluster_metadata"

// poll is how often the leader is asked; a fetch is not left waiting at the leader, so that what is measured does not
// depend on when the leader wakes who waits.
const poll = 5 * time.Millisecond

// commit is one record of the metadata log, seen below the high watermark.
type commit struct {
	at       time.Time // when it was seen there
	appended time.Time // what the leader's clock said when it was appended
	offset   int64
	record   any // partitionChange or fence
}

// metadataLog reads the log from the voters' CONTROLLER listeners with Kafka's Fetch.
type metadataLog struct {
	clients []*kgo.Client
	found   func(commit)

	offset, highWatermark  int64
	lastEpoch, quorumEpoch int32
	pending                []commit

	mu   sync.Mutex
	errs []error // by client, what went wrong last
}

func openMetadataLog(addresses []string, found func(commit)) (*metadataLog, error) {
	l := &metadataLog{found: found, highWatermark: -1}
	for _, address := range addresses {
		client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.DialTimeout(time.Second), kgo.RequestRetries(0))
		if err != nil {
			return nil, err
		}
		l.clients = append(l.clients, client)
	}
	l.errs = make([]error, len(l.clients))
	return l, nil
}

// run reads until ctx ends. Whom it asks is whoever last answered as the leader, else one after the other.
func (l *metadataLog) run(ctx context.Context) {
	defer func() {
		for _, client := range l.clients {
			client.Close()
		}
	}()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for turn := 0; ; {
		asked := turn % len(l.clients)
		err := l.fetch(ctx, l.clients[asked])
		if err != nil {
			turn++
		}
		l.mu.Lock()
		l.errs[asked] = err
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// lastErr says what went wrong last at each voter.
func (l *metadataLog) lastErr() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Errorf("the voters' last errors are %v", l.errs)
}

func (l *metadataLog) fetch(ctx context.Context, client *kgo.Client) error {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = -1, 0, 0, 8<<20
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = metadataTopic, metadataTopicID
	part := kmsg.NewFetchRequestTopicPartition()
	part.CurrentLeaderEpoch = l.quorumEpoch
	part.FetchOffset, part.LastFetchedEpoch, part.PartitionMaxBytes = l.offset, l.lastEpoch, 8<<20
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	answer, err := client.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return err
	}
	resp := answer.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return errors.New("the answer is not about the metadata partition")
	}
	p := &resp.Topics[0].Partitions[0]
	// A leader answers only who names its epoch; who does not is told it.
	l.quorumEpoch = max(l.quorumEpoch, p.CurrentLeader.LeaderEpoch)
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return err
	}
	if p.DivergingEpoch.Epoch >= 0 {
		return errors.New("the metadata leader changed and cut its log, which this program does not follow")
	}
	now := time.Now()
	if err := l.receive(p.RecordBatches); err != nil {
		return err
	}
	l.highWatermark = max(l.highWatermark, p.HighWatermark)
	for len(l.pending) > 0 && l.pending[0].offset < l.highWatermark {
		c := l.pending[0]
		l.pending = l.pending[1:]
		c.at = now
		l.found(c)
	}
	return nil
}

// receive takes whole batches.
func (l *metadataLog) receive(raw []byte) error {
	const upToLength = 12 // FirstOffset and Length
	for len(raw) >= upToLength {
		var b kmsg.RecordBatch
		size := upToLength + int(int32(uint32(raw[8])<<24|uint32(raw[9])<<16|uint32(raw[10])<<8|uint32(raw[11])))
		if size > len(raw) {
			return nil
		}
		if err := b.ReadFrom(raw[:size]); err != nil {
			return fmt.Errorf("batch at offset %d: %w", l.offset, err)
		}
		raw = raw[size:]
		if b.FirstOffset < l.offset {
			continue // Fetch may begin with the batch that holds the offset.
		}
		if err := l.receiveBatch(&b); err != nil {
			return fmt.Errorf("batch at offset %d: %w", b.FirstOffset, err)
		}
		l.offset, l.lastEpoch = b.FirstOffset+int64(b.LastOffsetDelta)+1, b.PartitionLeaderEpoch
	}
	return nil
}

func (l *metadataLog) receiveBatch(b *kmsg.RecordBatch) error {
	const compressed, control = 7, 0x20
	if b.Attributes&control != 0 {
		return nil
	}
	if b.Attributes&compressed != 0 {
		return errors.New("compressed metadata")
	}
	records := b.Records
	for i := range b.NumRecords {
		length, n := varint(records)
		if n == 0 || length < 0 || int(length) > len(records)-n {
			return errors.New("a record runs over its batch")
		}
		var r kmsg.Record
		if err := r.ReadFrom(records[:n+int(length)]); err != nil {
			return err
		}
		records = records[n+int(length):]
		found, err := decode(r.Value)
		if err != nil {
			return err
		}
		if found != nil {
			l.pending = append(l.pending, commit{
				offset: b.FirstOffset + int64(i), appended: time.UnixMilli(b.FirstTimestamp + r.TimestampDelta64), record: found,
			})
		}
	}
	return nil
}

// varint reads a zig-zag number and says how many bytes it has; none when it is cut off.
func varint(b []byte) (value int32, n int) {
	var u uint32
	for n < len(b) && n < 5 {
		u |= uint32(b[n]&0x7f) << (7 * n)
		n++
		if b[n-1] < 0x80 {
			return int32(u>>1) ^ -int32(u&1), n
		}
	}
	return 0, 0
}
