package metadata

import (
	"errors"
	"fmt"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
)

// ErrSnapshot is wrapped by the errors of a SnapshotReader: what it was given is no whole snapshot. A node that has
// an older one or can fetch another may go on with that.
var ErrSnapshot = errors.New("invalid snapshot")

// What of a snapshot's frame is missing, wrapped beside ErrSnapshot.
var (
	ErrSnapshotHeader = errors.New("it does not begin with its header")
	ErrSnapshotFooter = errors.New("it does not end with its footer")
)

// ReadSnapshot reads a whole snapshot; see SnapshotReader for what it checks.
func ReadSnapshot(b []byte, id SnapshotID) (*Image, SnapshotHeader, error) {
	r := NewSnapshotReader(id)
	if err := r.Append(b); err != nil {
		return nil, SnapshotHeader{}, err
	}
	return r.Finish()
}

// A SnapshotReader takes the bytes of a snapshot piece by piece, cut anywhere, and makes the image of them. It checks
// every batch's CRC, that offsets run on from 0, that the header comes first and the footer last and nowhere else.
// It keeps no more of the bytes than one batch. Not for concurrent use.
type SnapshotReader struct {
	id     SnapshotID
	delta  *Delta
	header SnapshotHeader
	next   ident.Offset
	seen   bool // the header
	footer bool
	rest   []byte // of a batch that is not whole yet
	err    error
}

// maxSnapshotBatch bounds what a batch of a snapshot may claim to be, so that a damaged length does not make the
// reader wait for more for ever. Kafka's batches have at most 8 MiB.
const maxSnapshotBatch = 64 << 20

// NewSnapshotReader begins to read the snapshot of this id.
func NewSnapshotReader(id SnapshotID) *SnapshotReader {
	return &SnapshotReader{id: id, delta: loading()}
}

// Append takes the next bytes. After an error, which wraps ErrSnapshot, the reader is of no use.
func (s *SnapshotReader) Append(b []byte) error {
	if s.err != nil {
		return s.err
	}
	if len(s.rest) > 0 {
		s.rest = append(s.rest, b...)
		b = s.rest
	}
	for {
		one, rest, _, err := batch.Next(b)
		if errors.Is(err, batch.ErrTruncated) || len(b) == 0 {
			break
		}
		var decoded Batch
		if err == nil {
			decoded, err = ReadBatch(one)
		}
		if err == nil {
			err = s.read(decoded)
		}
		if err != nil {
			return s.fail(err)
		}
		b = rest
	}
	if len(b) > maxSnapshotBatch {
		return s.fail(fmt.Errorf("%w: a batch of more than %d bytes", batch.ErrCorrupt, maxSnapshotBatch))
	}
	s.rest = append(s.rest[:0], b...)
	return nil
}

func (s *SnapshotReader) fail(err error) error {
	s.err = fmt.Errorf("%w %s: %w", ErrSnapshot, s.id, err)
	return s.err
}

// Finish says that there is no more, and returns the image, which stands at the position that the id names, and the
// header.
func (s *SnapshotReader) Finish() (*Image, SnapshotHeader, error) {
	switch {
	case s.err != nil:
	case len(s.rest) > 0:
		_ = s.fail(fmt.Errorf("%w: %d bytes of a batch", batch.ErrTruncated, len(s.rest)))
	case !s.footer:
		_ = s.fail(ErrSnapshotFooter)
	}
	if s.err != nil {
		return nil, SnapshotHeader{}, s.err
	}
	if s.id.EndOffset == 0 {
		return s.delta.Image(ident.UnknownOffset, ident.UnknownEpoch), s.header, nil
	}
	return s.delta.Image(s.id.EndOffset-1, s.id.Epoch), s.header, nil
}

func (s *SnapshotReader) read(b Batch) error {
	if b.BaseOffset != s.next {
		return fmt.Errorf("a batch begins at offset %d, want %d", b.BaseOffset, s.next)
	}
	if b.Epoch != s.id.Epoch { // which no checksum covers
		return fmt.Errorf("the batch at offset %d is of epoch %d, want the snapshot's, %d", b.BaseOffset, b.Epoch, s.id.Epoch)
	}
	s.next = b.LastOffset + 1
	for _, c := range b.Control {
		if err := s.control(c); err != nil {
			return err
		}
	}
	for i, r := range b.Records {
		if err := s.inFrame(); err != nil {
			return fmt.Errorf("record at offset %d: %w", b.BaseOffset+ident.Offset(i), err)
		}
		if err := s.delta.Replay(r); err != nil {
			return fmt.Errorf("record at offset %d: %w", b.BaseOffset+ident.Offset(i), err)
		}
	}
	return nil
}

// inFrame says whether what comes now is between header and footer.
func (s *SnapshotReader) inFrame() error {
	switch {
	case !s.seen:
		return ErrSnapshotHeader
	case s.footer:
		return ErrSnapshotFooter
	}
	return nil
}

func (s *SnapshotReader) control(c ControlRecord) error {
	if c.Type != batch.SnapshotHeaderType || s.seen {
		if err := s.inFrame(); err != nil {
			return fmt.Errorf("control record of type %d: %w", c.Type, err)
		}
	}
	switch c.Type {
	case batch.SnapshotHeaderType:
		if s.seen {
			return errors.New("it has a second header")
		}
		h, err := batch.DecodeSnapshotHeader(c.Value)
		s.header.LastContainedLogTimestamp, s.seen = h.LastContainedLogTimestamp, true
		return err
	case batch.KRaftVersionType:
		v, err := batch.DecodeKRaftVersion(c.Value)
		s.header.KRaftVersion = v.KRaftVersion
		return err
	case batch.VotersType:
		v, err := batch.DecodeVoters(c.Value)
		s.header.Voters = &v
		return err
	case batch.SnapshotFooterType:
		_, err := batch.DecodeSnapshotFooter(c.Value)
		s.footer = true
		return err
	}
	return fmt.Errorf("control record of type %d does not belong into a snapshot", c.Type)
}
