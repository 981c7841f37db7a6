package metadata

import (
	"fmt"

	"github.com/highwater-io/highwater/pkg/ident"
)

// A Loader follows the committed metadata log and makes images of it. It understands metadata transactions
// (KIP-868): records between BeginTransaction and EndTransaction count from the end on, all at once, and after an
// AbortTransaction they never do. Not for concurrent use.
type Loader struct {
	image *Image
	delta *Delta

	next ident.Offset // the offset that the next batch begins with
	// Where the image will stand: the last record outside of a transaction, and its batch's timestamp.
	offset    ident.Offset
	epoch     ident.Epoch
	timestamp int64

	inTransaction bool
	began         ident.Offset
	held          []heldRecord
}

type heldRecord struct {
	offset ident.Offset
	record Record
}

// NewLoader begins after the position of image, whose last record was appended at timestampMs (for a snapshot,
// what its header says; -1 when unknown).
func NewLoader(image *Image, timestampMs int64) *Loader {
	offset, epoch := image.Position()
	return &Loader{image: image, delta: NewDelta(image), next: offset + 1, offset: offset, epoch: epoch, timestamp: timestampMs}
}

// Load takes the next batch of the log, which must begin where the last one ended. After an error the loader is
// of no use: the log can't be understood, and the node must not go on with an image that misses something.
func (l *Loader) Load(b Batch) error {
	if b.BaseOffset != l.next {
		return misfit("the next batch begins at offset %d, want %d", b.BaseOffset, l.next)
	}
	for i, r := range b.Records {
		offset := b.BaseOffset + ident.Offset(i)
		if err := l.load(offset, r); err != nil {
			return fmt.Errorf("metadata log, offset %d, %s: %w", offset, schemas[r.RecordType()].name, err)
		}
		if !l.inTransaction {
			l.offset, l.epoch, l.timestamp = offset, b.Epoch, b.Timestamp
		}
	}
	if !l.inTransaction {
		l.offset, l.epoch, l.timestamp = b.LastOffset, b.Epoch, b.Timestamp
	}
	l.next = b.LastOffset + 1
	return nil
}

func (l *Loader) load(offset ident.Offset, record Record) error {
	switch record.(type) {
	case *BeginTransactionRecord:
		if l.inTransaction {
			return misfit("a transaction begins inside the one that began at offset %d", l.began)
		}
		l.inTransaction, l.began = true, offset
	case *EndTransactionRecord:
		if !l.inTransaction {
			return misfit("a transaction ends that never began")
		}
		for _, h := range l.held {
			if err := l.delta.Replay(h.record); err != nil {
				return fmt.Errorf("record of the transaction at offset %d: %w", h.offset, err)
			}
		}
		l.inTransaction, l.held = false, nil
	case *AbortTransactionRecord:
		if !l.inTransaction {
			return misfit("a transaction is aborted that never began")
		}
		l.inTransaction, l.held = false, nil
	default:
		if !l.inTransaction {
			return l.delta.Replay(record)
		}
		l.held = append(l.held, heldRecord{offset, record})
	}
	return nil
}

// InTransaction says whether what was loaded ends inside a metadata transaction. No snapshot may be taken then,
// and a new leader has to abort the transaction first.
func (l *Loader) InTransaction() bool { return l.inTransaction }

// NextOffset returns the offset that the next batch must begin with.
func (l *Loader) NextOffset() ident.Offset { return l.next }

// Image returns the image of the last Publish.
func (l *Loader) Image() *Image { return l.image }

// Timestamp returns when the last record of what Publish returns was appended, in ms since 1970, for the header
// of a snapshot.
func (l *Loader) Timestamp() int64 { return l.timestamp }

// Publish returns the image of all that was loaded, less a transaction that is still open, and the delta that led
// to it from the image of the Publish before.
func (l *Loader) Publish() (*Delta, *Image) {
	delta := l.delta
	l.image = delta.Image(l.offset, l.epoch)
	l.delta = NewDelta(l.image)
	return delta, l.image
}
