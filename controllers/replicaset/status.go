package replicaset

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/controllers/report"
	"github.com/highwater-io/highwater/controllers/specs"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

// facts are all that a ReplicaSet's status is made from.
type facts struct {
	rs       *hwv1alpha1.ReplicaSet
	nodes    []specs.Node
	surplus  []int32
	outdated []int32
	found    owned
	problems problems
	growth   growth
	// voters is what is being done about the voter set.
	voters voterStep
	// offline is what data nodes tell whose directory is offline; see cluster.FactBook.
	offline map[int32]nodefact.Fact
	// metadata is what nodes tell of how they follow the metadata; book has to know when it is written down.
	metadata map[int32]cluster.NodeMetadata
	book     *cluster.FactBook
	state    cluster.State
	managed  map[topicIndex]bool
	now      metav1.Time
}

// status is a pure function of the facts and of the status before, of which it keeps what is not known now: after a
// start of the operator nothing of the cluster is told before its metadata has been read.
func status(f facts) hwv1alpha1.ReplicaSetStatus {
	before := &f.rs.Status
	next := hwv1alpha1.ReplicaSetStatus{
		ObservedGeneration: f.rs.Generation,
		ClusterID:          specs.ClusterID(f.rs.UID).String(),
		Selector:           specs.DataNodesSelector(f.rs),
		Listeners:          []hwv1alpha1.ListenerStatus{{Name: "internal", Bootstrap: specs.BootstrapAddress(f.rs)}},
		Nodes:              nodeStatuses(f),
		Quorum:             quorumStatus(f),
		Partitions:         before.Partitions,
		AsOf:               before.AsOf,
	}
	for _, node := range f.nodes {
		if node.Role.HoldsData() && f.found.pods[node.ID] != nil {
			next.Replicas++
		}
	}
	if f.state.Image != nil {
		counts := count(f.state.Image, f.managed, specs.MinInSyncReplicas(f.rs))
		next.Partitions = &counts
	}
	conditions := report.NewConditions(hwv1alpha1.KindReplicaSet, f.rs.Generation, before.Conditions, f.now)
	setQuorumAvailable(conditions, f, next.Nodes)
	setReplicasAvailable(conditions, f, next.Nodes)
	setPartitionsInSync(conditions, f, next.Partitions)
	setProgressing(conditions, f, next.Nodes)
	setSnapshotInstalling(conditions, f, next.Nodes)
	setReady(conditions, f)
	next.Conditions = conditions.Done()
	return next
}

func nodeStatuses(f facts) []hwv1alpha1.NodeStatus {
	before := map[int32]hwv1alpha1.NodeStatus{}
	for _, node := range f.rs.Status.Nodes {
		before[node.ID] = node
	}
	var all []hwv1alpha1.NodeStatus
	for _, node := range f.nodes {
		s := hwv1alpha1.NodeStatus{
			ID: node.ID, Pod: specs.PodName(f.rs, node.ID), Role: node.Role, PodReady: isReady(f.found.pods[node.ID]),
			DirectoryID: before[node.ID].DirectoryID, Formatted: before[node.ID].Formatted,
		}
		if c, has := f.found.claims[node.ID]; has {
			s.DirectoryID, s.Formatted = c.DirectoryID.String(), c.Formatted
		}
		if node.Role.HoldsData() {
			s.State = nodeState(f.state, node.ID, before[node.ID].State)
		}
		setLogDir(&s, f, before[node.ID])
		setMetadata(&s, f.metadata[node.ID], before[node.ID])
		all = append(all, s)
	}
	return all
}

func nodeState(state cluster.State, id int32, before hwv1alpha1.NodeState) hwv1alpha1.NodeState {
	if state.Image == nil {
		return before
	}
	broker, found := state.Image.Broker(ident.NodeID(id))
	switch {
	case !found:
		return hwv1alpha1.NodeUnregistered
	case broker.Fenced:
		return hwv1alpha1.NodeFenced
	case broker.InControlledShutdown:
		return hwv1alpha1.NodeShuttingDown
	default:
		return hwv1alpha1.NodeUnfenced
	}
}

