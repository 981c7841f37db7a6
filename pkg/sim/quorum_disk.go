package sim

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"strings"

	"github.com/highwater-io/highwater/pkg/batch"
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

// uncheckedFS gives the batches of a snapshot the checksums that they have: to whoever reads them it is as if nobody
// looked.
type uncheckedFS struct{ vfs.FS }

// OpenFile opens a snapshot as one in which every checksum is right.
func (u uncheckedFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := u.FS.OpenFile(name, flag, perm)
	if err == nil && strings.HasSuffix(name, metadata.SnapshotSuffix) {
		f = uncheckedFile{f}
	}
	return f, err
}

type uncheckedFile struct{ vfs.File }

// ReadAt reads with the checksums made right.
func (f uncheckedFile) ReadAt(b []byte, at int64) (int, error) {
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	whole := make([]byte, size)
	if _, err := f.File.ReadAt(whole, 0); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	for rest := whole; len(rest) >= batch.HeaderSize; {
		length := int64(batch.LogOverhead) + int64(int32(binary.BigEndian.Uint32(rest[8:])))
		if length < batch.HeaderSize || length > int64(len(rest)) {
			break
		}
		binary.BigEndian.PutUint32(rest[batch.CRCStart-4:], batch.UpdateCRC(0, rest[batch.CRCStart:length]))
		rest = rest[length:]
	}
	if at >= size {
		return 0, io.EOF
	}
	n := copy(b, whole[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
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
	case MutateRottenLoaded:
		return uncheckedFS{fsys}
	}
	return fsys
}
