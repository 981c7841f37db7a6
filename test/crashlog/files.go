package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// checkFiles reads the files of a log that was closed, with decoders of its own, and compares indexes and the newest
// producer snapshot with the batches in the segments.
func checkFiles(fsys vfs.FS, dir string, h *history, expired bool) error {
	listing, err := fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	first, newest := ident.Offset(math.MaxInt64), ident.Offset(-1)
	for _, e := range listing {
		stem, suffix, _ := strings.Cut(e.Name(), ".")
		n, err := strconv.ParseInt(stem, 10, 64)
		if err != nil {
			continue
		}
		switch suffix {
		case "log":
			first = min(first, ident.Offset(n))
			if err := checkSegment(fsys, filepath.Join(dir, stem), ident.Offset(n)); err != nil {
				return fmt.Errorf("segment %d: %w", n, err)
			}
		case "snapshot":
			newest = max(newest, ident.Offset(n))
		case "index", "timeindex":
		default:
			return fmt.Errorf("%s is left", e.Name())
		}
	}
	if newest != h.end {
		return fmt.Errorf("the newest producer snapshot is at %d, the end at %d", newest, h.end)
	}
	raw, err := vfs.ReadFile(fsys, filepath.Join(dir, fmt.Sprintf("%020d.snapshot", newest)))
	if err != nil {
		return err
	}
	return checkSnapshot(raw, h, first, expired)
}

// checkSegment compares a segment's indexes with its batches. A file that is not there will be made again.
func checkSegment(fsys vfs.FS, stem string, base ident.Offset) error {
	raw, err := vfs.ReadFile(fsys, stem+".log")
	if err != nil {
		return err
	}
	type at struct {
		batch.Header
		pos int
	}
	var all []at
	for rest := raw; len(rest) > 0; {
		_, after, h, err := batch.Next(rest)
		if err != nil {
			return err
		}
		all = append(all, at{h, len(raw) - len(rest)})
		rest = after
	}
	be := binary.BigEndian
	last := int64(-1)
	if index, err := vfs.ReadFile(fsys, stem+".index"); err == nil {
		for ; len(index) >= 8 && !allZero(index); index = index[8:] {
			o, pos := base+ident.Offset(be.Uint32(index)), int(be.Uint32(index[4:]))
			if !slices.ContainsFunc(all, func(a at) bool { return a.pos == pos && a.LastOffset() == o }) {
				return fmt.Errorf("the index says offset %d ends a batch at %d", o, pos)
			}
			if int64(o) <= last {
				return fmt.Errorf("the index has %d after %d", o, last)
			}
			last = int64(o)
		}
	}
	last = -1
	if times, err := vfs.ReadFile(fsys, stem+".timeindex"); err == nil {
		for ; len(times) >= 12 && !allZero(times); times = times[12:] {
			ts, o := int64(be.Uint64(times)), base+ident.Offset(be.Uint32(times[8:]))
			largest := int64(-1)
			for _, a := range all {
				if a.LastOffset() <= o && a.NumRecords > 0 { // one that compaction has emptied keeps its header's
					largest = max(largest, a.MaxTimestamp)
				}
			}
			if ts != largest || int64(o) <= last {
				return fmt.Errorf("the time index says %d up to offset %d, the batches %d; entry before: %d", ts, o, largest, last)
			}
			last = int64(o)
		}
	}
	return nil
}

// allZero says that an index is at its end: Kafka's has zeros behind its last entry until it is closed.
func allZero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}

// checkSnapshot compares a producer snapshot with what the batches say. What lies below the first segment may be
// known or not.
func checkSnapshot(raw []byte, h *history, first ident.Offset, expired bool) error {
	const header, size = 10, 46
	be := binary.BigEndian
	if len(raw) < header || be.Uint16(raw) != 1 || (len(raw)-header)%size != 0 || int(be.Uint32(raw[6:])) != (len(raw)-header)/size {
		return fmt.Errorf("a producer snapshot of %d bytes: % x", len(raw), raw[:min(len(raw), header)])
	}
	want := producersOf(h.entries, h.end)
	for raw = raw[header:]; len(raw) > 0; raw = raw[size:] {
		id := int64(be.Uint64(raw))
		got := producerState{epoch: int16(be.Uint16(raw[8:])), lastSequence: int32(be.Uint32(raw[10:])),
			lastOffset: ident.Offset(be.Uint64(raw[14:])), offsetDelta: int32(be.Uint32(raw[22:])),
			timestamp: int64(be.Uint64(raw[26:])), txnFirst: ident.Offset(be.Uint64(raw[38:]))}
		w, ok := want[id]
		if !ok {
			return fmt.Errorf("the producer snapshot has producer %d, which has not written: %+v", id, got)
		}
		delete(want, id)
		got.lastControl = w.lastControl // not in the file
		if w.txnFirst >= 0 && w.txnFirst < first || expired {
			got.txnFirst = w.txnFirst
		}
		if w.lastOffset < first || expired {
			got = w
		}
		if w.lastOffset < h.cleaned {
			got.timestamp = w.timestamp // of the records that compaction has left
		}
		if got != w {
			return fmt.Errorf("the producer snapshot says of producer %d %+v, the batches %+v", id, got, w)
		}
	}
	for id, w := range want {
		if w.lastOffset >= first && !expired {
			return fmt.Errorf("the producer snapshot lacks producer %d: %+v", id, w)
		}
	}
	return nil
}