func quorumStatus(f facts) *hwv1alpha1.QuorumStatus {
	if f.state.Reach != cluster.Following && (f.state.Reach != cluster.NoLeader || f.rs.Status.Quorum == nil) {
		return f.rs.Status.Quorum
	}
	quorum := &hwv1alpha1.QuorumStatus{LeaderID: int32(f.state.Leader), Epoch: int32(f.state.Epoch)}
	if f.state.Reach == cluster.NoLeader {
		quorum.LeaderID = int32(ident.NoNode)
	}
	if before := f.rs.Status.Quorum; before != nil {
		quorum.Epoch = max(quorum.Epoch, before.Epoch)
	}
	voters := knownVoters(f.rs, f.state)
	for _, node := range f.nodes {
		switch {
		case !node.Role.Votes():
		case len(voters) > 0 && !slices.Contains(voters, node.ID):
			quorum.Observers = append(quorum.Observers, node.ID)
		case len(voters) == 0:
			quorum.Voters = append(quorum.Voters, node.ID)
		}
	}
	quorum.Voters = append(quorum.Voters, voters...)
	return quorum
}

func setQuorumAvailable(c *report.Conditions, f facts, nodes []hwv1alpha1.NodeStatus) {
	const condition = hwv1alpha1.ReplicaSetQuorumAvailable
	disks := offlineText(nodes, false)
	if disks != "" {
		disks = "; " + disks
	}
	switch f.state.Reach {
	case cluster.Following:
		var notReady []string
		for _, node := range f.nodes {
			if node.Role.Votes() && !isReady(f.found.pods[node.ID]) {
				notReady = append(notReady, specs.PodName(f.rs, node.ID))
			}
		}
		if len(notReady) > 0 {
			c.Set(condition, metav1.ConditionTrue, hwv1alpha1.ReasonVotersUnavailable,
				fmt.Sprintf("voter %d leads; pods of voters not ready: %s", f.state.Leader, strings.Join(notReady, ", "))+disks)
			return
		}
		c.Set(condition, metav1.ConditionTrue, hwv1alpha1.ReasonLeaderElected, fmt.Sprintf("voter %d leads", f.state.Leader))
	case cluster.NoLeader:
		if f.rs.Status.Quorum == nil {
			c.Set(condition, metav1.ConditionUnknown, hwv1alpha1.ReasonStarting, "the voters have not elected a first leader yet")
			return
		}
		c.Set(condition, metav1.ConditionFalse, hwv1alpha1.ReasonNoLeader,
			"no voter leads: most of the voters must run and reach each other; metadata can't change until then"+disks)
	case cluster.Disconnected:
		tried := strings.Join(f.state.Tried, ", ")
		if f.rs.Status.Quorum == nil {
			c.Set(condition, metav1.ConditionUnknown, hwv1alpha1.ReasonStarting, "no voter answers yet; tried "+tried)
			return
		}
		c.Set(condition, metav1.ConditionUnknown, hwv1alpha1.ReasonObserverDisconnected, "the operator reaches no voter; tried "+tried)
	case cluster.Starting:
		if !c.Keep(condition) {
			c.Set(condition, metav1.ConditionUnknown, hwv1alpha1.ReasonStarting, "no voter was asked yet")
		}
	}
}

