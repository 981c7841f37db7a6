package replicaset

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/controllers/report"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

// nodesMetadata asks the facts for every node.
func nodesMetadata(f facts, book *cluster.FactBook) map[int32]cluster.NodeMetadata {
	all := map[int32]cluster.NodeMetadata{}
	for _, node := range f.nodes {
		all[node.ID] = book.Metadata(ident.NodeID(node.ID))
	}
	return all
}

// writtenDown tells the facts that what was asked of them stands in the status.
func writtenDown(f facts) {
	if f.book == nil {
		return
	}
	for id, told := range f.metadata {
		f.book.WrittenDown(ident.NodeID(id), told)
	}
}

// setMetadata says how a node follows the metadata. Where it has not told yet, it is as it was.
func setMetadata(next *hwv1alpha1.NodeStatus, told cluster.NodeMetadata, before hwv1alpha1.NodeStatus) {
	next.Metadata, next.SnapshotInstall, next.LastSnapshotInstall = before.Metadata, before.SnapshotInstall, before.LastSnapshotInstall
	for _, install := range told.Installs {
		if install.End != nil {
			next.LastSnapshotInstall = &hwv1alpha1.LastSnapshotInstallStatus{
				ID: install.ID.String(), SnapshotID: install.SnapshotID, Bytes: install.End.Bytes,
				StartedAt: seconds(install.StartedAt), EndedAt: seconds(install.End.At),
			}
		}
	}
	underWay := told.UnderWay()
	switch {
	case underWay != nil:
		next.SnapshotInstall = &hwv1alpha1.SnapshotInstallStatus{
			ID: underWay.ID.String(), SnapshotID: underWay.SnapshotID, StartedAt: seconds(underWay.StartedAt),
		}
		if n := len(underWay.Failures); n > 0 {
			next.SnapshotInstall.LastFailure = underWay.Failures[n-1].Reason
		} else if was := before.SnapshotInstall; was != nil && was.ID == next.SnapshotInstall.ID {
			next.SnapshotInstall.LastFailure = was.LastFailure
		}
	case len(told.Installs) > 0 || told.Told == nodefact.MetadataCurrent:
		next.SnapshotInstall = nil
	}
	switch {
	case next.SnapshotInstall != nil || told.Told == nodefact.MetadataBehind:
		next.Metadata = hwv1alpha1.MetadataBehind
	case told.Told == nodefact.MetadataCurrent:
		next.Metadata = hwv1alpha1.MetadataCurrent
	}
}

// seconds is a time as the API server keeps one.
func seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// listedInstalls bounds the nodes that a message names.
const listedInstalls = 6

// setSnapshotInstalling tells which nodes install, and how far they are.
func setSnapshotInstalling(c *report.Conditions, f facts, nodes []hwv1alpha1.NodeStatus) {
	const condition = hwv1alpha1.ReplicaSetSnapshotInstalling
	var texts []string
	heard, more := false, 0
	for _, node := range nodes {
		if node.SnapshotInstall == nil {
			continue
		}
		told := f.metadata[node.ID]
		install := told.UnderWay()
		heard = heard || install != nil
		if len(texts) == listedInstalls {
			more++
			continue
		}
		texts = append(texts, fmt.Sprintf("node %d (pod %s): snapshot %s", node.ID, node.Pod, node.SnapshotInstall.SnapshotID)+progressText(install, node.SnapshotInstall))
	}
	if len(texts) == 0 {
		c.Set(condition, metav1.ConditionFalse, hwv1alpha1.ReasonNoInstall, "")
		return
	}
	// An operator that starts knows which nodes install, and not yet how far they are.
	if was := meta.FindStatusCondition(f.rs.Status.Conditions, condition); !heard && was != nil && was.Status == metav1.ConditionTrue {
		c.Keep(condition)
		return
	}
	if more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	c.Set(condition, metav1.ConditionTrue, hwv1alpha1.ReasonInstalling, strings.Join(texts, "; "))
}

