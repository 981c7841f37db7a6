package controller

import (
	"fmt"
	"time"

	"github.com/highwater-io/highwater/pkg/topicconfig"
)

// Random is where a controller draws topic ids and the starting points of placements from. *rand.PCG of
// math/rand/v2 is one; it is given seeded, so that a simulation repeats.
type Random interface{ Uint64() uint64 }

// Config is what a controller is made with. Zero fields get the values of the comments.
type Config struct {
	ClusterID string // what registrations must name
	Random    Random // required

	SessionTimeout    time.Duration // 3 s: how long a broker may be silent before it is fenced
	HeartbeatInterval time.Duration // 500 ms: how often brokers are expected
	MaxIdleInterval   time.Duration // 500 ms: how long the log stands still before a NoOp is written (KIP-835)
	BalanceInterval   time.Duration // 5 min: how often leadership goes back to preferred replicas and, where a topic allows it, to replicas out of sync; negative: never

	DefaultReplicationFactor int16                // 1: of topics that don't say
	DefaultNumPartitions     int32                // 1: of topics that don't say
	TopicDefaults            topicconfig.Defaults // for topics that set nothing; the nodes must have the same

	MaxRecords int // 10,000: how many records one decision may have; they are appended as one batch
	MaxBytes   int // 4 MiB: how large they may be together
}

func (c *Config) setDefaults() error {
	if c.Random == nil {
		return fmt.Errorf("controller config: Random is required")
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.SessionTimeout, 3 * time.Second},
		{&c.HeartbeatInterval, 500 * time.Millisecond},
		{&c.MaxIdleInterval, 500 * time.Millisecond},
		{&c.BalanceInterval, 5 * time.Minute},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.DefaultReplicationFactor == 0 {
		c.DefaultReplicationFactor = 1
	}
	if c.DefaultNumPartitions == 0 {
		c.DefaultNumPartitions = 1
	}
	if c.MaxRecords == 0 {
		c.MaxRecords = 10_000
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 4 << 20
	}
	switch {
	case c.SessionTimeout <= c.HeartbeatInterval:
		return fmt.Errorf("controller config: SessionTimeout %s must be longer than HeartbeatInterval %s", c.SessionTimeout, c.HeartbeatInterval)
	case c.HeartbeatInterval < 0 || c.MaxIdleInterval < 0:
		return fmt.Errorf("controller config: HeartbeatInterval %s and MaxIdleInterval %s must not be negative", c.HeartbeatInterval, c.MaxIdleInterval)
	case c.DefaultReplicationFactor < 1 || c.DefaultNumPartitions < 1:
		return fmt.Errorf("controller config: DefaultReplicationFactor %d and DefaultNumPartitions %d must be at least 1", c.DefaultReplicationFactor, c.DefaultNumPartitions)
	case c.MaxRecords < minRecords:
		return fmt.Errorf("controller config: MaxRecords %d must be at least %d", c.MaxRecords, minRecords)
	case c.MaxBytes < minBytes:
		return fmt.Errorf("controller config: MaxBytes %d must be at least %d", c.MaxBytes, minBytes)
	}
	if err := c.TopicDefaults.Validate(); err != nil {
		return fmt.Errorf("controller config: TopicDefaults: %w", err)
	}
	return nil
}

// The least that the limits must allow for the controller's own work to go on.
const (
	minRecords = 2 * spareRecords
	minBytes   = 2 * spareBytes
)