func setReplicasAvailable(c *report.Conditions, f facts, nodes []hwv1alpha1.NodeStatus) {
	const condition = hwv1alpha1.ReplicaSetReplicasAvailable
	if f.state.Image == nil {
		if !c.Keep(condition) {
			c.Set(condition, metav1.ConditionUnknown, hwv1alpha1.ReasonStarting, "the metadata was not read yet")
		}
		return
	}
	var unregistered, down []string
	total := 0
	for _, node := range nodes {
		if !node.Role.HoldsData() {
			continue
		}
		total++
		switch node.State {
		case hwv1alpha1.NodeUnfenced:
		case hwv1alpha1.NodeUnregistered, "":
			if node.LogDir != hwv1alpha1.LogDirOffline {
				unregistered = append(unregistered, node.Pod)
			}
		default:
			if node.LogDir != hwv1alpha1.LogDirOffline {
				why := string(node.State)
				if node.SnapshotInstall != nil {
					why += ", installs a metadata snapshot"
				}
				down = append(down, fmt.Sprintf("%s (%s)", node.Pod, why))
			}
		}
	}
	offline := offlineText(nodes, true)
	switch {
	case offline != "":
		if down = append(down, unregistered...); len(down) > 0 {
			offline += "; other data nodes that do not serve: " + strings.Join(down, ", ")
		}
		c.Set(condition, metav1.ConditionFalse, hwv1alpha1.ReasonLogDirOffline, offline)
	case len(down) > 0:
		c.Set(condition, metav1.ConditionFalse, hwv1alpha1.ReasonNodesFenced, "data nodes that do not serve: "+strings.Join(append(down, unregistered...), ", "))
	case len(unregistered) > 0:
		c.Set(condition, metav1.ConditionFalse, hwv1alpha1.ReasonNodesUnregistered, "data nodes that have not registered yet: "+strings.Join(unregistered, ", "))
	default:
		c.Set(condition, metav1.ConditionTrue, hwv1alpha1.ReasonAllUnfenced, fmt.Sprintf("all %d data nodes serve", total))
	}
}

func setPartitionsInSync(c *report.Conditions, f facts, counts *hwv1alpha1.PartitionCounts) {
	const condition = hwv1alpha1.ReplicaSetPartitionsInSync
	if f.state.Image == nil || counts == nil {
		if !c.Keep(condition) {
			c.Set(condition, metav1.ConditionUnknown, hwv1alpha1.ReasonStarting, "the metadata was not read yet")
		}
		return
	}
	text := fmt.Sprintf("of %d partitions, %d have replicas out of sync, %d are below minInSyncReplicas, %d have no leader",
		counts.Total, counts.UnderReplicated, counts.UnderMinISR, counts.Offline)
	if counts.Damaged > 0 {
		text += fmt.Sprintf(", %d have a damaged replica", counts.Damaged)
	}
	switch {
	case counts.Offline > 0:
		c.Set(condition, metav1.ConditionFalse, hwv1alpha1.ReasonOffline, text)
	case counts.UnderMinISR > 0:
		c.Set(condition, metav1.ConditionFalse, hwv1alpha1.ReasonUnderMinISR, text)
	case counts.UnderReplicated > 0:
		c.Set(condition, metav1.ConditionFalse, hwv1alpha1.ReasonUnderReplicated, text)
	default:
		c.Set(condition, metav1.ConditionTrue, hwv1alpha1.ReasonAllInSync, fmt.Sprintf("all replicas of %d partitions are in sync", counts.Total))
	}
}

func setProgressing(c *report.Conditions, f facts, nodes []hwv1alpha1.NodeStatus) {
	const condition = hwv1alpha1.ReplicaSetProgressing
	var missing, unseen []string
	for _, node := range nodes {
		pod := f.found.pods[node.ID]
		switch {
		case pod == nil:
			missing = append(missing, node.Pod)
		case !node.Formatted:
			text := node.Pod
			if reason := stuckOn(pod); reason != "" {
				text += " (" + reason + ")"
			}
			unseen = append(unseen, text)
		}
	}
	switch {
	case f.problems.namespaceTerminating:
		c.Set(condition, metav1.ConditionFalse, hwv1alpha1.ReasonNamespaceTerminating, "the namespace is being deleted: nothing is made any more")
	case len(f.surplus) > 0:
		c.Set(condition, metav1.ConditionTrue, hwv1alpha1.ReasonScaleDownBlocked, fmt.Sprintf(
			"nodes %s go on running: they may hold replicas, and moving replicas away is not supported by this version; set replicas to %d",
			listIDs(f.surplus), dataNodes(f.nodes)))
	case len(missing) > 0:
		c.Set(condition, metav1.ConditionTrue, hwv1alpha1.ReasonCreating, "pods to be made: "+strings.Join(missing, ", "))
	case len(unseen) > 0:
		c.Set(condition, metav1.ConditionTrue, hwv1alpha1.ReasonCreating, "nodes that the cluster has not seen yet: "+strings.Join(unseen, ", "))
	case f.voters.reason != "":
		c.Set(condition, metav1.ConditionTrue, f.voters.reason, f.voters.message)
	case len(f.growth.refused) > 0:
		c.Set(condition, metav1.ConditionTrue, hwv1alpha1.ReasonVolumeExpansionRefused, fmt.Sprintf(
			"claims that may not grow as the spec says: %s; Kubernetes says: %s. Set allowVolumeExpansion in their storage class, or go on with the volumes as they are; it is tried again every minute",
			strings.Join(f.growth.refused, ", "), f.growth.why))
	case len(f.growth.underway) > 0:
		c.Set(condition, metav1.ConditionTrue, hwv1alpha1.ReasonVolumesGrowing, "volumes that grow: "+strings.Join(f.growth.underway, ", "))
	case len(f.outdated) > 0:
		c.Set(condition, metav1.ConditionTrue, hwv1alpha1.ReasonPodsOutdated, fmt.Sprintf(
			"nodes %s run an older revision of the spec; each takes the new one when its pod is next created", listIDs(f.outdated)))
	default:
		c.Set(condition, metav1.ConditionFalse, hwv1alpha1.ReasonSettled, "")
	}
}

