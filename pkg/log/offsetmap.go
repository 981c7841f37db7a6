package log

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"

	"github.com/highwater-io/highwater/pkg/ident"
)

// OffsetMap holds the last offset of each key of what a compaction goes through. It takes no more memory than it was
// made for, and for a moment half as much again while it grows. It keeps no keys but 16 bytes of their SHA-256: two
// keys of the same hash would be one to the cleaner, and the older record would be lost. With a million million keys in
// one log the odds of that are below one to 10^14, and nobody knows how to make two such keys on purpose; Kafka's map
// rests on MD5, for which that is known. Not safe for concurrent use.
type OffsetMap struct {
	slots    []slot
	used     int
	maxSlots int
}

// slot is free while its offset is 0: that is kept one up.
type slot struct {
	hash   keyHash
	offset int64
}

type keyHash [2]uint64

const (
	slotBytes = 24
	minSlots  = 1 << 10
)

// NewOffsetMap makes a map that takes at most maxBytes, or 24 KiB when that is more (log.cleaner.dedupe.buffer.size).
func NewOffsetMap(maxBytes int64) *OffsetMap {
	return &OffsetMap{maxSlots: int(max(minSlots, maxBytes/slotBytes))}
}

// Capacity is how many keys it can hold.
func (m *OffsetMap) Capacity() int { return m.maxSlots / 4 * 3 }

// reset empties the map. Memory beyond the smallest goes back: a compaction is rare, and the next one may need little.
func (m *OffsetMap) reset() {
	m.used = 0
	if len(m.slots) != minSlots {
		m.slots = nil
		return
	}
	clear(m.slots)
}

// fits says whether so many further keys have room.
func (m *OffsetMap) fits(keys int) bool { return m.used+keys <= m.Capacity() }

// put notes a record; offsets rise.
func (m *OffsetMap) put(key []byte, o ident.Offset) {
	if m.used >= len(m.slots)/4*3 {
		m.grow()
	}
	h := hashKey(key)
	s := find(m.slots, h)
	if s.offset == 0 {
		m.used++
	}
	s.hash, s.offset = h, int64(o)+1
}

// latest returns the last offset that was put for the key.
func (m *OffsetMap) latest(key []byte) (ident.Offset, bool) {
	if m.used == 0 {
		return 0, false
	}
	s := find(m.slots, hashKey(key))
	return ident.Offset(s.offset - 1), s.offset != 0
}

func (m *OffsetMap) grow() {
	old := m.slots
	m.slots = make([]slot, min(m.maxSlots, max(minSlots, 2*len(old))))
	for _, s := range old {
		if s.offset != 0 {
			*find(m.slots, s.hash) = s
		}
	}
}

// find returns the slot of a hash, or the free one that it would get. One in four at least is free.
func find(slots []slot, h keyHash) *slot {
	i, _ := bits.Mul64(h[0], uint64(len(slots)))
	for {
		s := &slots[i]
		if s.offset == 0 || s.hash == h {
			return s
		}
		if i++; i == uint64(len(slots)) {
			i = 0
		}
	}
}

func hashKey(key []byte) keyHash {
	sum := sha256.Sum256(key)
	return keyHash{binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])}
}
