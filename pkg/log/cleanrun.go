package log

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strings"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// Clean is a compaction between BeginClean and EndClean.
type Clean struct {
	log      *Log // for its name in errors, and the making of segments
	fsys     vfs.FS
	dir      string
	settings Settings
	options  CleanOptions
	nowMs    int64

	segments    []*segment // from the log's first on
	truncations int
	// written are the last batches of each producer that is known, the oldest first, wherever they are; producers is
	// the last one below Stats.To, and unsure those that have one there, perhaps, in what was compacted before.
	written   map[int64][]producerEnd
	producers map[int64]producerEnd
	unsure    map[int64]bool
	// epochStarts are where leader epochs begin: the first batch of each stays, at least without records. A follower knows
	// an epoch by the batches that it gets: if it took a later one for the first, what another replica has there of the
	// epoch before, and nobody committed, would pass for the same log.
	epochStarts map[ident.Offset]bool

	rewriter batch.Rewriter
	groups   []*cleanedGroup
	bytes    int // not yet told to Pace

	// Stats say what the run did; they are whole once Run has returned.
	Stats CleanStats
}

// producerEnd is the last batch of a producer.
type producerEnd struct {
	last  ident.Offset
	epoch int16
}

// CleanStats say what a compaction did.
type CleanStats struct {
	// From and To are the dirty section: what lies below To is compacted now.
	From, To ident.Offset
	// SegmentsBefore were looked at; SegmentsAfter are in their place.
	SegmentsBefore, SegmentsAfter int
	BytesBefore, BytesAfter       int64
	BytesRead, BytesWritten       int64
	// Records were in the segments that were rewritten or looked at; Removed of them are gone.
	Records, Removed int64
	// Keyless of those removed had no key.
	Keyless int64
	// Undecodable batches were left as they are: they are whole, but not even a consumer could read them.
	Undecodable int
	// MapFull: the offset map had no room for all that is dirty, so To is lower than it could be.
	MapFull bool
}

// Run does the work; it may take long. It may run beside everything the owner does, and beside nothing of itself.
// ErrCorrupt says that records which must be there and whole are not; ErrOffsetMapFull that the map is too small.
func (c *Clean) Run() error {
	c.options.Map.reset()
	defer c.options.Map.reset()
	if err := c.removeLeftovers(); err != nil {
		return err
	}
	if err := c.noteKeys(); err != nil {
		return err
	}
	c.noteProducers()
	groups, err := c.group()
	if err != nil {
		return err
	}
	for _, sources := range groups {
		if err := c.rewrite(sources); err != nil {
			return err
		}
	}
	if err := c.pace(0, true); err != nil || len(c.groups) == 0 {
		return err
	}
	return c.fsys.SyncDir(c.dir)
}

