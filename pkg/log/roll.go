package log

import (
	"hash/fnv"
	"math"
	"path/filepath"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
)

// Roll seals the active segment, unless it is empty, and starts the next one at the log's end. Appends roll by
// themselves when the segment is full or old.
func (l *Log) Roll() error {
	if err := l.roll(); err != nil {
		return err
	}
	return l.settle()
}

// roll takes little: the files that belong to a sealed segment are written by a chore, unless the last one's are not
// written yet.
func (l *Log) roll() error {
	if l.err != nil {
		return l.err
	}
	sealed := l.active()
	if sealed.size == 0 {
		return nil
	}
	if err := l.completeSeals(sealed.base); err != nil {
		return err
	}
	l.seal(sealed)
	next := l.newActive(sealed.next)
	if err := l.createNext(next); err != nil {
		return l.poison("create segment", err)
	}
	l.dirDirty = true
	l.segments = append(l.segments[:len(l.segments):len(l.segments)], next)
	if !sealed.dirty && !l.syncing(sealed) {
		sealed.unpin()
	}
	l.publish(true)
	return nil
}

// rollFor rolls when bytes more, up to offset last and with timestamps up to ts, belong into a new segment.
func (l *Log) rollFor(bytes int64, last ident.Offset, ts int64) error {
	a := l.active()
	if a.size == 0 {
		return nil
	}
	full := l.isFull(a, bytes, last)
	if !full && l.cfg.SegmentMs > 0 {
		age, err := l.age(a, ts)
		if err != nil {
			return l.poison("age of the segment", l.readError(a, err))
		}
		full = age > l.cfg.SegmentMs-l.jitter(a.base)
	}
	if !full {
		return nil
	}
	return l.roll()
}

// isFull says whether bytes more, up to offset last, do not fit.
func (l *Log) isFull(a *segment, bytes int64, last ident.Offset) bool {
	entries := int64(len(*a.loaded.Load().offsets.Load()))
	return a.size+bytes > l.cfg.SegmentBytes || last-a.base > math.MaxInt32 ||
		(entries+1)*offsetEntryBytes > l.cfg.IndexBytes
}

// age is how old the segment is, in ms, for an append of records with timestamps up to ts. As in Kafka, records that
// are older than the segment's first do not age it, and the wall clock counts only where that first has no timestamp.
func (l *Log) age(a *segment, ts int64) (int64, error) {
	first, err := l.firstTimestamp(a)
	switch {
	case err != nil:
		return 0, err
	case first >= 0:
		return ts - first, nil
	case l.cfg.WallMillis == nil:
		return 0, nil
	}
	return l.cfg.WallMillis() - a.openedMs, nil
}

// firstTimestamp is the largest timestamp of a segment's first batch, -1 when it has none.
func (l *Log) firstTimestamp(s *segment) (int64, error) {
	if pos := skipBad(s.damage(), 0); !s.firstKnown && pos < s.size {
		f, err := s.acquire()
		if err != nil {
			return 0, err
		}
		defer f.release()
		r := headerReader{f: f.file, size: s.size, buf: make([]byte, batch.HeaderSize)}
		h, err := r.at(pos)
		switch {
		case isCorrupt(err):
			l.Suspect(l.readError(s, err))
			return -1, nil
		case err != nil:
			return 0, err
		}
		s.firstTS, s.firstKnown = h.MaxTimestamp, true
	}
	if !s.firstKnown {
		return -1, nil
	}
	return s.firstTS, nil
}

// jitter draws from Settings.SegmentJitterMs: a segment's own draw, the same on every replica and after a restart.
func (l *Log) jitter(base ident.Offset) int64 {
	limit := min(l.cfg.SegmentJitterMs, l.cfg.SegmentMs)
	if limit == 0 {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(filepath.Join(filepath.Base(l.dir), fileName(base, logSuffix))))
	return int64(h.Sum64() % uint64(limit))
}
