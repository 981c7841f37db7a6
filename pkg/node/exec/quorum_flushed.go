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
	err := log.WriteOffsetCheckpoint(p.fs, p.dir, log.RecoveryPointCheckpointFile, map[log.TopicIndex]ident.Offset{metadataPartition: at})
	if err == nil {
		p.at = at
	}
	return err
}

// raise follows a flush, when it is time.
func (p *flushedPoint) raise(now ident.Instant, flushed ident.Offset) error {
	if flushed <= p.at || now < p.due {
		return nil
	}
	p.due = now + flushedPointInterval
	return p.write(flushed)
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