// progressText is how far an install is, as far as that is known.
func progressText(install *cluster.Install, status *hwv1alpha1.SnapshotInstallStatus) string {
	text := ""
	if install != nil && install.TotalBytes > 0 {
		text = fmt.Sprintf(", %s of %s (%d%%)", size(install.Bytes), size(install.TotalBytes), install.Bytes*100/install.TotalBytes)
		if install.BytesPerSecond > 0 {
			text += fmt.Sprintf(", %s/s", size(install.BytesPerSecond))
		}
	}
	if status.LastFailure != "" {
		text += ", begun anew after " + status.LastFailure
	}
	return text
}

// size is a number of bytes for people.
func size(bytes int64) string {
	switch {
	case bytes < 10<<10:
		return fmt.Sprintf("%d B", bytes)
	case bytes < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(bytes)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}

// installEvents tell of the start and the end of each install, once: those that the status before names were told, and
// with the one that ended last also all that came before it.
func installEvents(before, after *hwv1alpha1.ReplicaSetStatus, metadata map[int32]cluster.NodeMetadata) []report.Event {
	var all []report.Event
	for _, node := range after.Nodes {
		was := hwv1alpha1.NodeStatus{}
		if i := slices.IndexFunc(before.Nodes, func(n hwv1alpha1.NodeStatus) bool { return n.ID == node.ID }); i >= 0 {
			was = before.Nodes[i]
		}
		all = append(all, nodeInstallEvents(was, node, metadata[node.ID].Installs)...)
	}
	return all
}

func nodeInstallEvents(was, node hwv1alpha1.NodeStatus, installs []cluster.Install) []report.Event {
	underWay, ended, failed := "", "", ""
	if was.SnapshotInstall != nil {
		underWay, failed = was.SnapshotInstall.ID, was.SnapshotInstall.LastFailure
	}
	if was.LastSnapshotInstall != nil {
		ended = was.LastSnapshotInstall.ID
	}
	who := fmt.Sprintf("node %d (pod %s)", node.ID, node.Pod)
	var all []report.Event
	tell := func(reason string, warning bool, key, format string, args ...any) {
		all = append(all, report.Event{Reason: reason, Warning: warning, Key: fmt.Sprintf("%d/%s", node.ID, key), Message: who + fmt.Sprintf(format, args...)})
	}
	if i := slices.IndexFunc(installs, func(i cluster.Install) bool { return i.ID.String() == ended }); i >= 0 {
		installs = installs[i+1:]
	}
	gone := underWay != "" && (node.SnapshotInstall == nil || node.SnapshotInstall.ID != underWay) && ended != underWay &&
		!slices.ContainsFunc(installs, func(i cluster.Install) bool { return i.ID.String() == underWay })
	if gone {
		tell(hwv1alpha1.EventSnapshotInstallFailed, true, underWay+"/gone",
			" no longer knows of the install of metadata snapshot %s: its metadata directory is not the one that it was", was.SnapshotInstall.SnapshotID)
	}
	for _, install := range installs {
		id := install.ID.String()
		if id != underWay {
			tell(hwv1alpha1.EventSnapshotInstallStarted, false, id,
				" installs metadata snapshot %s%s: the quorum's log no longer has what it needs next", install.SnapshotID, ofBytes(install.TotalBytes))
		}
		for _, failure := range install.Failures {
			if id == underWay && failed == install.Failures[len(install.Failures)-1].Reason {
				break // told, as far as the status knows
			}
			tell(hwv1alpha1.EventSnapshotInstallFailed, true, id+"/"+failure.Reason,
				" gave up a download of metadata snapshot %s and begins anew, %s: %s", install.SnapshotID, failure.Reason, failure.Message)
		}
		if end := install.End; end != nil {
			took := end.Duration.Round(time.Millisecond)
			if end.Bytes > 0 {
				tell(hwv1alpha1.EventSnapshotInstalled, false, id, " installed metadata snapshot %s%s in %s", install.SnapshotID, ofBytes(end.Bytes), took)
			} else {
				tell(hwv1alpha1.EventSnapshotInstalled, false, id, " has all metadata again after %s, from the log: it did not need snapshot %s", took, install.SnapshotID)
			}
		}
	}
	return all
}

func ofBytes(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return fmt.Sprintf(" of %d bytes", bytes)
}
