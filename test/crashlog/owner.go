package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/vfs"
)

const dataDir = "/data"

// owner is a node as its data directory sees it: it takes the mark of a clean shutdown, reads the checkpoints, opens
// the logs; later it writes checkpoints, and it closes the logs before it leaves the mark.
type owner struct {
	fsys       vfs.FS
	settings   *settings
	mutant     *mutant
	clean      bool
	files      map[string]map[log.TopicIndex]ident.Offset
	logs       []*log.Log
	recoveries []log.Recovery
}

// cleanerCheckpoint has the offsets up to which logs are compacted.
const cleanerCheckpoint = "cleaner-offset-checkpoint"

var checkpointFiles = []string{log.RecoveryPointCheckpointFile, log.LogStartCheckpointFile, log.HighWatermarkCheckpointFile, cleanerCheckpoint}

func topicIndex(i int) log.TopicIndex { return log.TopicIndex{Topic: "t", Index: int32(i)} }

func partitionDir(i int) string { return filepath.Join(dataDir, log.DirName("t", int32(i))) }

// startOwner opens what is on the disk. An error is the first that a log's Open returned.
func startOwner(fsys vfs.FS, s *settings, m *mutant) (*owner, error) {
	o := &owner{fsys: fsys, settings: s, mutant: m, files: map[string]map[log.TopicIndex]ident.Offset{}}
	if err := fsys.MkdirAll(dataDir, 0o755); err != nil {
		return o, err
	}
	if err := fsys.SyncDir("/"); err != nil {
		return o, err
	}
	var err error
	if m.is(markLeftDuringLoad) {
		_, statErr := fsys.Stat(filepath.Join(dataDir, log.CleanShutdownFile))
		o.clean = statErr == nil
	} else if _, o.clean, err = log.TakeCleanShutdown(fsys, dataDir); err != nil {
		return o, err
	}
	for _, name := range checkpointFiles {
		o.files[name], err = log.ReadOffsetCheckpoint(fsys, dataDir, name)
		if errors.Is(err, log.ErrCorrupt) { // counts as missing
			o.files[name], err = map[log.TopicIndex]ident.Offset{}, nil
		}
		if err != nil {
			return o, err
		}
	}
	for i := range s.partitions {
		recoveryPoint := o.files[log.RecoveryPointCheckpointFile][topicIndex(i)]
		if s.stopOnCorruption {
			recoveryPoint = 0 // nobody writes one down for a metadata log: it is scanned whole
		}
		l, recovery, err := log.Open(fsys, partitionDir(i), log.Config{
			Settings:      s.log(),
			StartOffset:   o.files[log.LogStartCheckpointFile][topicIndex(i)],
			RecoveryPoint: recoveryPoint,
			Files:         log.NewFiles(1, 1), ChoresApart: s.choresApart, // so that nothing stays open
			CleanOffset:   o.files[cleanerCheckpoint][topicIndex(i)],
			CleanShutdown: o.clean, StopOnCorruption: s.stopOnCorruption,
			LowerCheckpoints: func(recoveryPoint, start ident.Offset) error { return o.lower(i, recoveryPoint, start) },
		})
		if err != nil {
			return o, fmt.Errorf("start: %w", err)
		}
		o.logs, o.recoveries = append(o.logs, l), append(o.recoveries, recovery)
	}
	if m.is(markLeftDuringLoad) && o.clean {
		_, _, err = log.TakeCleanShutdown(fsys, dataDir)
	}
	return o, err
}

// note takes over where the logs stand, as the checkpoints will say.
func (o *owner) note() {
	for i, l := range o.logs {
		o.files[log.RecoveryPointCheckpointFile][topicIndex(i)] = l.FlushedOffset()
		if o.mutant.is(recoveryPointBeforeSync) {
			o.files[log.RecoveryPointCheckpointFile][topicIndex(i)] = l.EndOffset()
		}
		o.files[log.LogStartCheckpointFile][topicIndex(i)] = l.DurableStartOffset()
		o.files[log.HighWatermarkCheckpointFile][topicIndex(i)] = l.EndOffset()
		o.files[cleanerCheckpoint][topicIndex(i)] = l.CleanOffset()
	}
}

func (o *owner) checkpoint() error {
	o.note()
	for _, name := range checkpointFiles {
		if err := log.WriteOffsetCheckpoint(o.fsys, dataDir, name, o.files[name]); err != nil {
			return err
		}
	}
	return nil
}

// lower writes down that a log will be truncated, before it is.
func (o *owner) lower(i int, recoveryPoint, start ident.Offset) error {
	if o.mutant.is(pointOutlivesTruncation) {
		recoveryPoint = o.files[log.RecoveryPointCheckpointFile][topicIndex(i)]
	}
	for _, name := range []string{log.RecoveryPointCheckpointFile, log.LogStartCheckpointFile, cleanerCheckpoint} {
		to := start
		if name != log.LogStartCheckpointFile {
			to = recoveryPoint
		}
		if o.files[name][topicIndex(i)] <= to {
			continue
		}
		o.files[name][topicIndex(i)] = to
		if err := log.WriteOffsetCheckpoint(o.fsys, dataDir, name, o.files[name]); err != nil {
			return err
		}
	}
	return nil
}

func (o *owner) stop() error {
	mark := func() error { return log.WriteCleanShutdown(o.fsys, dataDir, 7) }
	if o.mutant.is(markBeforeClose) {
		if err := mark(); err != nil {
			return err
		}
	}
	for _, l := range o.logs {
		if err := l.Close(); err != nil {
			return err
		}
	}
	if err := o.checkpoint(); err != nil {
		return err
	}
	if o.mutant.is(markBeforeClose) {
		return nil
	}
	return mark()
}
