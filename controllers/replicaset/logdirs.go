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

// setLogDir says how a data node's directory is. A node that serves has one. Where nobody tells, it is as it was: the
// operator that starts, or the node that does not answer, takes nothing back.
func setLogDir(next *hwv1alpha1.NodeStatus, f facts, before hwv1alpha1.NodeStatus) {
	next.LogDir, next.LogDirReason = before.LogDir, before.LogDirReason
	if f.state.Image == nil {
		return
	}
	if fact, offline := f.offline[next.ID]; offline {
		next.LogDir, next.LogDirReason = hwv1alpha1.LogDirOffline, knownReason(fact.Reason)
	} else if next.State == hwv1alpha1.NodeUnfenced {
		next.LogDir, next.LogDirReason = hwv1alpha1.LogDirOnline, ""
	}
}

// offlineDirs asks the facts for every data node.
func offlineDirs(f facts, book *cluster.FactBook) map[int32]nodefact.Fact {
	all := map[int32]nodefact.Fact{}
	for _, node := range f.nodes {
		if fact, offline := book.LogDirOffline(f.state.Image, ident.NodeID(node.ID)); offline && node.Role.HoldsData() {
			all[node.ID] = fact
		}
	}
	return all
}

// offlineReasons are in the order in which they are told of, with what somebody can do.
var offlineReasons = []struct{ reason, remedy string }{
	{nodefact.DiskFull, "make room: raise spec.storage.size, delete topics, or let them keep less; the node comes back by itself"},
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

func remedy(reason string) string {
	for _, known := range offlineReasons {
		if reason == known.reason {
			return known.remedy
		}
	}
	return ""
}

// offlineText names the nodes whose directory is offline, by reason, with what to do; empty when there are none.
func offlineText(nodes []hwv1alpha1.NodeStatus) string {
	var texts []string
	for _, known := range offlineReasons {
		var pods []string
		for _, node := range nodes {
			if node.LogDir == hwv1alpha1.LogDirOffline && node.LogDirReason == known.reason {
				pods = append(pods, node.Pod)
			}
		}
		if len(pods) > 0 {
			texts = append(texts, fmt.Sprintf("data directory offline on %s: %s (%s)", strings.Join(pods, ", "), known.reason, known.remedy))
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
			message := fmt.Sprintf("node %d (pod %s) can't use its data directory and serves none of its replicas: %s", node.ID, node.Pod, node.LogDirReason)
			if said := offline[node.ID].Message; said != "" {
				message += ": " + said
			} else {
				message += "; " + remedy(node.LogDirReason)
			}
			all = append(all, report.Event{Reason: hwv1alpha1.EventLogDirOffline, Warning: true, Key: key, Message: message})
		case was == hwv1alpha1.LogDirOffline:
			all = append(all, report.Event{
				Reason: hwv1alpha1.EventLogDirOnline, Key: key,
				Message: fmt.Sprintf("node %d (pod %s) serves from its data directory again", node.ID, node.Pod),
			})
		}
	}
	return all
}
