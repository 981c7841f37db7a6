package sim

// QuorumCounts tells how much happened, so that one can see that the schedules were worth something.
type QuorumCounts struct {
	Proposed, Committed               int // batches appended by leaders; batches committed
	Elections                         int // epochs that had a leader
	Truncations, Diverged             int // logs cut; of these cut by a fetch's divergence
	Kills, Losses, DiskErrors         int // processes killed, machines that lost power, syncs that failed
	Pauses, Cuts, Slow                int
	Clocks                            int // clocks that jumped or went wrong
	Resigned, Hints                   int
	Votes, PreVotes, Refused, Checked int // answers given; invariant checks made
	Snapshots, Installs, Compared     int // snapshots taken; installed; states compared byte for byte
	Pieces                            int // of snapshots that were served
	Changes, RefusedChanges           int // changes of the voters committed; refused
	Wiped, LostVoters                 int // disks that were wiped; of these of voters
	Rots, Found, SetAside, Replaced   int // snapshots damaged; found when served; put aside at a start; nodes that needed a new disk
	Calm                              int // disturbances of a follower that the leader outlived
}

// Add adds.
func (c *QuorumCounts) Add(o QuorumCounts) {
	c.Proposed += o.Proposed
	c.Committed += o.Committed
	c.Elections += o.Elections
	c.Truncations += o.Truncations
	c.Diverged += o.Diverged
	c.Kills += o.Kills
	c.Losses += o.Losses
	c.DiskErrors += o.DiskErrors
	c.Pauses += o.Pauses
	c.Cuts += o.Cuts
	c.Slow += o.Slow
	c.Clocks += o.Clocks
	c.Resigned += o.Resigned
	c.Hints += o.Hints
	c.Votes += o.Votes
	c.PreVotes += o.PreVotes
	c.Refused += o.Refused
	c.Checked += o.Checked
	c.Snapshots += o.Snapshots
	c.Installs += o.Installs
	c.Compared += o.Compared
	c.Pieces += o.Pieces
	c.Changes += o.Changes
	c.RefusedChanges += o.RefusedChanges
	c.Wiped += o.Wiped
	c.LostVoters += o.LostVoters
	c.Rots += o.Rots
	c.Found += o.Found
	c.SetAside += o.SetAside
	c.Replaced += o.Replaced
	c.Calm += o.Calm
}
