package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// flushTimeout bounds how long records that were sent before the end may take to be acknowledged.
const flushTimeout = 2 * time.Minute

// report is what a load knows of the records that it sent: they are numbered from 0.
type report struct {
	Run string `json:"run"`
	// Acked is how many were acknowledged by all in-sync replicas.
	Acked int64 `json:"acked"`
	// Failed is how many the client gave up, with the last error.
	Failed    int64  `json:"failed"`
	LastError string `json:"lastError,omitempty"`
	// Misplaced is how many got an offset that is not behind that of the record before.
	Misplaced int64 `json:"misplaced"`
	// FirstOffset and LastOffset of acknowledged records.
	FirstOffset int64 `json:"firstOffset"`
	LastOffset  int64 `json:"lastOffset"`
	// LongestGapMillis is the longest time without an acknowledgement.
	LongestGapMillis int64 `json:"longestGapMillis"`
}

// load sends numbered records, acks=all and idempotent, until it is told to end; then it waits for what is under way
// and prints a report, which is the last line of its output. A line each second says how it goes.
func load(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	var t target
	t.bind(flags)
	rate := flags.Int("rate", 200, "records a second")
	if err := flags.Parse(args); err != nil {
		return err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(t.brokers),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerLinger(5*time.Millisecond),
		kgo.MaxBufferedRecords(100_000),
		kgo.MetadataMinAge(250*time.Millisecond),
		kgo.MetadataMaxAge(5*time.Second),
		kgo.DialTimeout(3*time.Second),
		kgo.ProduceRequestTimeout(5*time.Second),
		kgo.RequestTimeoutOverhead(5*time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 250 * time.Millisecond }),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil)),
	)
	if err != nil {
		return err
	}
	defer client.Close()

	var mu sync.Mutex
	r := report{Run: t.run, FirstOffset: -1, LastOffset: -1}
	last := time.Now()
	acked := func(record *kgo.Record, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			r.Failed++
			r.LastError = err.Error()
			return
		}
		r.LongestGapMillis = max(r.LongestGapMillis, time.Since(last).Milliseconds())
		last = time.Now()
		if record.Offset <= r.LastOffset {
			r.Misplaced++
		}
		if r.FirstOffset < 0 {
			r.FirstOffset = record.Offset
		}
		r.Acked++
		r.LastOffset = record.Offset
	}
	tell := func() {
		mu.Lock()
		defer mu.Unlock()
		line, _ := json.Marshal(r) // plain numbers and strings
		fmt.Println(string(line))
	}

	tick := time.NewTicker(time.Second / time.Duration(*rate))
	defer tick.Stop()
	each := time.NewTicker(time.Second)
	defer each.Stop()
	for seq := int64(0); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-each.C:
			tell()
		case <-tick.C:
			// A context of its own: records under way at the end are waited for and not dropped.
			client.Produce(context.WithoutCancel(ctx), numbered(t, seq), acked)
			seq++
		}
	}
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	if err := client.Flush(flush); err != nil {
		return fmt.Errorf("records are not acknowledged %v after the last was sent: %w", flushTimeout, err)
	}
	tell()
	return nil
}

// numbered makes record seq of the run. Its value can be told from any other's and says if it was changed.
func numbered(t target, seq int64) *kgo.Record {
	return &kgo.Record{Topic: t.topic, Partition: int32(t.partition), Key: []byte(t.run), Value: []byte(value(t.run, seq))}
}

func value(run string, seq int64) string {
	return fmt.Sprintf("%s/%d/%08x", run, seq, uint32(seq)*2654435761)
}
