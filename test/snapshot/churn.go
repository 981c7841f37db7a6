package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/highwater-io/highwater/internal/testscale"
)

// churn changes topics and their configs, and knows what each must be. Values are numbers with many zeros before them,
// which Kafka's brokers take: so a few topics make metadata of megabytes.
type churn struct {
	bootstrap func(context.Context) ([]string, error)
	client    *kgo.Client
	admin     *kadm.Client

	random *rand.Rand
	serial int
	brief  string // a topic that the next step deletes

	want     map[string]map[string]string // topic, key, value, as acknowledged
	requests int
	bytes    int64
}

const (
	ballastTopics = 12
	valueBytes    = 30_000 // below what a string of Kafka's records may have, 32,767
)

// numbered are topic configs that may be any number of 2^20 to 2^31.
var numbered = []string{
	"delete.retention.ms", "flush.ms", "index.interval.bytes", "max.message.bytes", "message.timestamp.after.max.ms",
	"retention.bytes", "retention.ms", "segment.bytes", "segment.index.bytes", "segment.jitter.ms", "segment.ms",
}

func newChurn(bootstrap func(context.Context) ([]string, error), random *rand.Rand) *churn {
	return &churn{bootstrap: bootstrap, random: random, want: map[string]map[string]string{}}
}

// connect begins anew with a client that knows where the nodes are now: a pod that is made again has another address,
// and after a few of those a client that learns nothing on the way knows none.
func (c *churn) connect(ctx context.Context) error {
	seeds, err := c.bootstrap(ctx)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(seeds...), kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.DialTimeout(2*time.Second),
	)
	if err != nil {
		return err
	}
	c.close()
	c.client, c.admin = client, kadm.NewClient(client)
	return nil
}

func (c *churn) close() {
	if c.client != nil {
		c.client.Close()
	}
}

// fill makes the topics, with all their configs.
func (c *churn) fill(ctx context.Context) error {
	for i := range ballastTopics {
		topic := fmt.Sprintf("ballast-%d", i)
		if err := c.create(ctx, topic, 3); err != nil {
			return err
		}
		c.want[topic] = map[string]string{}
		if err := c.set(ctx, topic, numbered); err != nil {
			return err
		}
	}
	return nil
}

// create makes a topic; one that is there was made by a request whose answer was lost.
func (c *churn) create(ctx context.Context, topic string, replicas int16) error {
	return c.try(ctx, func(ctx context.Context) error {
		_, err := c.admin.CreateTopic(ctx, 1, replicas, nil, topic)
		if errors.Is(err, kerr.TopicAlreadyExists) {
			err = nil
		}
		return err
	})
}

func (c *churn) remove(ctx context.Context, topic string) error {
	return c.try(ctx, func(ctx context.Context) error {
		_, err := c.admin.DeleteTopic(ctx, topic)
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			err = nil
		}
		return err
	})
}

// step sets some configs of one topic, and makes and deletes another one.
func (c *churn) step(ctx context.Context) error {
	keys := make([]string, 0, 4)
	for _, i := range c.random.Perm(len(numbered))[:cap(keys)] {
		keys = append(keys, numbered[i])
	}
	if err := c.set(ctx, fmt.Sprintf("ballast-%d", c.random.IntN(ballastTopics)), keys); err != nil {
		return err
	}
	if c.serial%16 != 0 {
		return nil
	}
	if c.brief != "" {
		if err := c.remove(ctx, c.brief); err != nil {
			return err
		}
	}
	c.brief = fmt.Sprintf("brief-%d", c.serial)
	return c.create(ctx, c.brief, 1)
}

func (c *churn) set(ctx context.Context, topic string, keys []string) error {
	var changes []kadm.AlterConfig
	values := map[string]string{}
	for _, key := range keys {
		value := fmt.Sprintf("%0*d", valueBytes, 1<<20+c.serial)
		c.serial++
		values[key] = value
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: &value})
	}
	err := c.try(ctx, func(ctx context.Context) error {
		resp, err := c.admin.AlterTopicConfigs(ctx, changes, topic)
		if err != nil {
			return err
		}
		return errors.Join(resp[0].Err)
	})
	if err != nil {
		return fmt.Errorf("set configs of %s: %w", topic, err)
	}
	for key, value := range values {
		c.want[topic][key] = value
		c.bytes += int64(len(value))
	}
	return nil
}

// try makes a request until it is taken: a leader may just be elected.
func (c *churn) try(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, testscale.Duration(30*time.Second))
	defer cancel()
	for {
		c.requests++
		once, done := context.WithTimeout(ctx, 5*time.Second)
		err := request(once)
		done()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if err := c.connect(ctx); err != nil {
			return err
		}
		timer := time.NewTimer(100 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}
