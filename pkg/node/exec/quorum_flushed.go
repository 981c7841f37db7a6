package exec

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// flushedPoint is an offset below which the metadata log is known to have been on the disk. Damage that lies there is
// none that a crash has torn, whatever it looks like: a sector of zeros, or an end that is missing, would else be cut
// off, and with it what this voter has acknowledged. It is Kafka's file of recovery points with the one entry, beside
// the log.
type flushedPoint struct {
	fs  vfs.FS
	dir string
	at  ident.Offset // as the file has it
	due ident.Instant
	// opening: the log is being opened. lost is what that found.
	opening bool
	lost    error
}

// flushedPointInterval is how often it is raised at most: a metadata log has a flush for each commit, and one for the
// point each time would be twice as many.
const flushedPointInterval = ident.Instant(30e9)

var metadataPartition = log.TopicIndex{Topic: ident.MetadataTopic, Index: 0}

// readFlushedPoint reads the file. One that can't be understood says nothing, which it returns as a note.
func readFlushedPoint(fsys vfs.FS, dir string) (p *flushedPoint, note string, err error) {
	p = &flushedPoint{fs: fsys, dir: dir, opening: true}
	points, err := log.ReadOffsetCheckpoint(fsys, dir, log.RecoveryPointCheckpointFile)
	if errors.Is(err, log.ErrCorrupt) {
		return p, fmt.Sprintf("up to where the metadata log was flushed is not known: %v", err), nil
	}
	p.at = points[metadataPartition]
	return p, "", err
}

func (p *flushedPoint) write(at ident.Offset) error {
	err := p.store(at)
	if err == nil {
		p.at = at
	}
	return err
}

// store writes the file and leaves it to the caller to note that.
func (p *flushedPoint) store(at ident.Offset) error {
	return log.WriteOffsetCheckpoint(p.fs, p.dir, log.RecoveryPointCheckpointFile, map[log.TopicIndex]ident.Offset{metadataPartition: at})
}

// QuorumFlush is a flush of the metadata log, between BeginFlush and EndFlush.
type QuorumFlush struct {
	log *log.PendingFlush
	end ident.Offset
	// point is to be raised to end, nil when it is not time. No truncation lowers it meanwhile: they wait for EndFlush.
	point *flushedPoint
}

// Sync does the flush. It may run beside other calls of the Quorum, but for EndFlush and Close.
func (f *QuorumFlush) Sync() error {
	if err := f.log.Sync(); err != nil || f.point == nil {
		return err
	}
	if err := f.point.store(f.end); err != nil {
		return fmt.Errorf("write down what is flushed: %w", err)
	}
	return nil
}

// flushing returns the point if the flush that begins now, up to an offset, is to raise it.
func (p *flushedPoint) flushing(now ident.Instant, end ident.Offset) *flushedPoint {
	if end <= p.at || now < p.due {
		return nil
	}
	p.due = now + flushedPointInterval
	return p
}

// lower is log.Config.LowerCheckpoints.
func (p *flushedPoint) lower(end, _ ident.Offset) error {
	if end >= p.at {
		return nil
	}
	if p.opening {
		p.lost = fmt.Errorf("the metadata log in %s ends at offset %d, but had been flushed up to %d: it has lost its end, and with it "+
			"what this voter has acknowledged; restore the directory, or remove this voter and add it with a new one (%s says so)",
			p.dir, end, p.at, filepath.Join(p.dir, log.RecoveryPointCheckpointFile))
		return p.lost
	}
	p.due = 0 // it will be raised with the next flush
	return p.write(end)
}
