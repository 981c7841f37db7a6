package sim

import "github.com/highwater-io/highwater/pkg/quorum/raft"

// Rules that the simulator's disk breaks.
const (
	// MutateVoteUnsynced: the vote is written and not fsynced.
	MutateVoteUnsynced raft.Mutant = "vote-unsynced"
	// MutateLogUnsynced: the log says that it is flushed and is not fsynced.
	MutateLogUnsynced raft.Mutant = "log-unsynced"
	// MutateSnapshotUnsynced: a snapshot gets its name before its bytes are on the disk.
	MutateSnapshotUnsynced raft.Mutant = "snapshot-unsynced"
	// MutateRottenLoaded: nobody looks at the checksums of a snapshot that is loaded at a start.
	MutateRottenLoaded raft.Mutant = "rotten-loaded"
)

// QuorumMutant is a rule that is broken on purpose. A simulator that does not notice would not notice the mistake
// either.
type QuorumMutant struct {
	Name    raft.Mutant
	Mistake string
	Within  int // schedules in which it must be caught
}

// QuorumMutants are those that must be caught.
var QuorumMutants = []QuorumMutant{
	{raft.MutateCommitOldEpoch, "entries of earlier epochs are committed by counting, at the start of an epoch", 200},
	{raft.MutateMinorityCommit, "half of the voters is enough to commit", 100},
	{raft.MutateCountUnflushed, "a leader counts what it has not fsynced", 100},
	{raft.MutateCountObservers, "observers count towards the majority of the voters", 100},
	{raft.MutateCountRemovedLeader, "a leader that is no voter any more counts itself", 1000},
	{raft.MutateHighWatermarkBack, "the high watermark follows whatever it is told", 200},
	{raft.MutateFetchUnflushed, "a follower acknowledges what it has not fsynced", 100},
	{MutateLogUnsynced, "a flush of the log syncs nothing", 100},
	{MutateVoteUnsynced, "a vote is answered before it is fsynced", 100},
	{raft.MutateForgetVote, "a node does not remember its vote after a restart", 100},
	{raft.MutateVoteTwice, "a node votes for several candidates of an epoch", 500},
	{raft.MutateVoteAnyLog, "a vote goes to a candidate whose log is behind", 200},
	{raft.MutateLeadAgain, "a leader leads on in its epoch after a restart", 100},
	{raft.MutateResignedLeads, "a leader that resigned leads on in its epoch", 200},
	{raft.MutateSkipPreVote, "nobody is asked for a pre-vote", 1000},
	{raft.MutateNoCheckQuorum, "a leader that nobody reaches does not resign", 200},
	{raft.MutateIgnoreDivergence, "logs that diverge are not cut", 200},
	{raft.MutateTwoChanges, "the voters change while a change is not committed", 500},
	{raft.MutateAddUncaught, "a replica that is behind becomes a voter", 500},
	{raft.MutateInstallKeepsLog, "a snapshot is installed and the log stays as it was", 200},
	{raft.MutateStaleSnapshot, "a late offer of an old snapshot is taken", 3000},
	{raft.MutateResumeElsewhere, "a download goes on at another leader", 1000},
	{MutateSnapshotUnsynced, "a snapshot gets its name before it is fsynced", 1000},
	{MutateRottenLoaded, "the checksums of a stored snapshot are not looked at", 1000},
	{raft.MutateServeRotten, "a snapshot is served as the disk has it, damaged or not", 1000},
	{raft.MutateTrimAhead, "the log is trimmed beyond its snapshots", 100},
}
