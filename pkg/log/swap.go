package log

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Compacted segments take the place of the old ones in steps, Kafka's, each durable before the next:
//
//  1. the new files, written and synced as .cleaned, become .swap. From now on the new content counts;
//  2. the old files become .deleted;
//  3. the .swap files get their names.
//
// What a start finds of it: .cleaned files only, and the old segments are all there; or .swap files, and it does what
// is left to do. A .swap file whose like a .cleaned file still awaits goes, since step 2 had not begun.

// segmentSuffixes are the files of a segment; the batches come last, for they say that the others are there.
var segmentSuffixes = []string{indexSuffix, timeIndexSuffix, logSuffix}

// swap exchanges the segments on the disk and in the log.
func (l *Log) swap(c *Clean) error {
	if err := l.completeSeals(c.Stats.To); err != nil {
		return err
	}
	for _, g := range c.groups {
		for _, suffix := range segmentSuffixes {
			if err := l.fsys.Rename(g.path(suffix+cleanedSuffix), g.path(suffix+swapSuffix)); err != nil {
				return err
			}
		}
	}
	if err := l.fsys.SyncDir(l.dir); err != nil {
		return err
	}
	// Readers first: names of what they look at must not change under them. What they find now is open by its .swap
	// name, until it has its own.
	replaced, err := l.replace(c)
	if err != nil {
		return err
	}
	for _, g := range c.groups {
		for _, s := range g.sources {
			if err := l.doom(s); err != nil {
				return err
			}
		}
	}
	if err := l.fsys.SyncDir(l.dir); err != nil {
		return err
	}
	for _, g := range c.groups {
		for _, suffix := range segmentSuffixes {
			if err := l.fsys.Rename(g.path(suffix+swapSuffix), g.path(suffix)); err != nil {
				return err
			}
		}
	}
	if err := l.fsys.SyncDir(l.dir); err != nil {
		return err
	}
	for _, s := range replaced {
		s.unpinIndex()
		s.unpin()
	}
	if err := l.removeStraySnapshots(); err != nil {
		return err
	}
	return l.settle()
}

// replace puts the new segments into the view. Readers keep what they have of the old ones.
func (l *Log) replace(c *Clean) (replaced []*segment, err error) {
	defer func() {
		if err != nil {
			for _, s := range replaced {
				s.drop()
			}
		}
	}()
	byFirst := map[*segment]*cleanedGroup{}
	for _, g := range c.groups {
		byFirst[g.sources[0]] = g
	}
	var segments, gone []*segment
	for i := 0; i < len(l.segments); {
		g := byFirst[l.segments[i]]
		if g == nil {
			segments = append(segments, l.segments[i])
			i++
			continue
		}
		s := l.newSegment(g.extent.base)
		if err := s.pinFile(s.path(logSuffix+swapSuffix), os.O_RDONLY); err != nil {
			return nil, err
		}
		replaced = append(replaced, s)
		if s.size, err = s.file().Size(); err != nil {
			return nil, err
		}
		if s.size != g.extent.size {
			return nil, fmt.Errorf("compacted segment %d has %d bytes, %d were written", s.base, s.size, g.extent.size)
		}
		s.next = g.sources[len(g.sources)-1].next
		s.maxTS, s.maxTSOffset, s.maxKnown = g.extent.maxTS, g.extent.maxTSOffset, true
		s.loaded.Store(g.indexes)
		segments = append(segments, s)
		gone = append(gone, g.sources...)
		i += len(g.sources)
	}
	l.segments = segments
	l.publish(true)
	for _, s := range gone {
		s.drop()
	}
	return replaced, nil
}

