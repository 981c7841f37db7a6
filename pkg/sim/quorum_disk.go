package sim

import (
	"io/fs"
	"strings"

	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// unsyncedFS takes syncs of some files for done.
type unsyncedFS struct {
	vfs.FS
	skip func(path string) bool
}

type unsyncedFile struct{ vfs.File }

// Sync does nothing.
func (unsyncedFile) Sync() error { return nil }

// OpenFile opens a file whose Sync may do nothing.
func (u *unsyncedFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := u.FS.OpenFile(name, flag, perm)
	if err == nil && u.skip(name) {
		f = unsyncedFile{f}
	}
	return f, err
}

// SyncDir does nothing where skip says so of the directory's vote.
func (u *unsyncedFS) SyncDir(name string) error {
	if u.skip(name + "/" + exec.QuorumStateFile) {
		return nil
	}
	return u.FS.SyncDir(name)
}

// mutantDisk breaks the rule that a mutant names, if it is one of the disk's.
func mutantDisk(fsys vfs.FS, m raft.Mutant) vfs.FS {
	switch m {
	case MutateVoteUnsynced:
		return &unsyncedFS{fsys, func(path string) bool { return strings.Contains(path, exec.QuorumStateFile) }}
	case MutateLogUnsynced:
		return &unsyncedFS{fsys, func(path string) bool { return strings.HasSuffix(path, ".log") }}
	}
	return fsys
}
