package metadata

import (
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
)

// SnapshotID names a snapshot: it holds all records below EndOffset, of which the last was of Epoch (KIP-630).
type SnapshotID struct {
	EndOffset ident.Offset
	Epoch     ident.Epoch
}

// BootstrapID is the id of the snapshot that a node is formatted with: no records, only voters (KIP-853).
var BootstrapID = SnapshotID{}

// The suffixes of Kafka's snapshot files: whole, being written, and about to be deleted.
const (
	SnapshotSuffix        = ".checkpoint"
	PartialSnapshotSuffix = ".checkpoint.part"
	DeletedSnapshotSuffix = ".checkpoint.deleted"
)

// Compare orders snapshots from old to new.
func (id SnapshotID) Compare(other SnapshotID) int {
	if id.EndOffset != other.EndOffset {
		return int(min(max(id.EndOffset-other.EndOffset, -1), 1))
	}
	return int(id.Epoch) - int(other.Epoch)
}

// String is the name without a suffix.
func (id SnapshotID) String() string { return fmt.Sprintf("%020d-%010d", id.EndOffset, id.Epoch) }

// FileName returns the name of the snapshot's file in the directory of the metadata log.
func (id SnapshotID) FileName() string { return id.String() + SnapshotSuffix }

// ParseSnapshotName reads what FileName returns, and false for any other name.
func ParseSnapshotName(name string) (SnapshotID, bool) {
	digits, ok := strings.CutSuffix(name, SnapshotSuffix)
	if !ok || len(digits) != 31 || digits[20] != '-' || strings.ContainsAny(digits, "+ ") {
		return SnapshotID{}, false
	}
	end, err1 := strconv.ParseInt(digits[:20], 10, 64)
	epoch, err2 := strconv.ParseInt(digits[21:], 10, 32)
	if err1 != nil || err2 != nil || end < 0 || epoch < 0 {
		return SnapshotID{}, false
	}
	return SnapshotID{EndOffset: ident.Offset(end), Epoch: ident.Epoch(epoch)}, true
}

// SnapshotID returns the id of a snapshot of this image.
func (im *Image) SnapshotID() SnapshotID {
	return SnapshotID{EndOffset: im.offset + 1, Epoch: max(im.epoch, 0)}
}

// SnapshotHeader is what a snapshot says apart from the image: the time of the last record it holds, in ms since
// 1970, and the raft layer's kraft.version and voters as of its end. With kraft.version 0 there are no voters.
type SnapshotHeader struct {
	LastContainedLogTimestamp int64
	KRaftVersion              int16
	Voters                    *batch.Voters
}

// A data batch of a snapshot ends at either of these.
const (
	maxSnapshotBatchRecords = 1024
	maxSnapshotBatchBytes   = 1 << 20
)

// WriteSnapshot writes image as a snapshot, whose id is image.SnapshotID(). The same image and header give the
// same bytes.
func WriteSnapshot(w io.Writer, image *Image, h SnapshotHeader) error {
	return writeSnapshot(w, image.SnapshotID(), image.records(true), h)
}

// AppendSnapshot appends to dst what WriteSnapshot writes.
func AppendSnapshot(dst []byte, image *Image, h SnapshotHeader) []byte {
	out := (*appender)(&dst)
	// An appender fails never, so neither does this.
	_ = writeSnapshot(out, image.SnapshotID(), image.records(true), h)
	return dst
}

// AppendBootstrap appends to dst a snapshot that holds just the given records, as Kafka's bootstrap.checkpoint
// does with the features a cluster begins with, and, without records, the 0-0 checkpoint with its voters.
func AppendBootstrap(dst []byte, records []Record, h SnapshotHeader) []byte {
	out := (*appender)(&dst)
	_ = writeSnapshot(out, BootstrapID, func(yield func(Record) bool) {
		for _, r := range records {
			if !yield(r) {
				return
			}
		}
	}, h)
	return dst
}

type appender []byte

// Write appends.
func (a *appender) Write(b []byte) (int, error) {
	*a = append(*a, b...)
	return len(b), nil
}

// writeSnapshot is done with each of the records before it takes the next. What it holds is one batch.
func writeSnapshot(w io.Writer, id SnapshotID, records iter.Seq[Record], h SnapshotHeader) error {
	timestamp := h.LastContainedLogTimestamp
	next := ident.Offset(0)
	b := batch.NewBuilder(0, id.Epoch, timestamp)
	var out []byte
	// write writes the batch, unless it is empty, and begins the next.
	write := func() error {
		if b.Len() == 0 {
			return nil
		}
		next += ident.Offset(b.Len())
		out = b.AppendTo(out[:0])
		b.Reset(next, id.Epoch, timestamp)
		_, err := w.Write(out)
		return err
	}

	b.AppendControl(batch.SnapshotHeaderType, batch.SnapshotHeader{LastContainedLogTimestamp: timestamp}.Encode())
	if h.KRaftVersion > 0 {
		b.AppendControl(batch.KRaftVersionType, batch.KRaftVersion{KRaftVersion: h.KRaftVersion}.Encode())
		if h.Voters != nil {
			b.AppendControl(batch.VotersType, h.Voters.Encode())
		}
	}
	if err := write(); err != nil {
		return err
	}
	var c coder
	var value []byte
	var err error
	for r := range records {
		if value, err = c.encode(value[:0], r); err != nil {
			panic(err) // as Encode
		}
		if b.Len() > 0 && (b.Len() >= maxSnapshotBatchRecords || b.Size()+len(value) > maxSnapshotBatchBytes) {
			if err := write(); err != nil {
				return err
			}
		}
		b.Append(nil, value)
	}
	if err := write(); err != nil {
		return err
	}
	b.AppendControl(batch.SnapshotFooterType, batch.SnapshotFooter{}.Encode())
	return write()
}
