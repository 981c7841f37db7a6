package node

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// VolumeError says why a node does not start on the volume it was given. Reason is one word that the operator
// reads from the termination message.
type VolumeError struct {
	Reason  string
	Message string
}

func (e *VolumeError) Error() string { return e.Reason + ": " + e.Message }

// Reasons of a VolumeError.
const (
	VolumeLost       = "VolumeLost"
	VolumeForeign    = "VolumeForeign"
	WrongClusterID   = "WrongClusterId"
	WrongNodeID      = "WrongNodeId"
	WrongDirectoryID = "WrongDirectoryId"
	VolumeUnreadable = "VolumeUnreadable"
)

// openVolume checks whose directory it is, and formats an empty one when the permit allows it. The identity of a
// replica is its node id and its directory id together: a node that comes up on an empty volume without a permit
// is not the one that voted and acknowledged under this id, and must not pretend to be.
func openVolume(fsys vfs.FS, dir string, cfg *Config) error {
	found, err := log.ReadMetaProperties(fsys, dir)
	switch {
	case err == nil:
		return checkIdentity(dir, found, cfg)
	case errors.Is(err, log.ErrLaterVersion):
		return &VolumeError{VolumeUnreadable, fmt.Sprintf("%v; run the version that wrote it, or a newer one: nothing on it was touched", err)}
	case !errors.Is(err, fs.ErrNotExist):
		return &VolumeError{VolumeUnreadable, fmt.Sprintf("%v: the volume is damaged; restore it, or replace the node", err)}
	}
	used, err := holdsData(fsys, dir)
	if err != nil {
		return &VolumeError{VolumeUnreadable, fmt.Sprintf("%s can't be listed: %v", dir, err)}
	}
	if used != "" {
		return &VolumeError{VolumeForeign, fmt.Sprintf("%s has no meta.properties but holds %s: it is not this node's volume, and nothing on it is touched; mount the right volume, or empty this one if nobody needs what is there", dir, used)}
	}
	permitted, err := formatPermit(cfg.FormatPermitFile)
	switch {
	case err != nil:
		return &VolumeError{VolumeLost, fmt.Sprintf("%s is empty and the format permit can't be read: %v", dir, err)}
	case permitted != cfg.DirectoryID:
		return &VolumeError{VolumeLost, fmt.Sprintf("%s is empty although directory %s of node %d is in use: its data is gone; the node must be replaced under a new directory id", dir, cfg.DirectoryID, cfg.NodeID)}
	}
	return log.WriteMetaProperties(fsys, dir, log.MetaProperties{
		ClusterID: cfg.Shared.ClusterID.String(), NodeID: cfg.NodeID, DirectoryID: cfg.DirectoryID,
	})
}

func checkIdentity(dir string, found log.MetaProperties, cfg *Config) error {
	switch {
	case found.ClusterID != cfg.Shared.ClusterID.String():
		return &VolumeError{WrongClusterID, fmt.Sprintf("%s belongs to cluster %s, this node to %s: mount the right volume", dir, found.ClusterID, cfg.Shared.ClusterID)}
	case found.NodeID != cfg.NodeID:
		return &VolumeError{WrongNodeID, fmt.Sprintf("%s belongs to node %d, this is node %d: mount the right volume", dir, found.NodeID, cfg.NodeID)}
	case found.DirectoryID != cfg.DirectoryID:
		return &VolumeError{WrongDirectoryID, fmt.Sprintf("%s is directory %s, want %s: mount the right volume", dir, found.DirectoryID, cfg.DirectoryID)}
	}
	return nil
}

// harmless are entries that a new volume, or one whose formatting was interrupted, may hold.
func harmless(name string) bool {
	return name == "lost+found" || name == lockFile || strings.HasSuffix(name, ".tmp")
}

// holdsData names something on the volume that only a used one has; "" when there is nothing.
func holdsData(fsys vfs.FS, dir string) (string, error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return !harmless(e.Name()) })
	if i < 0 {
		return "", nil
	}
	return entries[i].Name(), nil
}

// formatPermit reads the directory id that may be formatted; the zero id when there is no permit.
func formatPermit(path string) (ident.UUID, error) {
	if path == "" {
		return ident.UUID{}, nil
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ident.UUID{}, nil
	}
	if err != nil {
		return ident.UUID{}, err
	}
	text := strings.TrimSpace(string(raw))
	if text == "" {
		return ident.UUID{}, nil
	}
	permitted, err := ident.ParseUUID(text)
	if err != nil {
		return ident.UUID{}, fmt.Errorf("format permit %s: %w", path, err)
	}
	return permitted, nil
}

// lockFile keeps a second process off the directory (Kafka's name).
const lockFile = ".lock"

// errLocked says that another process works on a directory.
var errLocked = errors.New("in use by another process")

// dirLocks are the locks of this process, one for each directory.
type dirLocks struct {
	fs   vfs.FS
	held map[string]io.Closer
}

// take locks a directory, once.
func (l *dirLocks) take(dir string) error {
	if l.held[dir] != nil {
		return nil
	}
	lock, err := l.fs.Lock(filepath.Join(dir, lockFile))
	var errno syscall.Errno
	switch {
	case err == nil:
	case errors.As(err, &errno) && errno != syscall.EWOULDBLOCK:
		return err
	default:
		return fmt.Errorf("%s is %w: %w; stop that process, or give this node the directory of its own", dir, errLocked, err)
	}
	if l.held == nil {
		l.held = map[string]io.Closer{}
	}
	l.held[dir] = lock
	return nil
}

func (l *dirLocks) release() {
	for _, lock := range l.held {
		_ = lock.Close()
	}
	l.held = nil
}

// reportVolume leaves a refused volume's reason where the operator finds it. Not being able to is no reason to hide
// the first error.
func reportVolume(path string, err *VolumeError) {
	if path == "" {
		return
	}
	f, openErr := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if openErr != nil {
		return
	}
	defer f.Close()
	fmt.Fprintln(f, err.Error())
}