// finishSwaps does what is left of an exchange of compacted segments that a crash cut short, Kafka's exchanges
// included, whose cleaner also splits segments so. names are those of the directory; it returns them as they are then.
func (l *Log) finishSwaps(names []string, rec *Recovery) ([]string, error) {
	firstCleaned := ident.Offset(-1)
	var swaps []ident.Offset
	left := map[string]bool{}
	for _, name := range names {
		left[name] = true
		if base, ok := parseFileName(name, logSuffix+cleanedSuffix); ok && firstCleaned < 0 {
			firstCleaned = base
		}
		if base, ok := parseFileName(name, logSuffix+swapSuffix); ok {
			swaps = append(swaps, base)
		}
	}
	remove := func(name string) error {
		delete(left, name)
		return l.fsys.Remove(filepath.Join(l.dir, name))
	}
	var whole []ident.Offset
	for _, base := range swaps {
		name := fileName(base, logSuffix+swapSuffix)
		if firstCleaned >= 0 && base >= firstCleaned {
			rec.note("removed %s of a compaction that had not come far enough", name)
			if err := remove(name); err != nil {
				return nil, err
			}
			continue
		}
		end, wrong, err := l.verifySwap(base)
		if err != nil {
			return nil, err
		}
		if wrong != nil && left[fileName(base, logSuffix)] {
			// The old segments go one after the other, the first one first: all of them are there still.
			rec.note("removed %s of a compaction, which is damaged: the segments that it was to replace are there: %v", name, wrong)
			if err := remove(name); err != nil {
				return nil, err
			}
			continue
		}
		if wrong != nil {
			// Nothing but it has these records. Without its index it is checked when it is opened, at whichever start.
			rec.note("%s of a compaction, which replaces segments that are gone, is damaged: %v", name, wrong)
			for _, suffix := range segmentSuffixes[:2] {
				if index := fileName(base, suffix+swapSuffix); left[index] {
					if err := remove(index); err != nil {
						return nil, err
					}
				}
			}
		}
		l.exchanged = max(l.exchanged, end)
		for _, old := range names {
			stem, ok := segmentFile(old)
			if !ok || !left[old] || stem < base || stem >= max(end, base+1) {
				continue
			}
			if err := remove(old); err != nil {
				return nil, err
			}
		}
		rec.note("finished the compaction of segment %d, which now holds all up to offset %d", base, end)
		whole = append(whole, base)
	}
	if len(whole) > 0 {
		// An old segment that came back beside the new one would be its contradiction.
		if err := l.fsys.SyncDir(l.dir); err != nil {
			return nil, err
		}
	}
	for _, base := range whole {
		for _, suffix := range append(segmentSuffixes[:2:2], abortsSuffix, logSuffix) {
			from, to := fileName(base, suffix+swapSuffix), fileName(base, suffix)
			if !left[from] {
				continue
			}
			if err := l.fsys.Rename(filepath.Join(l.dir, from), filepath.Join(l.dir, to)); err != nil {
				return nil, err
			}
			delete(left, from)
			left[to] = true
		}
	}
	if len(swaps) > 0 {
		if err := l.fsys.SyncDir(l.dir); err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(left)), nil
}

// segmentFile returns the base offset of a segment that a file belongs to.
func segmentFile(name string) (ident.Offset, bool) {
	for _, suffix := range []string{logSuffix, indexSuffix, timeIndexSuffix, abortsSuffix} {
		if base, ok := parseFileName(name, suffix); ok {
			return base, true
		}
	}
	return 0, false
}

// verifySwap checks all of a compacted segment that is to replace others, and returns the offset behind its last batch
// that is whole, and what is wrong with those that are not.
func (l *Log) verifySwap(base ident.Offset) (end ident.Offset, wrong, err error) {
	f, err := l.cfg.Files.open(nil, l.fsys, filepath.Join(l.dir, fileName(base, logSuffix+swapSuffix)), os.O_RDONLY)
	if err != nil {
		return 0, nil, err
	}
	defer f.release()
	size, err := f.file.Size()
	if err != nil {
		return 0, nil, err
	}
	c := checker{f: f.file, base: base, size: size, limit: noOffset, gaps: true, following: ident.UnknownEpoch, next: base, epoch: ident.UnknownEpoch}
	end = base
	for c.pos < size {
		h, damage, err := c.step()
		switch {
		case err != nil:
			return 0, nil, err
		case damage != nil:
			wrong = damage.err
		default:
			end = h.NextOffset()
		}
	}
	return end, wrong, nil
}

// isLeftover says whether a file is one that a start removes.
func isLeftover(name string) bool {
	return strings.HasSuffix(name, deletedSuffix) || strings.HasSuffix(name, cleanedSuffix) ||
		strings.HasSuffix(name, swapSuffix) || name == EpochCheckpointFile+tempSuffix ||
		name == nextSegmentFile || name == SegmentCheckpointFile+tempSuffix || name == DamageCheckpointFile+tempSuffix
}
