package main

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The few of Apache Kafka's metadata records that tell what the churn did, read by hand from the schemas in its source,
// so that this program shares no decoder with what it judges.
const (
	typeTopic       = 2
	typeConfig      = 4
	typeRemoveTopic = 9
	resourceTopic   = 2
)

// configs is what topics are set to: topic, key, value.
type configs struct {
	values map[string]map[string]string
	names  map[[16]byte]string
}

func newConfigs() *configs {
	return &configs{values: map[string]map[string]string{}, names: map[[16]byte]string{}}
}

func (c *configs) set(topic, key, value string) {
	if c.values[topic] == nil {
		c.values[topic] = map[string]string{}
	}
	c.values[topic][key] = value
}

// replayBatches applies whole batches, those of a snapshot or of the log.
func (c *configs) replayBatches(data []byte) error {
	for len(data) > 0 {
		b, rest, ok := nextBatch(data)
		if !ok {
			return fmt.Errorf("%d bytes are no whole batch", len(data))
		}
		if err := c.replay(b); err != nil {
			return fmt.Errorf("batch at offset %d: %w", b.base, err)
		}
		data = rest
	}
	return nil
}

func (c *configs) replay(raw rawBatch) error {
	const compressed, control = 7, 0x20
	var b kmsg.RecordBatch
	if err := b.ReadFrom(raw.raw); err != nil {
		return err
	}
	if b.Attributes&control != 0 {
		return nil
	}
	if b.Attributes&compressed != 0 {
		return errors.New("compressed metadata")
	}
	records := b.Records
	for range b.NumRecords {
		head := kbin.Reader{Src: records}
		length := int(head.Varint())
		whole := len(records) - len(head.Src) + length
		if head.Complete() != nil || length < 0 || whole > len(records) {
			return errors.New("a record runs over its batch")
		}
		var r kmsg.Record
		if err := r.ReadFrom(records[:whole]); err != nil {
			return err
		}
		records = records[whole:]
		if err := c.apply(r.Value); err != nil {
			return err
		}
	}
	return nil
}

func (c *configs) apply(value []byte) error {
	r := kbin.Reader{Src: value}
	if frame := r.Uvarint(); frame != 1 {
		return fmt.Errorf("frame version %d", frame)
	}
	kind, _ := r.Uvarint(), r.Uvarint()
	switch kind {
	case typeTopic:
		name := r.CompactString()
		c.names[r.Uuid()] = name
	case typeRemoveTopic:
		id := r.Uuid()
		delete(c.values, c.names[id])
		delete(c.names, id)
	case typeConfig:
		resource, topic, key, value := r.Int8(), r.CompactString(), r.CompactString(), r.CompactNullableString()
		switch {
		case resource != resourceTopic:
		case value == nil:
			delete(c.values[topic], key)
		default:
			c.set(topic, key, *value)
		}
	}
	return r.Complete()
}

// differ says where the configs of the topics in want are others.
func (c *configs) differ(want map[string]map[string]string) error {
	for topic, keys := range want {
		for key, value := range keys {
			if got, ok := c.values[topic][key]; got != value {
				return fmt.Errorf("%s of topic %s is %.20s… (%t), acknowledged was %.20s…", key, topic, last(got), ok, last(value))
			}
		}
		if len(c.values[topic]) != len(keys) {
			return fmt.Errorf("topic %s has %d configs, acknowledged were %d", topic, len(c.values[topic]), len(keys))
		}
	}
	return nil
}

// last is what tells values apart: they begin with zeros.
func last(s string) string { return s[max(0, len(s)-16):] }
