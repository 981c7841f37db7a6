package sim

import (
	"io/fs"
	"strings"

	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// unsyncedFS takes some syncs for done.
type unsyncedFS struct {
	vfs.FS
	// skip says which files are not synced.
	skip func(path string) bool
	// renamed: the last thing that happened in the directory was such a file's rename.
	renamed bool
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

// Rename notes what SyncDir will then not do.
func (u *unsyncedFS) Rename(oldName, newName string) error {
	u.renamed = u.skip(newName)
	return u.FS.Rename(oldName, newName)
}

// SyncDir does nothing right after a rename of a file that is not synced.
func (u *unsyncedFS) SyncDir(name string) error {
	if u.renamed {
		u.renamed = false
		return nil
	}
	return u.FS.SyncDir(name)
}

// mutantDisk breaks the rule that a mutant names, if it is one of the disk's.
func mutantDisk(fsys vfs.FS, m raft.Mutant) vfs.FS {
	switch m {
	case MutateVoteUnsynced:
		return &unsyncedFS{FS: fsys, skip: func(path string) bool { return strings.Contains(path, exec.QuorumStateFile) }}
	case MutateLogUnsynced:
		return &unsyncedFS{FS: fsys, skip: func(path string) bool { return strings.HasSuffix(path, ".log") }}
	case MutateSnapshotUnsynced:
		return &unsyncedFS{FS: fsys, skip: func(path string) bool { return strings.HasSuffix(path, metadata.PartialSnapshotSuffix) }}
	}
	return fsys
}
