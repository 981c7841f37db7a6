package exec

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// kraftVersion is the version of the raft protocol that is written: voters in the log, with directory ids (KIP-853).
const kraftVersion = raft.KRaftVersion

func votersRecord(s raft.VoterSet) batch.Voters {
	var m batch.Voters
	for _, v := range s {
		r := batch.Voter{ID: v.Key.ID, DirectoryID: v.Key.DirectoryID, MaxKRaftVersion: kraftVersion}
		for _, e := range v.Endpoints {
			r.Endpoints = append(r.Endpoints, batch.VoterEndpoint(e))
		}
		m.Voters = append(m.Voters, r)
	}
	return m
}

func voterSet(m batch.Voters) (raft.VoterSet, error) {
	var vs []raft.Voter
	for _, r := range m.Voters {
		v := raft.Voter{Key: raft.ReplicaKey{ID: r.ID, DirectoryID: r.DirectoryID}}
		for _, e := range r.Endpoints {
			v.Endpoints = append(v.Endpoints, raft.Endpoint(e))
		}
		vs = append(vs, v)
	}
	return raft.NewVoterSet(vs...)
}

func voterKeys(ks []raft.ReplicaKey) []batch.VoterKey {
	out := make([]batch.VoterKey, len(ks))
	for i, k := range ks {
		out[i] = batch.VoterKey(k)
	}
	return out
}

// FormatQuorum prepares the directory of the metadata log of one of the first voters: the 0-0 checkpoint with
// the voters, durably, which the first leader will write into the log. A directory that has the same already is
// left alone; one that has another is refused.
func FormatQuorum(fsys vfs.FS, dir string, voters raft.VoterSet, wallMillis int64) error {
	if len(voters) == 0 {
		return errors.New("format the metadata log: no voters")
	}
	return format(fsys, dir, voters, wallMillis)
}

// FormatJoiner prepares the directory of the metadata log of a voter that is to be added to a quorum: a 0-0 checkpoint
// without voters. Until the log that it fetches says so it is a voter for nobody, itself included, so it neither votes
// nor stands. A directory that has a 0-0 checkpoint already is left alone.
func FormatJoiner(fsys vfs.FS, dir string, wallMillis int64) error {
	_, err := readBootstrap(fsys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return format(fsys, dir, nil, wallMillis)
	}
	return err
}

func format(fsys vfs.FS, dir string, voters raft.VoterSet, wallMillis int64) error {
	have, err := readBootstrap(fsys, dir)
	switch {
	case err == nil && equalVoters(have, voters):
		return nil
	case err == nil:
		return fmt.Errorf("%s was formatted with other voters: %v, now %v", dir, have.Keys(), voters.Keys())
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	header := metadata.SnapshotHeader{LastContainedLogTimestamp: wallMillis, KRaftVersion: kraftVersion}
	if len(voters) > 0 {
		record := votersRecord(voters)
		header.Voters = &record
	}
	data := metadata.AppendBootstrap(nil, nil, header)
	if err := makeDir(fsys, filepath.Clean(dir)); err != nil {
		return err
	}
	return vfs.WriteFileAtomic(fsys, filepath.Join(dir, metadata.BootstrapID.FileName()), data)
}

// makeDir makes a directory and those above it, durably.
func makeDir(fsys vfs.FS, dir string) error {
	if _, err := fsys.Stat(dir); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := makeDir(fsys, parent); err != nil {
		return err
	}
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return fsys.SyncDir(parent)
}

func equalVoters(a, b raft.VoterSet) bool {
	return string(votersRecord(a).Encode()) == string(votersRecord(b).Encode())
}

// readBootstrap returns the voters of the 0-0 checkpoint, none when it is a joiner's. fs.ErrNotExist says that there is
// no checkpoint.
func readBootstrap(fsys vfs.FS, dir string) (raft.VoterSet, error) {
	name := filepath.Join(dir, metadata.BootstrapID.FileName())
	data, err := vfs.ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	_, header, err := metadata.ReadSnapshot(data, metadata.BootstrapID)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if header.Voters == nil && header.KRaftVersion >= kraftVersion {
		return nil, nil
	}
	if header.Voters == nil {
		return nil, fmt.Errorf("%s has no voters: a static quorum (kraft.version 0) is not supported", name)
	}
	s, err := voterSet(*header.Voters)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// votersIn finds the voter sets among the control records of whole batches.
func votersIn(batches []byte) ([]raft.VotersAt, error) {
	var found []raft.VotersAt
	for len(batches) > 0 {
		one, rest, h, err := batch.Next(batches)
		if err != nil {
			return nil, err
		}
		batches = rest
		if !h.IsControl() {
			continue
		}
		for r, err := range batch.Records(one) {
			if err != nil {
				return nil, err
			}
			t, err := batch.ParseControlType(r.Key)
			if err != nil {
				return nil, err
			}
			if t != batch.VotersType {
				continue
			}
			m, err := batch.DecodeVoters(r.Value)
			if err != nil {
				return nil, fmt.Errorf("voters at offset %d: %w", r.Offset, err)
			}
			s, err := voterSet(m)
			if err != nil {
				return nil, fmt.Errorf("voters at offset %d: %w", r.Offset, err)
			}
			found = append(found, raft.VotersAt{Offset: r.Offset, Voters: s})
		}
	}
	return found, nil
}

// scanBytes is how much of the log is looked at in one piece.
const scanBytes = 1 << 20

// votersOf reads the whole log for voter sets.
func votersOf(l *log.Log) ([]raft.VotersAt, error) {
	var found []raft.VotersAt
	var buf []byte
	for at := l.StartOffset(); at < l.EndOffset(); {
		var next ident.Offset
		var err error
		buf, next, err = readLog(l, buf[:0], at, scanBytes, l.EndOffset())
		if err != nil {
			return nil, err
		}
		vs, err := votersIn(buf)
		if err != nil {
			return nil, err
		}
		found = append(found, vs...)
		at = next
	}
	return found, nil
}

// readLog appends whole batches from the one that holds offset from on to dst and returns the offset after them.
func readLog(l *log.Log, dst []byte, from ident.Offset, maxBytes int, below ident.Offset) ([]byte, ident.Offset, error) {
	c, err := l.Read(from, maxBytes, below, true)
	if err != nil {
		return dst, from, err
	}
	defer c.Release()
	dst, err = c.AppendTo(dst)
	return dst, c.Next, err
}
