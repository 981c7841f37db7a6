// Package ident has the identifiers that every part of the engine speaks of: offsets, epochs, node ids, UUIDs
// and the instant that pure cores are given in place of a clock. It knows nobody.
package ident

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"strings"
	"time"
)

// Offset is a position in a log, counted in records. An end offset is exclusive: the next one to be written.
type Offset int64

// UnknownOffset stands where no offset is known, as in Kafka.
const UnknownOffset Offset = -1

// Epoch is a leader epoch of a partition or of the metadata quorum; it only rises.
type Epoch int32

// UnknownEpoch stands where no epoch is known, as in Kafka.
const UnknownEpoch Epoch = -1

// NodeID is a node's id: Kafka's broker.id, replica id and voter id. It is never used again within a cluster.
type NodeID int32

// NoNode is the id of nobody: the leader of a partition without leader, the replica id of an observer
// without a log and of a consumer.
const NoNode NodeID = -1

// Instant is a monotonic time in nanoseconds that the loops hand to the cores. Its zero is the start of the
// process (or of the simulation) and it says nothing about the calendar.
type Instant int64

// Never is the deadline of somebody who waits for nothing.
const Never Instant = 1<<63 - 1

// Add returns t moved by d, and Never when that is out of range.
func (t Instant) Add(d time.Duration) Instant {
	if t == Never || (d > 0 && t > Never-Instant(d)) {
		return Never
	}
	return t + Instant(d)
}

// Sub returns the time from u to t.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// UUID is a Kafka uuid: a topic id, directory id or incarnation id.
type UUID [16]byte

// Reserved uuids. MetadataTopicID is the topic id of __cluster_metadata. The first hundred are reserved by
// Kafka (KIP-858): a directory that is not yet known is UnassignedDirectory, one that failed LostDirectory.
var (
	ZeroUUID            = UUID{}
	MetadataTopicID     = UUID{15: 1}
	UnassignedDirectory = UUID{15: 1}
	LostDirectory       = UUID{15: 2}
)

// MetadataTopic is the name of the topic, of one partition, that holds the cluster's metadata log.
const MetadataTopic = "__cluster_metadata"

// IsReserved says whether u is one of the hundred that Kafka keeps for itself; such an id names no real thing.
func (u UUID) IsReserved() bool {
	for _, b := range u[:15] {
		if b != 0 {
			return false
		}
	}
	return u[15] < 100
}

// IsZero says whether u is the zero uuid.
func (u UUID) IsZero() bool { return u == UUID{} }

// Compare orders uuids by their bytes.
func (u UUID) Compare(v UUID) int { return bytes.Compare(u[:], v[:]) }

// String returns u as Kafka prints it: URL-safe base64 without padding, 22 characters.
func (u UUID) String() string { return base64.RawURLEncoding.EncodeToString(u[:]) }

// ParseUUID reads what String prints.
func ParseUUID(s string) (UUID, error) {
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(s, "="))
	if err != nil || len(raw) != 16 {
		return UUID{}, fmt.Errorf("uuid %q: want 16 bytes in URL-safe base64, 22 characters", s)
	}
	return UUID(raw), nil
}

// MarshalText makes a UUID a string in JSON and YAML.
func (u UUID) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (u *UUID) UnmarshalText(text []byte) error {
	parsed, err := ParseUUID(string(text))
	if err == nil {
		*u = parsed
	}
	return err
}

// TopicPartition names a partition by topic id, so that a topic deleted and made again is another one.
type TopicPartition struct {
	Topic UUID
	Index int32
}

// Compare orders partitions by topic id, then index.
func (p TopicPartition) Compare(q TopicPartition) int {
	if c := p.Topic.Compare(q.Topic); c != 0 {
		return c
	}
	return cmp.Compare(p.Index, q.Index)
}

// String is for logs and error messages.
func (p TopicPartition) String() string { return fmt.Sprintf("%s-%d", p.Topic, p.Index) }
