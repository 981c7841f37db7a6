package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// installsFile keeps, in the metadata directory, the installs of snapshots that are under way or whose end nobody has
// acknowledged. It is not there when there are none.
const installsFile = "snapshot-installs.json"

// installRecord is one install as the disk keeps it.
type installRecord struct {
	ID ident.UUID `json:"id"`
	// Snapshot that was offered last.
	Snapshot snapshotName `json:"snapshotId"`
	// Target is the end of what was committed when the install began: it is over when that has been applied.
	Target    ident.Offset `json:"targetOffset"`
	StartedAt time.Time    `json:"startedAt"`
	// End is nil while the install is under way; only the last record's may be.
	End *installEnd `json:"end,omitempty"`
}

// installEnd is when an install was over, and how large its snapshot was, 0 when it came to its end without one.
type installEnd struct {
	At    time.Time `json:"at"`
	Bytes int64     `json:"bytes"`
}

func (r *installRecord) duration(until time.Time) time.Duration {
	return max(0, until.Sub(r.StartedAt)) // the clock may have been set back since
}

// snapshotName is a snapshot's id in text, as its file is called.
type snapshotName metadata.SnapshotID

func (s snapshotName) String() string { return metadata.SnapshotID(s).String() }

// MarshalText makes it a string in JSON.
func (s snapshotName) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (s *snapshotName) UnmarshalText(text []byte) error {
	id, ok := metadata.ParseSnapshotName(string(text) + metadata.SnapshotSuffix)
	if !ok {
		return fmt.Errorf("snapshot id %q: want <end offset, 20 digits>-<epoch, 10 digits>", text)
	}
	*s = snapshotName(id)
	return nil
}

// keptInstalls bounds the file: with more ends that nobody acknowledges the oldest go, untold.
const keptInstalls = 64

// installRecords are the records and their file.
type installRecords struct {
	fs   vfs.FS
	path string
	all  []installRecord
}

type installsContent struct {
	Version  int             `json:"version"`
	Installs []installRecord `json:"installs"`
}

const installsVersion = 1

// errInstallRecords is wrapped when the file is there and is not what this version writes. It holds only what is to be
// told, so a node goes on without.
var errInstallRecords = errors.New("the record of snapshot installs can't be used")

// readInstallRecords reads the file of a metadata directory. With an error of errInstallRecords there are no records,
// and the next change replaces the file.
func readInstallRecords(fsys vfs.FS, dir string) (*installRecords, error) {
	r := &installRecords{fs: fsys, path: filepath.Join(dir, installsFile)}
	raw, err := vfs.ReadFile(fsys, r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	var content installsContent
	if err := json.Unmarshal(raw, &content); err != nil {
		return r, fmt.Errorf("%s: %w: %w", r.path, errInstallRecords, err)
	}
	if content.Version != installsVersion {
		return r, fmt.Errorf("%s: %w: it is of version %d, and this is version %d", r.path, errInstallRecords, content.Version, installsVersion)
	}
	for i := range content.Installs[:max(0, len(content.Installs)-1)] {
		if content.Installs[i].End == nil {
			return r, fmt.Errorf("%s: %w: install %s has no end and is not the last", r.path, errInstallRecords, content.Installs[i].ID)
		}
	}
	r.all = content.Installs
	return r, nil
}

// active is the install that is under way, nil when there is none.
func (r *installRecords) active() *installRecord {
	if n := len(r.all); n > 0 && r.all[n-1].End == nil {
		return &r.all[n-1]
	}
	return nil
}

// has says whether an install is recorded.
func (r *installRecords) has(id ident.UUID) bool {
	return slices.ContainsFunc(r.all, func(i installRecord) bool { return i.ID == id })
}

// begin records a new install. Like the other changes it is on the disk when it returns, and in memory only then.
func (r *installRecords) begin(record installRecord) error {
	all := append(slices.Clone(r.all), record)
	return r.save(all[max(0, len(all)-keptInstalls):])
}

// offered records another snapshot, or more to be applied, for the install that is under way.
func (r *installRecords) offered(id snapshotName, target ident.Offset) error {
	all := slices.Clone(r.all)
	last := &all[len(all)-1]
	last.Snapshot, last.Target = id, max(last.Target, target)
	return r.save(all)
}

// end records that the install that is under way is over.
func (r *installRecords) end(e installEnd) error {
	all := slices.Clone(r.all)
	all[len(all)-1].End = &e
	return r.save(all)
}

// forget drops installs.
func (r *installRecords) forget(gone func(ident.UUID) bool) error {
	all := slices.DeleteFunc(slices.Clone(r.all), func(i installRecord) bool { return gone(i.ID) })
	if len(all) == len(r.all) {
		return nil
	}
	return r.save(all)
}

func (r *installRecords) save(all []installRecord) error {
	if err := r.write(all); err != nil {
		return fmt.Errorf("record of snapshot installs: %w", err)
	}
	r.all = all
	return nil
}

func (r *installRecords) write(all []installRecord) error {
	if len(all) == 0 {
		if err := r.fs.Remove(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return r.fs.SyncDir(filepath.Dir(r.path))
	}
	raw, err := json.Marshal(installsContent{installsVersion, all})
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(r.fs, r.path, append(raw, '\n'))
}
