package log

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// Suffixes of the files of a log, Kafka's. The stem is the base offset in 20 digits.
const (
	logSuffix       = ".log"
	indexSuffix     = ".index"
	timeIndexSuffix = ".timeindex"
	snapshotSuffix  = ".snapshot"
	abortsSuffix    = ".txnindex" // Kafka's index of aborted transactions, which is kept and not used
	deletedSuffix   = ".deleted"  // Kafka renames a file before it removes it
	cleanedSuffix   = ".cleaned"  // a compacted segment, half made
	swapSuffix      = ".swap"     // a compacted segment, made and not yet in place
	tempSuffix      = ".tmp"
)

func renameIfThere(fsys vfs.FS, oldName, newName string) error {
	if err := fsys.Rename(oldName, newName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func fileName(o ident.Offset, suffix string) string { return fmt.Sprintf("%020d%s", o, suffix) }

// parseFileName returns the offset in a name with this suffix.
func parseFileName(name, suffix string) (ident.Offset, bool) {
	stem, ok := strings.CutSuffix(name, suffix)
	if !ok || len(stem) != 20 {
		return 0, false
	}
	o, err := strconv.ParseUint(stem, 10, 63)
	return ident.Offset(o), err == nil
}

// DirName is the name of the directory of a partition, below the data directory.
func DirName(topic string, index int32) string { return fmt.Sprintf("%s-%d", topic, index) }

// ParseDirName takes a partition's directory name apart. Names that Kafka uses for other ends, like
// "<topic>-<index>.<id>-delete", are not partitions.
func ParseDirName(name string) (topic string, index int32, err error) {
	dash := strings.LastIndexByte(name, '-')
	if dash <= 0 {
		return "", 0, fmt.Errorf("directory %q: want <topic>-<index>", name)
	}
	n, err := strconv.ParseUint(name[dash+1:], 10, 31)
	if err != nil || name[dash+1:] != strconv.FormatUint(n, 10) {
		return "", 0, fmt.Errorf("directory %q: want <topic>-<index>", name)
	}
	return name[:dash], int32(n), nil
}