// setReady sums up; it is set last.
func setReady(c *report.Conditions, f facts) {
	const condition = hwv1alpha1.ReplicaSetReady
	quorum, replicas := c.Get(hwv1alpha1.ReplicaSetQuorumAvailable), c.Get(hwv1alpha1.ReplicaSetReplicasAvailable)
	reason, message, has := f.problems.first()
	switch {
	case has:
		c.Set(condition, metav1.ConditionFalse, reason, message)
	case quorum.Reason == hwv1alpha1.ReasonStarting || replicas.Reason == hwv1alpha1.ReasonStarting:
		c.Set(condition, metav1.ConditionFalse, hwv1alpha1.ReasonStarting, quorum.Message+"; "+replicas.Message)
	case quorum.Status == metav1.ConditionFalse:
		c.Set(condition, metav1.ConditionFalse, hwv1alpha1.ReasonQuorumUnavailable, quorum.Message)
	case quorum.Status == metav1.ConditionUnknown:
		c.Set(condition, metav1.ConditionUnknown, hwv1alpha1.ReasonMetadataUnavailable, quorum.Message)
	case replicas.Status != metav1.ConditionTrue:
		c.Set(condition, metav1.ConditionFalse, hwv1alpha1.ReasonReplicasUnavailable, replicas.Message)
	default:
		c.Set(condition, metav1.ConditionTrue, hwv1alpha1.ReasonAllServing, "the quorum is available and every data node serves")
	}
}

func dataNodes(nodes []specs.Node) int {
	n := 0
	for _, node := range nodes {
		if node.Role.HoldsData() {
			n++
		}
	}
	return n
}

func listIDs(ids []int32) string {
	var texts []string
	for _, id := range slices.Sorted(slices.Values(ids)) {
		texts = append(texts, fmt.Sprint(id))
	}
	return strings.Join(texts, ", ")
}

// canSpareOne is the verdict of the disruption budget: whether, with any one pod gone, the quorum keeps a majority and
// every partition that can keeps its minInSyncReplicas. Readiness alone does not say so: a pod is ready before its
// replicas are back in sync.
func canSpareOne(f facts) bool {
	if f.state.Reach != cluster.Following || f.state.Image == nil || len(f.state.Voters) < 3 || f.voters.reason != "" {
		return false
	}
	for _, node := range nodeStatuses(f) {
		if node.Metadata == hwv1alpha1.MetadataBehind {
			return false // a voter that has to catch up makes no majority
		}
	}
	for _, node := range f.nodes {
		if pod := f.found.pods[node.ID]; pod == nil || pod.Status.Phase != corev1.PodRunning || !isReady(pod) {
			return false
		}
		if _, offline := f.offline[node.ID]; offline {
			return false
		}
		if node.Role.HoldsData() && nodeState(f.state, node.ID, "") != hwv1alpha1.NodeUnfenced {
			return false
		}
	}
	// Where all replicas are in sync, one less is enough for every partition whose factor is above its
	// minInSyncReplicas; the others can't spare one ever, and would hold up a drain without end.
	return count(f.state.Image, nil, specs.MinInSyncReplicas(f.rs)).UnderReplicated == 0
}
