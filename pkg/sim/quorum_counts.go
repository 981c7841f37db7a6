package sim

import "reflect"

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
func (c *QuorumCounts) Add(o QuorumCounts) { addCounts(c, o) }

// addCounts adds field by field.
func addCounts[C any](sum *C, more C) {
	to, from := reflect.ValueOf(sum).Elem(), reflect.ValueOf(more)
	for i := range from.NumField() {
		to.Field(i).SetInt(to.Field(i).Int() + from.Field(i).Int())
	}
}
