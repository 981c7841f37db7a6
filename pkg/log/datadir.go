package log

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// Names of the files that say whose a directory is.
const (
	MetaPropertiesFile    = "meta.properties"
	CleanShutdownFile     = ".kafka_cleanshutdown"
	PartitionMetadataFile = "partition.metadata"
)

// ErrLaterVersion says that a file has a format that a later version of Highwater, or of Kafka, wrote. Nothing is wrong
// with it.
var ErrLaterVersion = errors.New("a later version wrote it")

// knownVersion checks a file's version against the only one that is known.
func knownVersion(found, known string) error {
	if found == known {
		return nil
	}
	have, err := strconv.Atoi(found)
	if want, _ := strconv.Atoi(known); err == nil && have > want {
		return fmt.Errorf("%w: its version is %d, this program knows %s", ErrLaterVersion, have, known)
	}
	return fmt.Errorf("version is %q, only %s is known", found, known)
}

// MetaProperties says which node of which cluster a data directory belongs to: meta.properties, version 1.
type MetaProperties struct {
	ClusterID   string
	NodeID      ident.NodeID
	DirectoryID ident.UUID
}

// ReadMetaProperties reads the file. fs.ErrNotExist says that the directory was never formatted.
func ReadMetaProperties(fsys vfs.FS, dataDir string) (MetaProperties, error) {
	data, err := vfs.ReadFile(fsys, filepath.Join(dataDir, MetaPropertiesFile))
	if err != nil {
		return MetaProperties{}, err
	}
	m, err := decodeMetaProperties(data)
	if err != nil {
		return m, fmt.Errorf("%s in %s: %w", MetaPropertiesFile, dataDir, err)
	}
	return m, nil
}

func decodeMetaProperties(data []byte) (MetaProperties, error) {
	values := map[string]string{}
	for _, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return MetaProperties{}, fmt.Errorf("line %q is no key=value", line)
		}
		// Java escapes these in values.
		value = strings.NewReplacer(`\=`, "=", `\:`, ":", `\\`, `\`).Replace(strings.TrimSpace(value))
		values[strings.TrimSpace(key)] = value
	}
	if err := knownVersion(values["version"], "1"); err != nil {
		return MetaProperties{}, err
	}
	m := MetaProperties{ClusterID: values["cluster.id"]}
	if m.ClusterID == "" {
		return m, errors.New("cluster.id is missing")
	}
	id, err := strconv.ParseUint(values["node.id"], 10, 31)
	if err != nil {
		return m, fmt.Errorf("node.id %q: want a number from 0 on", values["node.id"])
	}
	m.NodeID = ident.NodeID(id)
	// Directories from before KIP-858 have none.
	if d := values["directory.id"]; d != "" {
		if m.DirectoryID, err = ident.ParseUUID(d); err != nil {
			return m, fmt.Errorf("directory.id: %w", err)
		}
	}
	return m, nil
}

// WriteMetaProperties writes the file, durably.
func WriteMetaProperties(fsys vfs.FS, dataDir string, m MetaProperties) error {
	text := fmt.Sprintf("#\nnode.id=%d\ndirectory.id=%s\nversion=1\ncluster.id=%s\n", m.NodeID, m.DirectoryID, m.ClusterID)
	return vfs.WriteFileAtomic(fsys, filepath.Join(dataDir, MetaPropertiesFile), []byte(text))
}

// CleanShutdown is the mark that a data directory's logs were all closed. BrokerEpoch is the node's last one,
// -1 when unknown (KIP-966).
type CleanShutdown struct {
	Version     int   `json:"version"`
	BrokerEpoch int64 `json:"brokerEpoch"`
}

// TakeCleanShutdown reads the mark and removes it, durably: a crash while the logs are being loaded must not
// look clean (KAFKA-10471). ok is false when there is none, or none that can be read.
func TakeCleanShutdown(fsys vfs.FS, dataDir string) (mark CleanShutdown, ok bool, err error) {
	name := filepath.Join(dataDir, CleanShutdownFile)
	data, err := vfs.ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return CleanShutdown{BrokerEpoch: -1}, false, nil
	}
	if err != nil {
		return CleanShutdown{BrokerEpoch: -1}, false, err
	}
	if err := fsys.Remove(name); err != nil {
		return CleanShutdown{BrokerEpoch: -1}, false, err
	}
	if err := fsys.SyncDir(dataDir); err != nil {
		return CleanShutdown{BrokerEpoch: -1}, false, err
	}
	if json.Unmarshal(data, &mark) != nil || mark.Version != 0 {
		return CleanShutdown{BrokerEpoch: -1}, false, nil
	}
	return mark, true, nil
}

// WriteCleanShutdown writes the mark; all logs must be closed, and the checkpoints written, before.
func WriteCleanShutdown(fsys vfs.FS, dataDir string, brokerEpoch int64) error {
	data, err := json.Marshal(CleanShutdown{BrokerEpoch: brokerEpoch})
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(fsys, filepath.Join(dataDir, CleanShutdownFile), data)
}

// ReadPartitionMetadata returns the id of the topic that a partition's directory belongs to. fs.ErrNotExist
// says that there is no file. Other errors wrap ErrLaterVersion or ErrCorrupt when the content is at fault.
func ReadPartitionMetadata(fsys vfs.FS, dir string) (ident.UUID, error) {
	data, err := vfs.ReadFile(fsys, filepath.Join(dir, PartitionMetadataFile))
	if err != nil {
		return ident.UUID{}, err
	}
	id, err := decodePartitionMetadata(data)
	if errors.Is(err, ErrLaterVersion) {
		return id, fmt.Errorf("%s in %s: %w", PartitionMetadataFile, dir, err)
	}
	if err != nil {
		return id, fmt.Errorf("%w: %s in %s: %w", ErrCorrupt, PartitionMetadataFile, dir, err)
	}
	return id, nil
}

func decodePartitionMetadata(data []byte) (ident.UUID, error) {
	var version, id string
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "version":
			version = strings.TrimSpace(value)
		case "topic_id":
			id = strings.TrimSpace(value)
		}
	}
	if err := knownVersion(version, "0"); err != nil {
		return ident.UUID{}, err
	}
	u, err := ident.ParseUUID(id)
	if err == nil && u.IsZero() {
		err = errors.New("topic_id is zero")
	}
	return u, err
}

// WritePartitionMetadata writes the file, durably. It is written before the first record.
func WritePartitionMetadata(fsys vfs.FS, dir string, topicID ident.UUID) error {
	return vfs.WriteFileAtomic(fsys, filepath.Join(dir, PartitionMetadataFile),
		[]byte(fmt.Sprintf("version: 0\ntopic_id: %s", topicID)))
}
