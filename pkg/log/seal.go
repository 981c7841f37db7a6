package log

import (
	"path/filepath"
	"sync"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// seal is what is still to be written of a segment that gets no more batches: its index files and the producers' state
// behind it. A chore writes them, or the flush that is to make the segment durable, whoever comes first.
type seal struct {
	segment  *segment
	indexes  *indexes
	snapshot string // a path; empty when the state is written already
	content  []byte

	mu        sync.Mutex
	done      bool
	cancelled bool
	err       error
}

// write writes the files, once. They are durable with the next flush; until then a crash may lose them, and they are
// made again.
func (s *seal) write() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done {
		s.done, s.err = true, s.writeFiles()
	}
	return s.err
}

func (s *seal) writeFiles() error {
	if err := s.segment.writeIndexFiles(s.indexes); err != nil {
		return err
	}
	if s.snapshot == "" {
		return nil
	}
	return vfs.WriteFile(s.segment.fsys, s.snapshot, s.content, false)
}

// cancel makes sure that nothing is written from now on: the segment goes, or is written again.
func (s *seal) cancel() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done, s.cancelled = true, true
}

func (s *seal) state() (done, cancelled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done, s.cancelled
}

// seal notes what is to be written of the active segment, which gets no more batches.
func (l *Log) seal(s *segment) {
	x := s.loaded.Load()
	s.noteMaxTimestamp(x)
	s.indexDirty = true
	p := &seal{segment: s, indexes: x}
	if l.producers.noteSnapshot(s.next) {
		p.snapshot, p.content = filepath.Join(l.dir, fileName(s.next, snapshotSuffix)), l.producers.encode()
	}
	l.seals = append(l.seals, p)
}

// completeSeals writes what is pending of the segments below an offset.
func (l *Log) completeSeals(below ident.Offset) error {
	for _, p := range l.seals {
		if p.segment.base >= below {
			break
		}
		l.dirDirty = true
		if err := p.write(); err != nil {
			return l.poison("write index", err)
		}
	}
	l.collectSeals()
	return nil
}

// cancelSeals forgets what is pending of the segments at or above an offset. The producer snapshots behind them are
// not written, and the owner forgets them.
func (l *Log) cancelSeals(from ident.Offset) {
	for _, p := range l.seals {
		if p.segment.base >= from {
			p.cancel()
		}
	}
	l.collectSeals()
}

// collectSeals forgets what has been written. From now on the indexes can be read again, and need not stay in memory.
func (l *Log) collectSeals() {
	kept := l.seals[:0]
	for _, p := range l.seals {
		switch done, cancelled := p.state(); {
		case !done:
			kept = append(kept, p)
		case !cancelled && p.err == nil && !p.segment.gone.Load():
			p.segment.unpinIndex()
		}
	}
	clear(l.seals[len(kept):])
	l.seals = kept
}
