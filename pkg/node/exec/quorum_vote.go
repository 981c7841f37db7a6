package exec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// QuorumStateFile holds a voter's memory across restarts, in Kafka's format: one line of JSON.
const QuorumStateFile = "quorum-state"

// quorumState is Kafka's QuorumStateData, version 1 (KIP-853). Version 0, which names no directory, is read too.
type quorumState struct {
	LeaderID         ident.NodeID `json:"leaderId"`
	LeaderEpoch      ident.Epoch  `json:"leaderEpoch"`
	VotedID          ident.NodeID `json:"votedId"`
	VotedDirectoryID ident.UUID   `json:"votedDirectoryId"`
	DataVersion      int16        `json:"data_version"`
}

// readVote reads the file. fs.ErrNotExist says that there is none. A file that can't be read is never taken for
// an empty one: the node would forget whom it voted for (KAFKA-15412).
func readVote(fsys vfs.FS, dir string) (raft.VoteState, error) {
	name := filepath.Join(dir, QuorumStateFile)
	data, err := vfs.ReadFile(fsys, name)
	if err != nil {
		return raft.NoVote(), err
	}
	v, err := decodeVote(data)
	if err != nil {
		return v, fmt.Errorf("%s: %w: without it this node could vote twice in one epoch; restore the file, or remove this voter and add it with a new directory", name, err)
	}
	return v, nil
}

func decodeVote(data []byte) (raft.VoteState, error) {
	// Pointers tell a missing field from a zero one.
	var s struct {
		LeaderID         *ident.NodeID `json:"leaderId"`
		LeaderEpoch      *ident.Epoch  `json:"leaderEpoch"`
		VotedID          *ident.NodeID `json:"votedId"`
		VotedDirectoryID *ident.UUID   `json:"votedDirectoryId"`
		DataVersion      *int16        `json:"data_version"`
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return raft.NoVote(), fmt.Errorf("no JSON object: %w", err)
	}
	switch {
	case s.DataVersion == nil:
		return raft.NoVote(), errors.New("data_version is missing")
	case *s.DataVersion < 0 || *s.DataVersion > 1:
		return raft.NoVote(), fmt.Errorf("data_version is %d, only 0 and 1 are known", *s.DataVersion)
	case s.LeaderEpoch == nil || s.LeaderID == nil || s.VotedID == nil || *s.DataVersion == 1 && s.VotedDirectoryID == nil:
		return raft.NoVote(), errors.New("leaderId, leaderEpoch, votedId or votedDirectoryId is missing")
	case *s.LeaderEpoch < 0 || *s.LeaderID < ident.NoNode || *s.VotedID < ident.NoNode:
		return raft.NoVote(), fmt.Errorf("leaderEpoch %d, leaderId %d, votedId %d: out of range", *s.LeaderEpoch, *s.LeaderID, *s.VotedID)
	}
	v := raft.VoteState{Epoch: *s.LeaderEpoch, Leader: *s.LeaderID, Voted: raft.Nobody}
	if *s.VotedID >= 0 {
		v.Voted.ID = *s.VotedID
		if s.VotedDirectoryID != nil {
			v.Voted.DirectoryID = *s.VotedDirectoryID
		}
	}
	return v, nil
}

func encodeVote(v raft.VoteState) []byte {
	data, err := json.Marshal(quorumState{
		LeaderID:         v.Leader,
		LeaderEpoch:      v.Epoch,
		VotedID:          v.Voted.ID,
		VotedDirectoryID: v.Voted.DirectoryID,
		DataVersion:      1,
	})
	if err != nil {
		panic(err) // of a struct of numbers and a text marshaler that does not fail
	}
	return data
}

// writeVote replaces the file, durably.
func writeVote(fsys vfs.FS, dir string, v raft.VoteState) error {
	return vfs.WriteFileAtomic(fsys, filepath.Join(dir, QuorumStateFile), encodeVote(v))
}

// loadVote reads the vote that belongs to a log. A vote is durable before the first record is appended, so a
// log without one has lost it.
func loadVote(fsys vfs.FS, dir string, logEmpty bool) (raft.VoteState, error) {
	v, err := readVote(fsys, dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return v, err
	}
	if !logEmpty {
		return v, fmt.Errorf("%s is missing beside a log that has records: this node could vote twice in one epoch; restore the file, or remove this voter and add it with a new directory",
			filepath.Join(dir, QuorumStateFile))
	}
	return raft.NoVote(), nil
}
