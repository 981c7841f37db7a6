package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/highwater-io/highwater/pkg/vfs"
)

// mutant is a log or an owner with one mistake in it. A proof that lets one live proves nothing.
type mutant struct {
	name, mistake string
	owner         ownerMistake

	// A disk that lies: these calls succeed and do nothing.
	dropSync    func(path string) bool
	dropSyncDir func(path string) bool
	// afterTruncate drops a sync that directly follows a truncation of the file.
	afterTruncate bool

	// A change of the source: in file, the one place where from stands is built as to.
	file, from, to string
}

// ownerMistake is one that the owner of the logs makes.
type ownerMistake int

const (
	markLeftDuringLoad ownerMistake = iota + 1
	markBeforeClose
	recoveryPointBeforeSync
	pointOutlivesTruncation
)

func (m *mutant) is(mistake ownerMistake) bool { return m != nil && m.owner == mistake }

func hasSuffix(suffix string) func(string) bool {
	return func(path string) bool { return strings.HasSuffix(path, suffix) }
}

func isDir(want bool) func(string) bool {
	return func(path string) bool { return (filepath.Clean(path) == dataDir) == want }
}

var mutants = []*mutant{
	{name: "no-sync", mistake: "segments are never synced", dropSync: hasSuffix(".log")},
	{name: "no-partition-dir-sync", mistake: "a partition's directory is never synced", dropSyncDir: isDir(false)},
	{name: "no-data-dir-sync", mistake: "the data directory is never synced, not after the mark of a clean shutdown was removed either", dropSyncDir: isDir(true)},
	{name: "epochs-renamed-unsynced", mistake: "leader epochs are renamed into place before they are synced", dropSync: hasSuffix("leader-epoch-checkpoint.tmp")},
	{name: "checkpoints-renamed-unsynced", mistake: "offset checkpoints are renamed into place before they are synced", dropSync: hasSuffix("-offset-checkpoint.tmp")},
	{name: "truncation-not-synced", mistake: "a truncated segment is not synced", afterTruncate: true},
	{name: "cleaned-renamed-unsynced", mistake: "a compacted segment takes the place of the old ones before it is synced", dropSync: hasSuffix(".log.cleaned")},
	{name: "recovery-point-before-sync", mistake: "the recovery point is written before the data below it is synced", owner: recoveryPointBeforeSync},
	{name: "point-outlives-truncation", mistake: "the recovery point is not lowered before the log is truncated", owner: pointOutlivesTruncation},
	{name: "start-before-flush", mistake: "a log start is written down before a flush has covered it",
		file: "test/crashlog/owner.go", from: "l.DurableStartOffset()", to: "l.StartOffset()"},
	{name: "mark-left-during-load", mistake: "the mark of a clean shutdown stays until the logs are loaded (KAFKA-10471)", owner: markLeftDuringLoad},
	{name: "mark-before-close", mistake: "the mark of a clean shutdown is written before the logs are closed", owner: markBeforeClose},

	{name: "mark-removal-not-synced", mistake: "the mark of a clean shutdown is removed without a sync of its directory",
		file: "pkg/log/datadir.go", from: "if err := fsys.SyncDir(dataDir); err != nil {", to: "if err := error(nil); err != nil {"},
	{name: "checksum-not-checked", mistake: "recovery does not look at checksums",
		file: "pkg/log/check.go", from: "return batch.CheckCRC(crc, h), nil", to: "return nil, nil"},
	{name: "index-trusted", mistake: "index entries are followed without a look at the batch they lead to",
		file: "pkg/log/lookup.go", from: "if indexed && (err != nil || h.BaseOffset > o) {", to: "if indexed && false {"},
	{name: "time-index-trusted", mistake: "time entries are believed without a look at the batch that they are of",
		file: "pkg/log/timestamp.go", from: "if m.known && (m.wrong || !m.met) {", to: "if false {"},
	{name: "recovery-not-synced", mistake: "what recovery has found is called flushed without a sync",
		file: "pkg/log/open.go", from: "	l.dirDirty = true\n	_, err := l.Flush()\n	return err\n", to: "	return nil\n"},
	{name: "epochs-after-flush", mistake: "a flush tells of its offset without the leader epochs below it",
		file: "pkg/log/flush.go", from: "if f.epochs != nil && f.number > f.syncs.epochsOf {", to: "if false {"},
	{name: "sealed-not-flushed", mistake: "a flush syncs the last segment alone",
		file: "pkg/log/flush.go", from: "for _, h := range f.files {\n\t\tif err := h.file.Sync()", to: "for _, h := range f.files[max(0, len(f.files)-1):] {\n\t\tif err := h.file.Sync()"},
	{name: "torn-tail-left", mistake: "what a crash has torn stays in the file behind the log's end",
		file: "pkg/log/recover.go", from: "if err := s.file().Truncate(d.pos); err != nil {", to: "if err := error(nil); err != nil {"},
	{name: "snapshots-outlive-truncation", mistake: "producer snapshots beyond the end stay after a truncation",
		file: "pkg/log/truncate.go", from: "if err := l.removeSnapshotsAbove(end); err != nil {", to: "if err := error(nil); err != nil {"},
	{name: "epochs-outlive-truncation", mistake: "leader epochs beyond the end stay after a truncation",
		file: "pkg/log/truncate.go", from: "	l.epochs.TruncateFromEnd(end)\n", to: ""},
	{name: "producers-before-a-gap", mistake: "producer state is taken from a snapshot though batches after it are gone",
		file: "pkg/log/producers.go", from: "if newest < from {", to: "if false {"},
	{name: "forgotten-epochs", mistake: "leader epochs that were forgotten with a start that a crash takes back stay forgotten",
		file: "pkg/log/open.go", from: "if _, ok := l.epochs.EpochAt(l.start); !ok && l.start < end {", to: "if false {"},
	{name: "start-believed", mistake: "a log start is believed whatever the files say",
		file: "pkg/log/trust.go", from: "if said <= first || l.cfg.StopOnCorruption {", to: "if true {"},
	{name: "last-of-key-removed", mistake: "compaction removes the last record of a key too",
		file: "pkg/log/cleanrun.go", from: "latest > r.Offset {", to: "latest >= r.Offset {"},
	{name: "producer-end-removed", mistake: "compaction keeps a producer's last batch alone, though it lies behind and a crash may take it",
		file: "pkg/log/cleanrun.go", from: "if end.last < c.Stats.To {", to: "if true {"},
}