// removeLeftovers makes sure that nothing is left of a run that was given up: after a crash it would say that this one
// had not come far enough.
func (c *Clean) removeLeftovers() error {
	entries, err := c.fsys.ReadDir(c.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), cleanedSuffix) {
			if err := c.fsys.Remove(filepath.Join(c.dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Clean) pace(bytes int, all bool) error {
	c.bytes += bytes
	if c.options.Pace == nil || c.bytes < scanBytes && !all {
		return nil
	}
	told := c.bytes
	c.bytes = 0
	return c.options.Pace(told)
}

// each calls f for every batch of a segment, after checking it. last says that it is the segment's last.
func (c *Clean) each(s *segment, f func(raw []byte, h batch.Header, pos int64, last bool) error) error {
	file, err := s.acquire()
	if errors.Is(err, errSegmentGone) {
		return errOvertaken
	}
	if err != nil {
		return err
	}
	defer file.release()
	r := batchReader{f: file.file, size: s.size, buf: make([]byte, cleanBytes)}
	for pos := int64(0); pos < s.size; {
		raw, h, err := r.at(pos)
		if err == nil {
			err = batch.VerifyCRC(raw, h)
		}
		if err != nil {
			return c.log.readError(s, fmt.Errorf("compaction at position %d: %w", pos, err))
		}
		c.Stats.BytesRead += int64(len(raw))
		if err := c.pace(len(raw), false); err != nil {
			return err
		}
		next := pos + int64(len(raw))
		if err := f(raw, h, pos, next == s.size); err != nil {
			return err
		}
		pos = next
	}
	return nil
}

// cleanBytes is how much is read and written at once.
const cleanBytes = 1 << 20

// errMapFull ends the noting of keys.
var errMapFull = errors.New("the offset map is full")

// noteProducers decides which batch of each producer keeps its offsets and sequence numbers, whatever becomes of its
// records: the last one below Stats.To. Those behind may not be flushed, and when a crash takes them the producer goes on
// from there.
func (c *Clean) noteProducers() {
	dirty := c.producers
	c.producers, c.unsure = map[int64]producerEnd{}, map[int64]bool{}
	for id, ends := range c.written {
		last, ok := dirty[id]
		ok = ok && last.last < c.Stats.To
		for _, end := range ends {
			if end.last < c.Stats.To {
				last, ok = end, true
			}
		}
		if ok {
			c.producers[id] = last
		} else {
			c.unsure[id] = true
		}
	}
}

// noteKeys fills the map from the dirty section. When it is full, the section ends there, and with it what is
// compacted.
func (c *Clean) noteKeys() error {
	m, from := c.options.Map, c.Stats.From
	mapped := 0
	for i, s := range c.segments {
		if s.next <= from {
			continue
		}
		err := c.each(s, func(raw []byte, h batch.Header, _ int64, _ bool) error {
			if h.LastOffset() < from || h.IsControl() {
				return nil
			}
			if !h.IsTransactional() && !m.fits(int(h.NumRecords)) {
				c.Stats.To, c.Stats.MapFull = h.BaseOffset, true
				return errMapFull
			}
			if h.HasProducer() {
				c.producers[h.ProducerID] = producerEnd{h.LastOffset(), h.ProducerEpoch}
			}
			if h.IsTransactional() {
				return nil
			}
			mapped++
			return c.decoded(c.rewriter.Walk(raw, h, func(r *batch.RecordView) error {
				if r.Key != nil && r.Offset >= from {
					m.put(r.Key, r.Offset)
				}
				return nil
			}))
		})
		if errors.Is(err, errMapFull) {
			if mapped == 0 {
				return fmt.Errorf("%w: batch at offset %d, room for %d keys: give the cleaner more memory", ErrOffsetMapFull, c.Stats.To, m.Capacity())
			}
			c.segments = c.segments[:i+1]
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// decoded forgives a batch whose checksum is right that its records can't be decoded: so its producer wrote them.
func (c *Clean) decoded(err error) error {
	if errors.Is(err, batch.ErrCorrupt) || errors.Is(err, batch.ErrCompression) {
		c.Stats.Undecodable++
		return nil
	}
	return err
}

// group puts the segments together that become one: as many as fit into one by their old sizes, Kafka's rule.
func (c *Clean) group() ([][]*segment, error) {
	var groups [][]*segment
	var bytes, indexBytes int64
	alone := false
	for _, s := range c.segments {
		x, err := s.index(s.size)
		if err != nil {
			return nil, err
		}
		entries := int64(max(len(*x.offsets.Load())*offsetEntryBytes, len(*x.times.Load())*timeEntryBytes))
		aborts, err := c.hasAborts(s)
		if err != nil {
			return nil, err
		}
		if n := len(groups); n > 0 && !alone && !aborts && bytes+s.size <= c.settings.SegmentBytes &&
			indexBytes+entries <= c.settings.IndexBytes && s.next-1-groups[n-1][0].base <= math.MaxInt32 {
			groups[n-1] = append(groups[n-1], s)
			bytes, indexBytes = bytes+s.size, indexBytes+entries
			continue
		}
		groups = append(groups, []*segment{s})
		bytes, indexBytes, alone = s.size, entries, aborts
	}
	return groups, nil
}

// hasAborts says whether Kafka keeps an index of aborted transactions beside the segment. That index stays right, its
// offsets being absolute, while the segment stays one.
func (c *Clean) hasAborts(s *segment) (bool, error) {
	info, err := c.fsys.Stat(s.path(abortsSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Size() > 0, err
}

// rewrite writes one group's records that stay.
func (c *Clean) rewrite(sources []*segment) error {
	g := c.newGroup(sources)
	c.Stats.SegmentsBefore += len(sources)
	c.Stats.SegmentsAfter++
	for i, s := range sources {
		c.Stats.BytesBefore += s.size
		err := c.each(s, func(raw []byte, h batch.Header, pos int64, last bool) error {
			kept, err := c.filter(raw, h, last && i == len(sources)-1)
			if err != nil {
				return err
			}
			return g.add(raw, kept, pos)
		})
		if err != nil {
			return err
		}
	}
	return g.finish()
}

// filter returns what is kept of a batch, nil for nothing.
func (c *Clean) filter(raw []byte, h batch.Header, lastOfGroup bool) ([]byte, error) {
	c.Stats.Records += int64(h.NumRecords)
	if h.IsControl() || h.BaseOffset >= c.Stats.To {
		return raw, nil
	}
	end, known := c.producers[h.ProducerID]
	isLast := known && end == producerEnd{h.LastOffset(), h.ProducerEpoch} || c.unsure[h.ProducerID]
	horizon, hasHorizon := h.DeleteHorizon()
	deletes := hasHorizon && c.nowMs >= horizon && !h.IsTransactional()
	keyless := int64(0)
	res, err := c.rewriter.Rewrite(raw, h, batch.Filter{
		DeleteHorizonMs: c.nowMs + min(c.settings.Compaction.DeleteRetentionMs, math.MaxInt64-c.nowMs),
		KeepEmpty:       lastOfGroup || isLast || c.epochStarts[h.BaseOffset],
		Keep: func(r *batch.RecordView) bool {
			if r.Key == nil {
				keyless++
				return false
			}
			if latest, ok := c.options.Map.latest(r.Key); ok && latest > r.Offset {
				return false
			}
			return r.HasValue || !deletes || r.Offset >= c.Stats.From
		},
	})
	if err != nil {
		return raw, c.decoded(err)
	}
	c.Stats.Keyless += keyless
	c.Stats.Removed += int64(res.Records - res.Kept)
	return res.Batch, nil
}
