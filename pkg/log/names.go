package log

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Suffixes of the files of a log, Kafka's. The stem is the base offset in 20 digits.
const (
	logSuffix       = ".log"
	indexSuffix     = ".index"
	timeIndexSuffix = ".timeindex"
	snapshotSuffix  = ".snapshot"
	deletedSuffix   = ".deleted" // Kafka renames a file before it removes it
	cleanedSuffix   = ".cleaned" // half-made by Kafka's log cleaner
	swapSuffix      = ".swap"    // made by Kafka's log cleaner, not yet in place
	tempSuffix      = ".tmp"
)

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
