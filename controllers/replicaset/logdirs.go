package replicaset

import (
	"fmt"
	"slices"
	"strings"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/controllers/report"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

// setLogDir says how a node's directory is. A data node that serves has one, and so has a voter whose pod is ready.
// Where nobody tells, it is as it was: the operator that starts, or the node that does not answer, takes nothing back.
func setLogDir(next *hwv1alpha1.NodeStatus, f facts, before hwv1alpha1.NodeStatus) {
	next.LogDir, next.LogDirReason = before.LogDir, before.LogDirReason
	if f.state.Image == nil && next.Role.HoldsData() {
		return
	}
	works := next.State == hwv1alpha1.NodeUnfenced
	if !next.Role.HoldsData() {
		works = next.PodReady
	}
	if fact, offline := f.offline[next.ID]; offline {
		next.LogDir, next.LogDirReason = hwv1alpha1.LogDirOffline, knownReason(fact.Reason)
	} else if works {
		next.LogDir, next.LogDirReason = hwv1alpha1.LogDirOnline, ""
	}
}

// offlineDirs asks the facts for every node.
func offlineDirs(f facts, book *cluster.FactBook) map[int32]nodefact.Fact {
	all := map[int32]nodefact.Fact{}
	for _, node := range f.nodes {
		if fact, offline := book.LogDirOffline(f.state.Image, ident.NodeID(node.ID)); offline {
			all[node.ID] = fact
		}
	}
	return all
}

// offlineReasons are in the order in which they are told of, with what somebody can do.
var offlineReasons = []struct{ reason, remedy string }{
	{nodefact.DiskFull, "make room: raise spec.%sstorage.size%s; the node comes back by itself"},
	{nodefact.ReadOnly, "find out why the volume takes no writes; the node comes back by itself when it does"},
	{nodefact.IOError, "check the disk; when it is sound, or its content was copied to one that is, delete the pod to have it opened anew"},
	{nodefact.Unreadable, "check the volume; when it can be read again, delete the pod to have it opened anew"},
}

// knownReason keeps a node of another version from having a status refused.
func knownReason(reason string) string {
	for _, known := range offlineReasons {
		if reason == known.reason {
			return reason
		}
	}
	return nodefact.Unreadable
}

func remedy(reason string, role hwv1alpha1.NodeRole) string {
	for _, known := range offlineReasons {
		switch {
		case reason != known.reason:
		case reason == nodefact.DiskFull && role.HoldsData():
			return fmt.Sprintf(known.remedy, "", ", delete topics, or let them keep less")
		case reason == nodefact.DiskFull:
			return fmt.Sprintf(known.remedy, "quorum.", "")
		default:
			return known.remedy
		}
	}
	return ""
}

// offlineText names the nodes whose directory is offline, by reason, with what to do; empty when there are none. It
// speaks of those that hold data, or of those that only vote.
func offlineText(nodes []hwv1alpha1.NodeStatus, holdData bool) string {
	var texts []string
	for _, known := range offlineReasons {
		var pods []string
		role := hwv1alpha1.RoleVoter
		for _, node := range nodes {
			if node.Role.HoldsData() == holdData && node.LogDir == hwv1alpha1.LogDirOffline && node.LogDirReason == known.reason {
				pods, role = append(pods, node.Pod), node.Role
			}
		}
		if len(pods) > 0 {
			texts = append(texts, fmt.Sprintf("data directory offline on %s: %s (%s)", strings.Join(pods, ", "), known.reason, remedy(known.reason, role)))
		}
	}
	return strings.Join(texts, "; ")
}

// logDirEvents tell of directories that went offline or came back. at tells one time from another.
func logDirEvents(before, after *hwv1alpha1.ReplicaSetStatus, offline map[int32]nodefact.Fact, at string) []report.Event {
	var all []report.Event
	for _, node := range after.Nodes {
		was := hwv1alpha1.LogDirState("")
		if i := slices.IndexFunc(before.Nodes, func(n hwv1alpha1.NodeStatus) bool { return n.ID == node.ID }); i >= 0 {
			was = before.Nodes[i].LogDir
		}
		key := fmt.Sprintf("%d/%s", node.ID, at)
		switch {
		case node.LogDir == was:
		case node.LogDir == hwv1alpha1.LogDirOffline:
			lost := "serves none of its replicas"
			if !node.Role.HoldsData() {
				lost = "does not vote"
			}
			message := fmt.Sprintf("node %d (pod %s) %s: ", node.ID, node.Pod, lost)
			if said := offline[node.ID].Message; said != "" {
				message += said
			} else {
				message += fmt.Sprintf("its data directory is offline, %s: %s", node.LogDirReason, remedy(node.LogDirReason, node.Role))
			}
			all = append(all, report.Event{Reason: hwv1alpha1.EventLogDirOffline, Warning: true, Key: key, Message: message})
		case was == hwv1alpha1.LogDirOffline:
			all = append(all, report.Event{
				Reason: hwv1alpha1.EventLogDirOnline, Key: key,
				Message: fmt.Sprintf("node %d (pod %s) uses its data directory again", node.ID, node.Pod),
			})
		}
	}
	return all
}
