package log

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/highwater-io/highwater/pkg/epoch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// EpochCheckpointFile holds a log's leader epochs: "0", the number of entries, then "<epoch> <start offset>".
const EpochCheckpointFile = "leader-epoch-checkpoint"

// LatestEpoch is the last leader epoch, ident.UnknownEpoch when there is none.
func (l *Log) LatestEpoch() ident.Epoch {
	e, _ := l.epochs.Latest()
	return e
}

// EpochEndOffset returns the largest epoch that is not above e, and where it ends; see epoch.Table.EndOffsetFor.
func (l *Log) EpochEndOffset(e ident.Epoch) (ident.Epoch, ident.Offset, bool) {
	return l.epochs.EndOffsetFor(e, l.active().next)
}

// EpochAt returns the leader epoch in which the record at offset o was written.
func (l *Log) EpochAt(o ident.Offset) (ident.Epoch, bool) { return l.epochs.EpochAt(o) }

// Epochs returns all leader epochs and where they start.
func (l *Log) Epochs() []epoch.Entry { return l.epochs.Entries() }

// AssignEpoch notes that leader epoch e starts at the log's end. A leader does so when it becomes one, before it
// writes, or back-to-back elections would hide an epoch (KAFKA-7415). It is durable with the next flush; without
// a record in it, a restart forgets it.
func (l *Log) AssignEpoch(e ident.Epoch) error {
	if l.err != nil {
		return l.err
	}
	if latest, ok := l.epochs.Latest(); ok && e < latest {
		return fmt.Errorf("log %s: leader epoch %d after %d", l.dir, e, latest)
	}
	if l.epochs.Assign(e, l.active().next) {
		l.epochsDirty = true
	}
	return nil
}

func (l *Log) writeEpochs() error {
	l.syncs.mu.Lock()
	defer l.syncs.mu.Unlock()
	l.syncs.epochsOf = l.flushes
	l.epochsDirty, l.dirDirty = false, false // the file's directory is synced with it
	if err := vfs.WriteFileAtomic(l.fsys, filepath.Join(l.dir, EpochCheckpointFile), encodeEpochs(l.epochs.Entries())); err != nil {
		return l.poison("write leader epochs", err)
	}
	return nil
}

func encodeEpochs(entries []epoch.Entry) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "0\n%d\n", len(entries))
	for _, e := range entries {
		fmt.Fprintf(&b, "%d %d\n", e.Epoch, e.Start)
	}
	return []byte(b.String())
}

func decodeEpochs(data []byte) (*epoch.Table, error) {
	var entries []epoch.Entry
	err := parseCheckpoint(data, func(fields []string) error {
		e, err := parseInts(fields, 31, 63)
		if err == nil {
			entries = append(entries, epoch.Entry{Epoch: ident.Epoch(e[0]), Start: ident.Offset(e[1])})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return epoch.New(entries)
}

// readEpochs reads the table; it is nil, without error, when there is no file.
func readEpochs(fsys vfs.FS, dir string) (*epoch.Table, error) {
	data, err := vfs.ReadFile(fsys, filepath.Join(dir, EpochCheckpointFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	t, err := decodeEpochs(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, EpochCheckpointFile, err)
	}
	return t, nil
}
