package log

import (
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// cleanedGroup is the segment that a group of segments becomes, while it is being written: to files with the suffix
// .cleaned, until EndClean exchanges them.
type cleanedGroup struct {
	clean   *Clean
	sources []*segment
	extent  *segment // of what is kept, with its indexes
	indexes *indexes

	// file is nil while all of a single segment stays as it is: then there is nothing to be written.
	file    vfs.File
	written int64
	buf     []byte
}

func (c *Clean) newGroup(sources []*segment) *cleanedGroup {
	extent := &segment{fsys: c.fsys, dir: c.dir, base: sources[0].base, next: sources[0].base, maxTS: -1, interval: c.settings.IndexIntervalBytes}
	return &cleanedGroup{clean: c, sources: sources, extent: extent, indexes: newIndexes(nil, nil)}
}

func (g *cleanedGroup) path(suffix string) string { return g.extent.path(suffix) }

// add takes what is kept of the batch that is at pos of its segment.
func (g *cleanedGroup) add(raw, kept []byte, pos int64) error {
	same := len(kept) == len(raw) && &kept[0] == &raw[0]
	if g.file == nil && (!same || len(g.sources) > 1) {
		if err := g.begin(pos); err != nil {
			return err
		}
	}
	if len(kept) == 0 {
		return nil
	}
	h, err := batch.ParseHeader(kept)
	if err != nil {
		return fmt.Errorf("rewritten batch at offset %d: %w", g.extent.next, err)
	}
	at := g.extent.size
	if at+int64(len(kept)) > math.MaxInt32 {
		// Compression may have been better before. Nothing is lost by leaving the segment as it is.
		return fmt.Errorf("%w: segment %d would be larger than before when compacted, beyond 2 GiB", ErrTooLarge, g.extent.base)
	}
	g.extent.note(g.indexes, h, at)
	if g.file == nil {
		return nil
	}
	if len(g.buf)+len(kept) > cap(g.buf) {
		if err := g.flush(); err != nil {
			return err
		}
	}
	g.buf = append(g.buf, kept...)
	return nil
}

// hasRoom says whether the volume has room for all that the group may need and some more for the appends of the
// meantime. A full disk would take all replicas on it out of service, a compaction can wait.
func (g *cleanedGroup) hasRoom() error {
	space, err := vfs.SpaceOf(g.clean.fsys, g.clean.dir)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	need := space.TotalBytes/20 + g.clean.options.MinFreeBytes
	for _, s := range g.sources {
		need += s.size
	}
	if space.FreeBytes < need {
		return fmt.Errorf("%w: %d bytes are free, %d are wanted", ErrNoRoom, space.FreeBytes, need)
	}
	return nil
}

// begin makes the file, with what was kept up to the first change.
func (g *cleanedGroup) begin(upTo int64) error {
	if err := g.hasRoom(); err != nil {
		return err
	}
	f, err := g.clean.fsys.OpenFile(g.path(logSuffix+cleanedSuffix), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	g.file = f
	g.buf = make([]byte, 0, cleanBytes)
	g.clean.groups = append(g.clean.groups, g)
	if len(g.sources) > 1 {
		return nil
	}
	s := g.sources[0]
	h, err := s.acquire()
	if errors.Is(err, errSegmentGone) {
		return errOvertaken
	}
	if err != nil {
		return err
	}
	defer h.release()
	for pos := int64(0); pos < upTo; pos = g.written {
		g.buf = g.buf[:min(upTo-pos, cleanBytes)]
		if err := readFull(h.file, g.buf, pos); err != nil {
			return err
		}
		if err := g.flush(); err != nil {
			return err
		}
	}
	return nil
}

func (g *cleanedGroup) flush() error {
	if len(g.buf) == 0 {
		return nil
	}
	if _, err := g.file.WriteAt(g.buf, g.written); err != nil {
		return err
	}
	n := len(g.buf)
	g.written += int64(n)
	g.clean.Stats.BytesWritten += int64(n)
	g.buf = g.buf[:0]
	return g.clean.pace(n, false)
}

// finish makes the files durable, all but their names.
func (g *cleanedGroup) finish() error {
	g.clean.Stats.BytesAfter += g.extent.size
	if g.file == nil {
		return nil
	}
	if err := g.flush(); err != nil {
		return err
	}
	g.buf = nil
	if err := g.file.Sync(); err != nil {
		return err
	}
	err := g.file.Close()
	g.file = nil
	if err != nil {
		return err
	}
	g.extent.noteMaxTimestamp(g.indexes)
	if err := vfs.WriteFile(g.clean.fsys, g.path(indexSuffix+cleanedSuffix), g.indexes.encodeOffsets(), true); err != nil {
		return err
	}
	return vfs.WriteFile(g.clean.fsys, g.path(timeIndexSuffix+cleanedSuffix), g.indexes.encodeTimes(), true)
}

// discard removes the files of a run that is given up. Errors are of no consequence: a start removes what is left.
func (c *Clean) discard() {
	for _, g := range c.groups {
		if g.file != nil {
			_ = g.file.Close()
		}
		for _, suffix := range segmentSuffixes {
			_ = removeIfThere(c.fsys, g.path(suffix+cleanedSuffix))
		}
	}
}
