// Package workload writes numbered records with a real Kafka client, notes which were acknowledged, and reads
// everything back to see that each of those is there once and in order.
package workload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/highwater-io/highwater/internal/testscale"
)

// Producer writes records 0, 1, 2, ... to partition 0 of a topic, acks=all and idempotent, at a steady pace.
type Producer struct {
	client *kgo.Client
	topic  string
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	acked   []bool // by number
	offsets map[uint64]int64
	count   int
	lastAck time.Time
	failed  error
}

// Start begins to produce, one record every interval.
func Start(seeds []string, topic string, interval time.Duration) (*Producer, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(seeds...), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0), kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.ProduceRequestTimeout(5*time.Second),
		kgo.UnknownTopicRetries(-1),
	)
	if err != nil {
		return nil, err
	}
	// The client takes a connection that ends at its very first answer for one that wants a password, and gives up all
	// records: nobody may be killed before it has its producer id.
	once, done := context.WithTimeout(context.Background(), testscale.Duration(30*time.Second))
	_, _, err = client.ProducerID(once)
	done()
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("get a producer id: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Producer{client: client, topic: topic, cancel: cancel, done: make(chan struct{}), offsets: map[uint64]int64{}}
	go p.run(ctx, interval)
	return p, nil
}

// value is a record's content: its number.
func value(number uint64) []byte { return binary.BigEndian.AppendUint64(nil, number) }

func (p *Producer) run(ctx context.Context, interval time.Duration) {
	defer close(p.done)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for number := uint64(0); ; number++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		p.mu.Lock()
		p.acked = append(p.acked, false)
		p.mu.Unlock()
		// Records wait in the client while nobody takes them; it sends them in order when somebody does.
		p.client.Produce(context.Background(), &kgo.Record{Topic: p.topic, Partition: 0, Value: value(number)}, func(r *kgo.Record, err error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if err != nil {
				p.failed = errors.Join(p.failed, fmt.Errorf("record %d: %w", number, err))
				return
			}
			p.acked[number] = true
			p.offsets[number] = r.Offset
			p.count++
			p.lastAck = time.Now()
		})
	}
}

// Acked says how many records were acknowledged and when the last one was.
func (p *Producer) Acked() (count int, last time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count, p.lastAck
}

// Stop ends producing and waits until every record that was begun is acknowledged or has failed.
func (p *Producer) Stop(ctx context.Context) error {
	p.cancel()
	<-p.done
	err := p.client.Flush(ctx)
	if err != nil {
		err = fmt.Errorf("records are still not acknowledged: %w", err)
	}
	p.client.Close()
	return err
}

// Report is what reading everything back showed.
type Report struct {
	Acked      int
	Read       int
	Lost       []uint64 // acknowledged and not there
	Duplicated []uint64
	Disordered []uint64 // read after a higher number
	Misplaced  []uint64 // at another offset than the acknowledgement said
	Failed     error    // what the client gave up on; such records may be there or not
	Records    []*kgo.Record
}

// Err is nil when nothing is wrong.
func (r Report) Err() error {
	if len(r.Lost)+len(r.Duplicated)+len(r.Disordered)+len(r.Misplaced) == 0 {
		return nil
	}
	return fmt.Errorf("lost %v, duplicated %v, out of order %v, at another offset than acknowledged %v", r.Lost, r.Duplicated, r.Disordered, r.Misplaced)
}

func (r Report) String() string {
	return fmt.Sprintf("acked=%d read=%d lost=%d duplicated=%d disordered=%d misplaced=%d",
		r.Acked, r.Read, len(r.Lost), len(r.Duplicated), len(r.Disordered), len(r.Misplaced))
}

// Verify reads the partition from its start to the end that it has when it begins, and compares.
func (p *Producer) Verify(ctx context.Context, seeds []string) (Report, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	report := Report{Acked: p.count, Failed: p.failed}
	records, err := ReadAll(ctx, seeds, p.topic)
	if err != nil {
		return report, err
	}
	report.Records = records
	return p.compare(report, records)
}

// compare says what of the acknowledged records is where it should be. The mutex is held.
func (p *Producer) compare(report Report, records []*kgo.Record) (Report, error) {
	report.Read = len(records)
	seen := make([]bool, len(p.acked))
	highest := -1
	for _, r := range records {
		if string(r.Value) == probeValue {
			continue
		}
		if len(r.Value) != 8 {
			return report, fmt.Errorf("offset %d holds %d bytes that nobody wrote", r.Offset, len(r.Value))
		}
		number := binary.BigEndian.Uint64(r.Value)
		switch {
		case number >= uint64(len(seen)):
			return report, fmt.Errorf("offset %d holds number %d, which nobody wrote", r.Offset, number)
		case seen[number]:
			report.Duplicated = append(report.Duplicated, number)
		case int(number) < highest:
			report.Disordered = append(report.Disordered, number)
		}
		if offset, ok := p.offsets[number]; ok && offset != r.Offset && !seen[number] {
			report.Misplaced = append(report.Misplaced, number)
		}
		seen[number] = true
		highest = max(highest, int(number))
	}
	for number, acked := range p.acked {
		if acked && !seen[number] {
			report.Lost = append(report.Lost, uint64(number))
		}
	}
	return report, nil
}

// ReadAll returns what partition 0 of a topic holds, from its start to the end that it has now.
func ReadAll(ctx context.Context, seeds []string, topic string) ([]*kgo.Record, error) {
	end, err := endOffset(ctx, seeds, topic)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		topic: {0: kgo.NewOffset().AtStart()},
	}))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var records []*kgo.Record
	for next := int64(0); next < end; {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return records, fmt.Errorf("read up to offset %d of %d: %w", next, end, errors.Join(ctx.Err(), fetches.Err()))
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset < end {
				records = append(records, r)
			}
			next = r.Offset + 1
		})
	}
	return records, nil
}
