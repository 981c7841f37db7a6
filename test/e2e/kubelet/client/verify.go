package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// verdict is what verify found of a run's records.
type verdict struct {
	Run string `json:"run"`
	// Read is how many of the run's records were read, Other how many of other runs.
	Read  int64 `json:"read"`
	Other int64 `json:"other"`
	// Missing is how many of the acknowledged were not there; Duplicate, Misplaced and Changed speak of all that was.
	Missing   int64 `json:"missing"`
	Duplicate int64 `json:"duplicate"`
	Misplaced int64 `json:"misplaced"`
	Changed   int64 `json:"changed"`
	// EndOffset is where reading ended: the high watermark when it began.
	EndOffset int64 `json:"endOffset"`
}

// verify reads the whole partition and checks that each acknowledged record of the run is there once and in order.
func verify(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("verify", flag.ContinueOnError)
	var t target
	t.bind(flags)
	acked := flags.Int64("acked", 0, "records 0 to acked-1 of the run were acknowledged")
	timeout := flags.Duration("timeout", 90*time.Second, "give up after")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(t.brokers),
		kgo.MetadataMinAge(250*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.topic: {int32(t.partition): kgo.NewOffset().AtStart()}}),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil)),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	end, err := endOffset(ctx, client, t)
	if err != nil {
		return err
	}

	v := verdict{Run: t.run, EndOffset: end}
	next, lastOffset := int64(0), int64(-1)
	for lastOffset < end-1 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("read at offset %d of %d: %w", lastOffset+1, end, err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			if record.Offset <= lastOffset {
				v.Misplaced++
			}
			lastOffset = record.Offset
			if string(record.Key) != t.run {
				v.Other++
				return
			}
			v.Read++
			next = v.take(string(record.Value), next)
		})
	}
	v.Missing += max(0, *acked-next)
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	if v.Missing+v.Duplicate+v.Misplaced+v.Changed > 0 {
		return fmt.Errorf("records are missing, twice, out of order or changed: %s", line)
	}
	return nil
}

// take judges one record, where next is the number that should come, and returns the number that should come after it.
func (v *verdict) take(text string, next int64) int64 {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		v.Changed++
		return next
	}
	seq, err := strconv.ParseInt(parts[1], 10, 64)
	switch {
	case err != nil || value(v.Run, seq) != text:
		v.Changed++
		return next
	case seq < next:
		// Seen, or come too late: the gap that it left was counted as missing.
		v.Duplicate++
		return next
	default:
		v.Missing += seq - next
		return seq + 1
	}
}

// endOffset asks until there is an answer: the partition may have no leader for a moment.
func endOffset(ctx context.Context, client *kgo.Client, t target) (int64, error) {
	admin := kadm.NewClient(client)
	for {
		var last error
		ends, err := admin.ListEndOffsets(ctx, t.topic)
		if err == nil {
			end, found := ends.Lookup(t.topic, int32(t.partition))
			switch {
			case !found:
				last = fmt.Errorf("topic %s has no partition %d", t.topic, t.partition)
			case end.Err != nil:
				last = end.Err
			default:
				return end.Offset, nil
			}
		} else {
			last = err
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("end offset of %s/%d: %w", t.topic, t.partition, last)
		case <-time.After(250 * time.Millisecond):
		}
	}
}
