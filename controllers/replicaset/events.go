package replicaset

import (
	"fmt"
	"slices"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/controllers/report"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

// events are the differences between two statuses that people want to hear of.
// offline is what nodes tell of their directories, for the messages, metadata what they tell of their installs.
func events(before, after *hwv1alpha1.ReplicaSetStatus, offline map[int32]nodefact.Fact, metadata map[int32]cluster.NodeMetadata) []report.Event {
	// Positions move with every change of a node, so the one before tells one time from another.
	at := "first"
	if before.AsOf != nil {
		at = fmt.Sprintf("%d/%d", before.AsOf.Epoch, before.AsOf.Offset)
	}
	return slices.Concat(quorumEvents(before.Quorum, after.Quorum), voterEvents(before.Quorum, after.Quorum, at), nodeEvents(before, after, at), logDirEvents(before, after, offline, at),
		installEvents(before, after, metadata))
}

func quorumEvents(before, after *hwv1alpha1.QuorumStatus) []report.Event {
	if after == nil || before != nil && before.LeaderID == after.LeaderID {
		return nil
	}
	key := fmt.Sprintf("%d/%d", after.Epoch, after.LeaderID)
	if after.LeaderID < 0 {
		return []report.Event{{
			Reason: hwv1alpha1.EventQuorumLeaderLost, Warning: true, Key: key,
			Message: "no voter leads the metadata quorum: metadata can't change; writes go on where leaders and replicas are in sync",
		}}
	}
	message := fmt.Sprintf("voter %d leads the metadata quorum in epoch %d", after.LeaderID, after.Epoch)
	if before != nil && before.LeaderID >= 0 {
		message += fmt.Sprintf(", after voter %d", before.LeaderID)
	}
	return []report.Event{{Reason: hwv1alpha1.EventQuorumLeaderChanged, Message: message, Key: key}}
}

// voterEvents tell of voters that came and went. The first voter set is no change.
func voterEvents(before, after *hwv1alpha1.QuorumStatus, at string) []report.Event {
	if before == nil || after == nil || len(before.Voters) == 0 {
		return nil
	}
	var all []report.Event
	for _, id := range after.Voters {
		if !slices.Contains(before.Voters, id) {
			all = append(all, report.Event{
				Reason: hwv1alpha1.EventVoterAdded, Key: fmt.Sprintf("%d/%s", id, at),
				Message: fmt.Sprintf("node %d votes in the metadata quorum, which has the voters %s", id, listIDs(after.Voters)),
			})
		}
	}
	for _, id := range before.Voters {
		if !slices.Contains(after.Voters, id) {
			all = append(all, report.Event{
				Reason: hwv1alpha1.EventVoterRemoved, Key: fmt.Sprintf("%d/%s", id, at),
				Message: fmt.Sprintf("node %d votes in the metadata quorum no more, which has the voters %s", id, listIDs(after.Voters)),
			})
		}
	}
	return all
}

// nodeEvents tell of nodes that were fenced or unfenced.
func nodeEvents(before, after *hwv1alpha1.ReplicaSetStatus, at string) []report.Event {
	states := map[int32]hwv1alpha1.NodeState{}
	for _, node := range before.Nodes {
		states[node.ID] = node.State
	}
	var all []report.Event
	for _, node := range after.Nodes {
		was := states[node.ID]
		if was == node.State {
			continue
		}
		key := fmt.Sprintf("%d/%s", node.ID, at)
		switch {
		case node.State == hwv1alpha1.NodeFenced && (was == hwv1alpha1.NodeUnfenced || was == hwv1alpha1.NodeShuttingDown):
			why := "the quorum's leader no longer hears from it, or it has stopped"
			if node.LogDir == hwv1alpha1.LogDirOffline {
				why = "its data directory is offline"
			}
			all = append(all, report.Event{
				Reason: hwv1alpha1.EventNodeFenced, Warning: was == hwv1alpha1.NodeUnfenced, Key: key,
				Message: fmt.Sprintf("node %d (pod %s) is fenced: %s", node.ID, node.Pod, why),
			})
		case node.State == hwv1alpha1.NodeUnfenced:
			all = append(all, report.Event{
				Reason: hwv1alpha1.EventNodeUnfenced, Key: key,
				Message: fmt.Sprintf("node %d (pod %s) serves", node.ID, node.Pod),
			})
		}
	}
	return all
}
