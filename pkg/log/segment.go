package log

import (
	"container/list"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// segment is a file of batches and its indexes. What stands up to gone, and the loaded index, may be used beside the
// owner; readers get size and end from the view.
type segment struct {
	fsys     vfs.FS
	files    *Files
	dir      string
	base     ident.Offset
	interval int64 // Settings.IndexIntervalBytes when it was opened
	// pinned is the file of the active segment, and of others as long as they are written or have unsynced bytes. It
	// can be written, while what Files opens can only be read.
	pinned atomic.Pointer[handle]
	// gone: the segment is no longer in the view, and its files may go or be another segment's.
	gone atomic.Bool

	opened                  atomic.Int32  // files of it that are open
	cachedFile, cachedIndex *list.Element // Files'

	size        int64
	next        ident.Offset // the offset after the last batch
	maxTS       int64        // largest timestamp of a batch, -1 when there is none
	maxTSOffset ident.Offset // last offset of the first batch that has it
	maxKnown    bool         // maxTS is right, and not only what was appended since the log was opened
	firstTS     int64        // timestamp of the first batch, when firstKnown
	firstKnown  bool
	openedMs    int64 // Config.WallMillis when it was opened
	writtenBack int64 // up to where the kernel was told to write
	sinceIndex  int64 // bytes since the last index entry
	dirty       bool  // the file has unsynced bytes
	indexDirty  bool  // the index files have unsynced bytes

	bad atomic.Pointer[[]bad] // what is damaged of it, in order; nil: nothing that is known

	loadMu sync.Mutex
	loaded atomic.Pointer[indexes] // nil until a sealed segment is first read
}

func (s *segment) path(suffix string) string { return filepath.Join(s.dir, fileName(s.base, suffix)) }

func (l *Log) newSegment(base ident.Offset) *segment {
	s := &segment{fsys: l.fsys, files: l.cfg.Files, dir: l.dir, base: base, next: base, maxTS: -1, interval: l.cfg.IndexIntervalBytes}
	if l.cfg.WallMillis != nil {
		s.openedMs = l.cfg.WallMillis()
	}
	return s
}

// newActive is an empty segment whose file is yet to be created.
func (l *Log) newActive(base ident.Offset) *segment {
	s := l.newSegment(base)
	s.maxKnown = true
	s.loaded.Store(newIndexes(nil, nil))
	return s
}

// create makes the segment's file. One of this name is what a crash left of an earlier segment; Open has seen that it
// is not needed.
func (s *segment) create() error { return s.pinWith(os.O_RDWR | os.O_CREATE | os.O_TRUNC) }

// pin opens the segment's file for the owner, who may then write it, until unpin.
func (s *segment) pin() error {
	if s.pinned.Load() != nil {
		return nil
	}
	return s.pinWith(os.O_RDWR)
}

func (s *segment) pinWith(flag int) error { return s.pinFile(s.path(logSuffix), flag) }

func (s *segment) pinFile(name string, flag int) error {
	h, err := s.files.open(s, s.fsys, name, flag)
	if err == nil {
		s.pinned.Store(h)
	}
	return err
}

// unused says that nobody has the segment's file open.
func (s *segment) unused() bool { return s.opened.Load() == 0 }

// unpin gives the file to Files, once all of it is durable and nothing more will be written.
func (s *segment) unpin() {
	if h := s.pinned.Load(); h != nil {
		s.files.keep(s, h)
		s.pinned.Store(nil)
	}
}

// file is the file of a pinned segment. It belongs to the owner.
func (s *segment) file() vfs.File { return s.pinned.Load().file }

// drop closes the segment's file, unless somebody reads from it. Nobody finds it in the view any more.
func (s *segment) drop() {
	s.gone.Store(true)
	if h := s.pinned.Swap(nil); h != nil {
		h.release()
	}
	s.files.forget(s)
}

// acquire returns the segment's file, which the caller releases. It may run beside the owner. errSegmentGone says that
// the segment was dropped.
func (s *segment) acquire() (*handle, error) {
	if h := s.pinned.Load(); h != nil && h.acquire() {
		return h, nil
	}
	return s.files.acquire(s)
}

// note takes a batch that was written at pos into the indexes and the segment's extent, by Kafka's rule: an
// entry for the first batch that begins more than the interval after the last entry.
func (s *segment) note(x *indexes, h batch.Header, pos int64) {
	if ts := largestOf(h); ts > s.maxTS {
		s.maxTS, s.maxTSOffset = ts, h.LastOffset()
	}
	if s.sinceIndex > s.interval {
		x.addOffset(offsetEntry{relative(s.base, h.LastOffset()), uint32(pos)})
		s.noteMaxTimestamp(x)
		s.sinceIndex = 0
	}
	s.sinceIndex += int64(h.Size())
	s.size = pos + int64(h.Size())
	s.next = h.NextOffset()
}

// largestOf is the largest timestamp of a batch's records. One that compaction has emptied has none, though its header
// keeps that of what was there.
func largestOf(h batch.Header) int64 {
	if h.NumRecords == 0 {
		return -1
	}
	return h.MaxTimestamp
}

func (s *segment) noteMaxTimestamp(x *indexes) {
	if s.maxTS >= 0 {
		x.addTime(timeEntry{s.maxTS, relative(s.base, s.maxTSOffset)})
	}
}

// writeIndexes writes both index files as they belong to a segment that gets no more batches. They are synced
// with the next flush; until then a crash may lose them, and they are made again.
func (s *segment) writeIndexes() error {
	x := s.loaded.Load()
	s.noteMaxTimestamp(x)
	s.indexDirty = true
	return s.writeIndexFiles(x)
}

func (s *segment) writeIndexFiles(x *indexes) error {
	if err := vfs.WriteFile(s.fsys, s.path(indexSuffix), x.encodeOffsets(), false); err != nil {
		return err
	}
	return vfs.WriteFile(s.fsys, s.path(timeIndexSuffix), x.encodeTimes(), false)
}

// readIndexes reads both index files.
func (s *segment) readIndexes(size int64) (*indexes, error) {
	raw, err := vfs.ReadFile(s.fsys, s.path(indexSuffix))
	if err != nil {
		return nil, err
	}
	offsets, err := decodeOffsets(raw, size)
	if err != nil {
		return nil, err
	}
	if raw, err = vfs.ReadFile(s.fsys, s.path(timeIndexSuffix)); err != nil {
		return nil, err
	}
	times, err := decodeTimes(raw)
	if err != nil {
		return nil, err
	}
	return newIndexes(offsets, times), nil
}

// index returns the indexes of a segment of this size, reading or making them at the first use. Safe beside
// the owner.
func (s *segment) index(size int64) (*indexes, error) {
	if x := s.loaded.Load(); x != nil {
		if s.pinned.Load() == nil {
			s.files.touchIndex(s)
		}
		return x, nil
	}
	s.loadMu.Lock()
	defer s.loadMu.Unlock()
	if x := s.loaded.Load(); x != nil {
		return x, nil
	}
	x, err := s.readIndexes(size)
	if s.gone.Load() {
		return nil, errSegmentGone // what was read may be another segment's
	}
	if err != nil || size > s.interval && len(*x.offsets.Load()) == 0 {
		// Whatever is wrong with the files, the batches say it better. Without an entry there can be but few headers
		// to read, or the file has lost what it held.
		if x, err = s.scanIndexes(size); err != nil {
			return nil, err
		}
	}
	s.loaded.Store(x)
	s.files.keepIndex(s, x)
	return x, nil
}

// pinIndex returns the segment's index for the owner to change; it is no longer one that may be read again from its
// files.
func (s *segment) pinIndex() (*indexes, error) {
	x, err := s.index(s.size)
	if err != nil {
		return nil, err
	}
	s.loadMu.Lock()
	defer s.loadMu.Unlock()
	s.files.forgetIndex(s)
	s.loaded.Store(x) // it may have been dropped, and loaded again, since
	return x, nil
}

// replaceIndex puts a better index in the place of one that proved wrong.
func (s *segment) replaceIndex(x *indexes) {
	s.loadMu.Lock()
	defer s.loadMu.Unlock()
	counted := s.files.forgetIndex(s)
	s.loaded.Store(x)
	if counted || s.pinned.Load() == nil {
		s.files.keepIndex(s, x)
	}
}

// unpinIndex lets the index be dropped, once its files are written.
func (s *segment) unpinIndex() { s.files.keepIndex(s, s.loaded.Load()) }

// scanIndexes makes the indexes from the batch headers.
func (s *segment) scanIndexes(size int64) (*indexes, error) {
	f, err := s.acquire()
	if err != nil {
		return nil, err
	}
	defer f.release()
	shadow := &segment{base: s.base, maxTS: -1, interval: s.interval}
	x := newIndexes(nil, nil)
	if err := s.eachHeader(f.file, 0, size, func(h batch.Header, pos int64) (bool, error) {
		shadow.note(x, h, pos)
		return true, nil
	}); err != nil {
		return nil, err
	}
	shadow.noteMaxTimestamp(x)
	return x, nil
}

// loadTail sets the segment's extent from its indexes and the batches behind their last entries. errIndexWrong says
// that the last time entry is of no batch.
func (s *segment) loadTail(f vfs.File, x *indexes) error {
	s.maxTS, s.maxTSOffset, s.maxKnown, s.next, s.sinceIndex = -1, 0, true, s.base, 0
	from, last := int64(0), lastTime(x, s.base, math.MaxInt64)
	if last.known {
		s.maxTS, s.maxTSOffset = last.ts, s.base+ident.Offset(last.rel)
		from = x.floor(last.rel)
	}
	lastEntry := int64(0)
	if offsets := *x.offsets.Load(); len(offsets) > 0 {
		lastEntry = int64(offsets[len(offsets)-1].pos)
		from = min(from, lastEntry)
	}
	if err := s.eachHeader(f, from, s.size, func(h batch.Header, pos int64) (bool, error) {
		if h.BaseOffset < s.next || !s.fits(h) {
			return false, fmt.Errorf("%s at %d: %w: base offset %d after offset %d", f.Name(), pos, batch.ErrCorrupt, h.BaseOffset, s.next)
		}
		last.meet(s.base, h)
		if ts := largestOf(h); ts > s.maxTS {
			s.maxTS, s.maxTSOffset = ts, h.LastOffset()
		}
		s.next = h.NextOffset()
		return true, nil
	}); err != nil {
		return err
	}
	s.sinceIndex = s.size - lastEntry
	return last.err()
}