func mutantNamed(name string) *mutant {
	for _, m := range mutants {
		if m.name == name {
			return m
		}
	}
	return nil
}

// disk is the disk as the mutant sees it.
func (m *mutant) disk(mem *vfs.Mem) vfs.FS {
	if m == nil || m.dropSync == nil && m.dropSyncDir == nil && !m.afterTruncate {
		return mem
	}
	return &lyingFS{mem, m}
}

type lyingFS struct {
	vfs.FS
	m *mutant
}

type lyingFile struct {
	vfs.File
	m         *mutant
	truncated bool
}

func (f *lyingFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil || flag&(os.O_WRONLY|os.O_RDWR) == 0 {
		return file, err
	}
	return &lyingFile{File: file, m: f.m}, nil
}

func (f *lyingFS) SyncDir(name string) error {
	if f.m.dropSyncDir != nil && f.m.dropSyncDir(name) {
		return nil
	}
	return f.FS.SyncDir(name)
}

func (f *lyingFile) Truncate(size int64) error {
	f.truncated = true
	return f.File.Truncate(size)
}

func (f *lyingFile) WriteAt(p []byte, off int64) (int, error) {
	f.truncated = false
	return f.File.WriteAt(p, off)
}

func (f *lyingFile) Sync() error {
	truncated := f.truncated
	f.truncated = false
	if f.m.afterTruncate && truncated || f.m.dropSync != nil && f.m.dropSync(f.Name()) {
		return nil
	}
	return f.File.Sync()
}
