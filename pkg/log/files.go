package log

import (
	"container/list"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/highwater-io/highwater/pkg/vfs"
)

// Files are the open files and the indexes in memory of sealed segments, which are there only while they are read.
// All logs of a node share one (Config.Files), so that its bounds are the node's. The least recently used go first;
// what somebody still reads from stays open until it is released. Safe for concurrent use.
//
// The active segment of a log, and those that hold what was not flushed, are not among them: their files stay open,
// since the kernel tells of a page that it could not write only those who had the file open then.
type Files struct {
	mu      sync.Mutex
	handles lru[*handle]
	indexes lru[*indexes]
	opened  atomic.Int64
}

// What a log gets that has no Config.Files.
const (
	defaultOpenFiles  = 64
	defaultIndexBytes = 16 << 20
)

// NewFiles bounds the files of sealed segments that stay open while nobody reads from them, and the bytes of indexes
// in memory. Of both, one is kept in any case.
func NewFiles(openFiles int, indexBytes int64) *Files {
	return &Files{
		handles: lru[*handle]{limit: int64(openFiles), drop: func(s *segment, h *handle) {
			s.cachedFile = nil
			h.release()
		}},
		indexes: lru[*indexes]{limit: indexBytes, drop: func(s *segment, _ *indexes) {
			s.cachedIndex = nil
			s.loaded.Store(nil)
		}},
	}
}

// FilesStats is what is open now.
type FilesStats struct {
	// SegmentFiles are the open files of segments, those of active segments and of readers among them.
	SegmentFiles int64
	// IndexBytes is the memory of the indexes of sealed segments.
	IndexBytes int64
}

// Stats says what is open now.
func (f *Files) Stats() FilesStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return FilesStats{SegmentFiles: f.opened.Load(), IndexBytes: f.indexes.used}
}

// handle is an open file of a segment. It is closed when the last reference is released.
type handle struct {
	file    vfs.File
	files   *Files
	segment *segment     // nil while it belongs to none
	refs    atomic.Int32 // one of whom it belongs to, one of each range that is being read
}

// acquire takes a reference, unless the file is closed already.
func (h *handle) acquire() bool {
	for {
		n := h.refs.Load()
		if n == 0 {
			return false
		}
		if h.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (h *handle) release() {
	switch n := h.refs.Add(-1); {
	case n == 0:
		// Nobody is left to tell of an error, and nothing depends on it: what had to be durable was synced.
		_ = h.file.Close()
		h.files.opened.Add(-1)
		if h.segment != nil {
			h.segment.opened.Add(-1)
		}
	case n < 0:
		panic(fmt.Sprintf("log: file %s released more often than acquired", h.file.Name()))
	}
}

// open opens a file of a segment, or one that is to be a segment's; the caller has the one reference.
func (f *Files) open(s *segment, fsys vfs.FS, name string, flag int) (*handle, error) {
	file, err := fsys.OpenFile(name, flag, 0o644)
	for tries := 0; tries < 8 && (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)); tries++ {
		if !f.closeHalf() {
			break
		}
		file, err = fsys.OpenFile(name, flag, 0o644)
	}
	if err != nil {
		return nil, err
	}
	h := &handle{file: file, files: f, segment: s}
	h.refs.Store(1)
	f.opened.Add(1)
	if s != nil {
		s.opened.Add(1)
	}
	return h, nil
}

// closeHalf closes half of the files that nobody reads from, because the process may open no more. It says whether
// there were any.
func (f *Files) closeHalf() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.handles.shrink(f.handles.used / 2)
}

// acquire returns the file of a sealed segment, which the caller releases. errSegmentGone says that the segment was
// dropped.
func (f *Files) acquire(s *segment) (*handle, error) {
	f.mu.Lock()
	if e := s.cachedFile; e != nil {
		h := f.handles.touch(e)
		h.refs.Add(1)
		f.mu.Unlock()
		return h, nil
	}
	f.mu.Unlock()
	h, err := f.open(s, s.fsys, s.path(logSuffix), os.O_RDONLY)
	if s.gone.Load() {
		if err == nil {
			h.release() // a file of that name may be another segment's by now
		}
		return nil, errSegmentGone
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", errFileMissing, err)
	}
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := s.cachedFile; e != nil { // another reader was faster
		h.release()
		h = f.handles.touch(e)
		h.refs.Add(1)
		return h, nil
	}
	if !s.gone.Load() {
		h.refs.Add(1)
		s.cachedFile = f.handles.add(s, h, 1)
	}
	return h, nil
}

// errFileMissing says that a segment that the log has is not in its directory.
var errFileMissing = errors.New("the segment's file is missing")

// keep takes over a reference of the handle, so that the file stays open until others need the room.
func (f *Files) keep(s *segment, h *handle) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.cachedFile != nil || s.gone.Load() {
		h.release()
		return
	}
	s.cachedFile = f.handles.add(s, h, 1)
}

// forget closes the file of a segment that is dropped, unless somebody reads from it, and counts its index no longer.
func (f *Files) forget(s *segment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := s.cachedFile; e != nil {
		s.cachedFile = nil
		f.handles.remove(e).release()
	}
	f.forgetIndexLocked(s)
}

// keepIndex counts the index that a sealed segment has loaded; it goes when others need the room.
func (f *Files) keepIndex(s *segment, x *indexes) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.cachedIndex == nil && !s.gone.Load() {
		s.cachedIndex = f.indexes.add(s, x, x.bytes())
	}
}

// touchIndex notes that an index is in use.
func (f *Files) touchIndex(s *segment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.cachedIndex != nil {
		f.indexes.touch(s.cachedIndex)
	}
}

// forgetIndex counts a segment's index no longer, so that it stays. It says whether it had been counted.
func (f *Files) forgetIndex(s *segment) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.forgetIndexLocked(s)
}

func (f *Files) forgetIndexLocked(s *segment) bool {
	e := s.cachedIndex
	if e == nil {
		return false
	}
	s.cachedIndex = nil
	f.indexes.remove(e)
	return true
}

// lru holds values of segments up to a limit of what they cost together, one in any case. The least recently used go
// first.
type lru[T any] struct {
	order list.List // of *lruEntry[T], the most recently used first
	limit int64
	used  int64
	drop  func(*segment, T) // called for what goes
}

type lruEntry[T any] struct {
	segment *segment
	value   T
	cost    int64
}

func (c *lru[T]) add(s *segment, value T, cost int64) *list.Element {
	e := c.order.PushFront(&lruEntry[T]{s, value, cost})
	c.used += cost
	c.shrink(c.limit)
	return e
}

// shrink drops the least recently used ones beyond a limit, all but the last, and says whether there were any.
func (c *lru[T]) shrink(limit int64) (shrunk bool) {
	for c.used > limit && c.order.Len() > 1 {
		e := c.order.Back()
		s := e.Value.(*lruEntry[T]).segment
		c.drop(s, c.remove(e))
		shrunk = true
	}
	return shrunk
}

func (c *lru[T]) touch(e *list.Element) T {
	c.order.MoveToFront(e)
	return e.Value.(*lruEntry[T]).value
}

func (c *lru[T]) remove(e *list.Element) T {
	entry := c.order.Remove(e).(*lruEntry[T])
	c.used -= entry.cost
	return entry.value
}
