package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Consumer reads partition 0 of a topic while it is written, and notes what it was given. What a consumer has read
// must never be taken back.
type Consumer struct {
	client *kgo.Client
	cancel context.CancelFunc
	done   chan struct{}

	// These belong to run until done is closed.
	values [][]byte // by offset
	err    error
}

// StartConsumer begins to read at the start of the partition, which must be offset 0.
func StartConsumer(seeds []string, topic string) (*Consumer, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Consumer{client: client, cancel: cancel, done: make(chan struct{})}
	go c.run(ctx)
	return c, nil
}

func (c *Consumer) run(ctx context.Context) {
	defer close(c.done)
	for ctx.Err() == nil {
		fetches := c.client.PollFetches(ctx)
		fetches.EachRecord(func(r *kgo.Record) { c.note(r) })
		fetches.EachError(func(_ string, _ int32, err error) {
			// The client itself tries again after what passes; data loss it reports.
			var lost *kgo.ErrDataLoss
			if errors.As(err, &lost) {
				c.err = errors.Join(c.err, err)
			}
		})
	}
}

// note keeps a record, which must come at the next offset: nothing is skipped, and nothing comes twice with another
// content.
func (c *Consumer) note(r *kgo.Record) {
	switch next := int64(len(c.values)); {
	case r.Offset == next:
		c.values = append(c.values, r.Value)
	case r.Offset > next:
		c.err = errors.Join(c.err, fmt.Errorf("a consumer was given offset %d after %d", r.Offset, next-1))
		c.values = append(c.values, make([][]byte, r.Offset-next)...)
		c.values = append(c.values, r.Value)
	case !bytes.Equal(r.Value, c.values[r.Offset]):
		c.err = errors.Join(c.err, fmt.Errorf("a consumer was given offset %d twice, with different records", r.Offset))
	}
}

// Stop ends reading and says how many records were read and which of them are not in the partition now, whose
// content is given.
func (c *Consumer) Stop(now []*kgo.Record) (read int, err error) {
	c.cancel()
	<-c.done
	c.client.Close()
	return len(c.values), errors.Join(c.err, retracted(c.values, now))
}

// retracted names the offsets at which something else is now than was read before.
func retracted(values [][]byte, now []*kgo.Record) error {
	at := make(map[int64][]byte, len(now))
	for _, r := range now {
		at[r.Offset] = r.Value
	}
	var gone []int
	for offset, value := range values {
		if kept, ok := at[int64(offset)]; value != nil && (!ok || !bytes.Equal(kept, value)) {
			gone = append(gone, offset)
		}
	}
	if len(gone) > 0 {
		return fmt.Errorf("what a consumer had read was taken back at offsets %v", gone)
	}
	return nil
}
