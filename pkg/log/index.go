package log

import (
	"encoding/binary"
	"fmt"
	"math"
	"sort"
	"sync/atomic"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Sizes of Kafka's index entries: relative offset and position; timestamp and relative offset.
const (
	offsetEntryBytes = 8
	timeEntryBytes   = 12
)

// offsetEntry says that a batch that ends with the record base+rel, or begins there, starts at pos. Kafka notes
// the last offset of the batch that starts at pos.
type offsetEntry struct {
	rel uint32
	pos uint32
}

// timeEntry says that no record up to base+rel has a timestamp above ts.
type timeEntry struct {
	ts  int64
	rel uint32
}

// indexes are the two sparse indexes of a segment, in memory. The owner appends; readers look up in what was
// published last. Entries are only ever added behind what is published, so they can share the array.
type indexes struct {
	offsets atomic.Pointer[[]offsetEntry]
	times   atomic.Pointer[[]timeEntry]
}

func newIndexes(offsets []offsetEntry, times []timeEntry) *indexes {
	x := &indexes{}
	x.offsets.Store(&offsets)
	x.times.Store(&times)
	return x
}

// bytes is about how much memory they take.
func (x *indexes) bytes() int64 {
	const entry, fixed = 16, 200 // a time entry is padded
	return int64(cap(*x.offsets.Load()))*offsetEntryBytes + int64(cap(*x.times.Load()))*entry + fixed
}

func (x *indexes) addOffset(e offsetEntry) {
	entries := *x.offsets.Load()
	if n := len(entries); n > 0 && (e.rel <= entries[n-1].rel || e.pos <= entries[n-1].pos) {
		return
	}
	entries = append(entries, e)
	x.offsets.Store(&entries)
}

// addTime notes a new largest timestamp. Entries must rise in both; one that doesn't says nothing new.
func (x *indexes) addTime(e timeEntry) {
	entries := *x.times.Load()
	if n := len(entries); e.ts < 0 || n > 0 && (e.ts <= entries[n-1].ts || e.rel <= entries[n-1].rel) {
		return
	}
	entries = append(entries, e)
	x.times.Store(&entries)
}

// truncate drops what points at or beyond a relative offset or position. The arrays are copied, because a
// reader may still look at the old ones when they are written again.
func (x *indexes) truncate(rel uint32, pos uint32) {
	offsets := *x.offsets.Load()
	keep := sort.Search(len(offsets), func(i int) bool { return offsets[i].rel >= rel || offsets[i].pos >= pos })
	kept := append([]offsetEntry(nil), offsets[:keep]...)
	x.offsets.Store(&kept)
	times := *x.times.Load()
	keep = sort.Search(len(times), func(i int) bool { return times[i].rel >= rel })
	keptTimes := append([]timeEntry(nil), times[:keep]...)
	x.times.Store(&keptTimes)
}

// floor returns a position at or before the batch that holds the record base+rel.
func (x *indexes) floor(rel uint32) int64 {
	entries := *x.offsets.Load()
	i := sort.Search(len(entries), func(i int) bool { return entries[i].rel > rel })
	if i == 0 {
		return 0
	}
	return int64(entries[i-1].pos)
}

// floorPos returns the largest known batch start that is not beyond pos.
func (x *indexes) floorPos(pos int64) int64 {
	entries := *x.offsets.Load()
	i := sort.Search(len(entries), func(i int) bool { return int64(entries[i].pos) > pos })
	if i == 0 {
		return 0
	}
	return int64(entries[i-1].pos)
}

// floorTime returns the last entry before which, and at which, every record is older than ts.
func (x *indexes) floorTime(ts int64) timeMark {
	entries := *x.times.Load()
	i := sort.Search(len(entries), func(i int) bool { return entries[i].ts >= ts })
	if i == 0 {
		return timeMark{}
	}
	return timeMark{timeEntry: entries[i-1], known: true}
}

func (x *indexes) encodeOffsets() []byte {
	entries := *x.offsets.Load()
	out := make([]byte, 0, len(entries)*offsetEntryBytes)
	for _, e := range entries {
		out = binary.BigEndian.AppendUint32(out, e.rel)
		out = binary.BigEndian.AppendUint32(out, e.pos)
	}
	return out
}

func (x *indexes) encodeTimes() []byte {
	entries := *x.times.Load()
	out := make([]byte, 0, len(entries)*timeEntryBytes)
	for _, e := range entries {
		out = binary.BigEndian.AppendUint64(out, uint64(e.ts))
		out = binary.BigEndian.AppendUint32(out, e.rel)
	}
	return out
}

// decodeOffsets reads an index file of a segment of so many bytes. Kafka leaves zeros behind the entries of an
// index that it did not close; they end the list.
func decodeOffsets(data []byte, segmentBytes int64) ([]offsetEntry, error) {
	if len(data)%offsetEntryBytes != 0 {
		return nil, fmt.Errorf("offset index has %d bytes, not a multiple of %d", len(data), offsetEntryBytes)
	}
	var entries []offsetEntry
	for ; len(data) > 0; data = data[offsetEntryBytes:] {
		e := offsetEntry{binary.BigEndian.Uint32(data), binary.BigEndian.Uint32(data[4:])}
		if e == (offsetEntry{}) && len(entries) > 0 && allZero(data) {
			break
		}
		if e.rel > math.MaxInt32 || int64(e.pos) >= max(segmentBytes, 1) {
			return nil, fmt.Errorf("offset index entry %d points at %d of %d bytes", len(entries), e.pos, segmentBytes)
		}
		if n := len(entries); n > 0 && (e.rel <= entries[n-1].rel || e.pos <= entries[n-1].pos) {
			return nil, fmt.Errorf("offset index entry %d does not rise", n)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func decodeTimes(data []byte) ([]timeEntry, error) {
	if len(data)%timeEntryBytes != 0 {
		return nil, fmt.Errorf("time index has %d bytes, not a multiple of %d", len(data), timeEntryBytes)
	}
	var entries []timeEntry
	for ; len(data) > 0; data = data[timeEntryBytes:] {
		e := timeEntry{int64(binary.BigEndian.Uint64(data)), binary.BigEndian.Uint32(data[8:])}
		if e == (timeEntry{}) && len(entries) > 0 && allZero(data) {
			break
		}
		if n := len(entries); e.rel > math.MaxInt32 || e.ts < 0 ||
			n > 0 && (e.ts < entries[n-1].ts || e.rel < entries[n-1].rel) {
			return nil, fmt.Errorf("time index entry %d does not rise", n)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func allZero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}

func relative(base, o ident.Offset) uint32 { return uint32(o - base) }
