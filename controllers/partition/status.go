package partition

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/controllers/report"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

// unavailableAfter is how long the quorum may be away before Partitions say so: an election takes a second or two and
// is nothing that thousands of objects should tell of.
const unavailableAfter = 15 * time.Second

// facts are all that a Partition's status is made from.
type facts struct {
	p       *hwv1alpha1.Partition
	family  family
	verdict verdict
	// refused is what the controller said to the last request, nil when it said nothing.
	refused error
	// asked says that this pass asked for the partition and the controller took it.
	asked bool
	// foreign says that this pass asked for the topic and it was there already.
	foreign bool
	state   cluster.State
	// clusterID is that of the ReplicaSet, empty when there is none.
	clusterID string
	// told is what nodes tell beside the metadata.
	told nodeFacts
	// leftAfter is the partition epoch after which replicas left whose reason is still awaited, -1 for none.
	leftAfter     int32
	defaultMinISR int32
	defaultFlush  hwv1alpha1.FlushPolicy
	unavailable   bool
	now           metav1.Time
}

// nodeFacts is cluster.FactBook.
type nodeFacts interface {
	// Shrink finds the leader's reason why a replica left.
	Shrink(partition ident.TopicPartition, replica ident.NodeID, after, until int32) (nodefact.Fact, bool)
	// LogDirOffline tells of a node that can't use its data directory.
	LogDirOffline(image *metadata.Image, node ident.NodeID) (nodefact.Fact, bool)
	// Damage tells what of a replica is damaged.
	Damage(partition ident.TopicPartition, node ident.NodeID) (nodefact.Fact, bool)
}

// status is a pure function of the facts and of the status before, of which it keeps what is not known now.
func status(f facts) hwv1alpha1.PartitionStatus {
	before := &f.p.Status
	next := *before.DeepCopy()
	next.ObservedGeneration = f.p.Generation
	next.Topic = f.family.topic
	if f.family.claims[0] != nil {
		next.DeletionPolicy = f.family.settings.policy
	} else if next.DeletionPolicy == "" {
		next.DeletionPolicy = policyOf(f.p)
	}
	conditions := report.NewConditions(hwv1alpha1.KindPartition, f.p.Generation, before.Conditions, f.now)
	if f.verdict.reason == hwv1alpha1.ReasonReplicaSetNotFound || f.otherCluster() {
		// A position in the log of a cluster that is gone. One of the same name that comes later counts from 0, and
		// would else seem to be older than what is told here.
		next.AsOf = nil
	}
	if f.clusterID != "" {
		next.ClusterID = f.clusterID
	}
	partition := f.committed()
	switch {
	case partition != nil:
		mirror(f, partition, &next)
		setISRConditions(conditions, next.Replicas, next.ISR, *next.MinInSyncReplicas)
		setIntact(conditions, next.Replicas, *next.Leader)
	case f.state.Image != nil && before.TopicID == "":
		next.Origin = ""
		if f.verdict.accepted() && !f.foreign {
			next.Origin = hwv1alpha1.OriginCreated // the intent; see intends
		}
		setAll(conditions, f)
	case f.family.vanished(f.p, f.state.Image):
		next.Leader, next.Assignment, next.ISR, next.Replicas = nil, nil, nil, nil
		setAll(conditions, f)
	default:
		setAll(conditions, f)
	}
	setAccepted(conditions, f, partition)
	setReady(conditions, f, partition)
	next.Conditions = conditions.Done()
	return next
}

// otherCluster says that the status speaks of another cluster than the ReplicaSet now has: that was deleted and made
// again while nobody looked.
func (f facts) otherCluster() bool {
	told := f.p.Status.ClusterID
	return f.clusterID != "" && told != "" && told != f.clusterID
}

// committed is the partition that p speaks for, nil when there is none, it is not known, or p does not speak for it.
func (f facts) committed() *metadata.Partition {
	if f.state.Image == nil || f.family.vanished(f.p, f.state.Image) {
		return nil
	}
	if _, outbid := f.family.outbid[f.p.UID]; outbid {
		return nil
	}
	return f.family.partition(f.p.Spec.Index)
}

// mirror copies what is committed.
func mirror(f facts, partition *metadata.Partition, next *hwv1alpha1.PartitionStatus) {
	before := &f.p.Status
	leader, leaderEpoch := int32(partition.Leader), int32(partition.LeaderEpoch)
	next.Leader, next.LeaderEpoch, next.PartitionEpoch = &leader, &leaderEpoch, &partition.PartitionEpoch
	next.Assignment, next.ISR = toInts(partition.Replicas), toInts(partition.ISR)
	minISR := effectiveMinISR(f.state.Image, f.family.topic, f.defaultMinISR, len(partition.Replicas))
	next.MinInSyncReplicas = &minISR
	next.Flush = effectiveFlush(f.state.Image, f.family.topic, f.defaultFlush)
	if before.TopicID == "" {
		next.TopicID = f.family.made.ID.String()
		next.Origin = origin(f)
	}
	next.OwnedPartitions = owned(f, next)
	next.Replicas = nil
	for _, id := range partition.Replicas {
		next.Replicas = append(next.Replicas, replicaStatus(f, partition, id))
	}
}

// origin says who made a partition that is seen for the first time. It was made for p only when the intent was on
// record and the controller did not refuse it since. In doubt it was adopted: an adopted topic is never deleted.
func origin(f facts) hwv1alpha1.Origin {
	switch {
	case f.foreign:
		return hwv1alpha1.OriginAdopted
	case f.asked:
		return hwv1alpha1.OriginCreated
	}
	if intends(f.p) && !refusedLast(f.p) {
		return hwv1alpha1.OriginCreated
	}
	return hwv1alpha1.OriginAdopted
}

// refusedLast says that the controller had refused the last request when the status was written.
func refusedLast(p *hwv1alpha1.Partition) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == hwv1alpha1.PartitionAccepted && c.Reason == hwv1alpha1.ReasonRefused
	})
}

// owned says of how many partitions the topic consists while each of them has, or had until it was deleted, a
// Partition that made it. It is kept when a sibling goes, so that the last one knows.
func owned(f facts, next *hwv1alpha1.PartitionStatus) *int32 {
	n := f.family.count()
	whole := true
	for index := range n {
		claim := f.family.claims[index]
		switch {
		case claim == nil:
			whole = false
		case claim.UID == f.p.UID:
			if next.Origin != hwv1alpha1.OriginCreated {
				return nil
			}
		case claim.Status.TopicID != "" && claim.Status.Origin != hwv1alpha1.OriginCreated:
			return nil
		case claim.Status.TopicID == "":
			whole = false
		}
	}
	if before := f.p.Status.OwnedPartitions; whole || before != nil && *before == n {
		return &n
	}
	return nil
}

// replicaStatus says how a replica stands and, when it is out of sync, why it left. Facts go before what the nodes'
// state suggests: a follower that lagged and was fenced afterwards left because it lagged.
func replicaStatus(f facts, partition *metadata.Partition, id ident.NodeID) hwv1alpha1.ReplicaStatus {
	next := hwv1alpha1.ReplicaStatus{ID: int32(id), State: hwv1alpha1.ReplicaInSync, Since: f.now}
	broker, registered := f.state.Image.Broker(id)
	if !slices.Contains(partition.ISR, id) {
		next.State = hwv1alpha1.ReplicaCatchingUp
		if !registered || !broker.Active() {
			next.State = hwv1alpha1.ReplicaOffline
		}
	}
	var before *hwv1alpha1.ReplicaStatus
	for i := range f.p.Status.Replicas {
		if f.p.Status.Replicas[i].ID == next.ID {
			before = &f.p.Status.Replicas[i]
		}
	}
	if before != nil && before.State == next.State {
		next.Since = before.Since
	}
	next.Damage = damageOf(f, partition, id, before)
	if next.State == hwv1alpha1.ReplicaInSync {
		return next
	}
	_, dirOffline := f.told.LogDirOffline(f.state.Image, id)
	after := int32(-1)
	if before != nil {
		// Fencing is how the quorum takes a node without its directory out; the node's own word may come later.
		told := before.Reason != "" && (before.Reason != hwv1alpha1.ReasonNodeFenced || !dirOffline)
		if before.State != hwv1alpha1.ReplicaInSync && told {
			next.Reason, next.LagOffsets, next.LagMillis = before.Reason, before.LagOffsets, before.LagMillis
			return next
		}
		after = f.leftAfter
		if before.State == hwv1alpha1.ReplicaInSync && f.p.Status.PartitionEpoch != nil {
			after = *f.p.Status.PartitionEpoch
		}
	}
	key := ident.TopicPartition{Topic: f.family.made.ID, Index: f.p.Spec.Index}
	if next.Damage != nil {
		next.Reason = hwv1alpha1.ReasonReplicaDamaged
		return next
	}
	if fact, found := f.told.Shrink(key, id, after, partition.PartitionEpoch); found {
		next.Reason = hwv1alpha1.ReasonLagTimeExceeded
		next.LagOffsets = &fact.LagOffsets
		if fact.LagMillis >= 0 {
			next.LagMillis = &fact.LagMillis
		}
		return next
	}
	switch {
	case dirOffline:
		next.Reason = hwv1alpha1.ReasonLogDirOffline
	case !registered || broker.Fenced:
		next.Reason = hwv1alpha1.ReasonNodeFenced
	case broker.InControlledShutdown:
		next.Reason = hwv1alpha1.ReasonNodeShuttingDown
	}
	return next
}

// setISRConditions derives InSync and MinISRSatisfied from what is mirrored.
func setISRConditions(c *report.Conditions, replicas []hwv1alpha1.ReplicaStatus, isr []int32, minISR int32) {
	reason := ""
	var out []string
	for _, replica := range replicas {
		if replica.State == hwv1alpha1.ReplicaInSync {
			continue
		}
		why := replica.Reason
		if why == "" {
			why = hwv1alpha1.ReasonOutOfSync
		}
		out = append(out, fmt.Sprintf("%d (%s)", replica.ID, why))
		if reason == "" || rank(why) < rank(reason) {
			reason = why
		}
	}
	if reason == "" {
		c.Set(hwv1alpha1.PartitionInSync, metav1.ConditionTrue, hwv1alpha1.ReasonAllInSync, fmt.Sprintf("replicas %s are in sync", list(isr)))
	} else {
		c.Set(hwv1alpha1.PartitionInSync, metav1.ConditionFalse, reason, "replicas out of sync: "+strings.Join(out, ", "))
	}
	if len(isr) < int(minISR) {
		c.Set(hwv1alpha1.PartitionMinISRSatisfied, metav1.ConditionFalse, hwv1alpha1.ReasonNotEnoughInSync, fmt.Sprintf(
			"%d replicas are in sync (%s) and minInSyncReplicas is %d: writes with acks=all are refused", len(isr), list(isr), minISR))
		return
	}
	c.Set(hwv1alpha1.PartitionMinISRSatisfied, metav1.ConditionTrue, hwv1alpha1.ReasonEnoughInSync,
		fmt.Sprintf("%d replicas are in sync and minInSyncReplicas is %d", len(isr), minISR))
}

// rank orders the reasons of replicas for the one that the condition shows.
func rank(reason string) int {
	return slices.Index([]string{
		hwv1alpha1.ReasonLogDirOffline, hwv1alpha1.ReasonReplicaDamaged, hwv1alpha1.ReasonLagTimeExceeded, hwv1alpha1.ReasonNodeFenced, hwv1alpha1.ReasonNodeShuttingDown, hwv1alpha1.ReasonOutOfSync,
	}, reason)
}

// setAll is for a partition that can't be mirrored: what was known stays, and what was not is said to be unknown.
func setAll(c *report.Conditions, f facts) {
	reason, message := hwv1alpha1.ReasonPending, "the partition is not there yet"
	switch {
	case !f.verdict.accepted():
		reason, message = hwv1alpha1.ReasonNotAccepted, "the Partition is not accepted"
	case f.state.Image == nil:
		reason, message = hwv1alpha1.ReasonMetadataUnavailable, "the metadata was not read yet"
	}
	for _, condition := range []string{hwv1alpha1.PartitionInSync, hwv1alpha1.PartitionMinISRSatisfied, hwv1alpha1.PartitionIntact} {
		if f.verdict.accepted() && f.state.Image == nil && c.Keep(condition) {
			continue
		}
		c.Set(condition, metav1.ConditionUnknown, reason, message)
	}
}

func setAccepted(c *report.Conditions, f facts, partition *metadata.Partition) {
	const condition = hwv1alpha1.PartitionAccepted
	var text string
	if f.refused != nil {
		text = f.refused.Error()
	}
	switch {
	case !f.verdict.accepted():
		c.Set(condition, metav1.ConditionFalse, f.verdict.reason, f.verdict.message)
	case f.state.Image == nil:
		if !c.Keep(condition) {
			c.Set(condition, metav1.ConditionUnknown, hwv1alpha1.ReasonMetadataUnavailable, "the ReplicaSet's metadata was not read yet")
		}
	case f.refused != nil:
		c.Set(condition, metav1.ConditionFalse, hwv1alpha1.ReasonRefused, text)
	case partition == nil:
		c.Set(condition, metav1.ConditionUnknown, hwv1alpha1.ReasonPending, "the partition is being made")
	default:
		c.Set(condition, metav1.ConditionTrue, hwv1alpha1.ReasonAccepted, "")
	}
}

// setReady is set last: it sums up.
func setReady(c *report.Conditions, f facts, partition *metadata.Partition) {
	const condition = hwv1alpha1.PartitionReady
	accepted := c.Get(hwv1alpha1.PartitionAccepted)
	switch {
	case accepted.Status == metav1.ConditionFalse:
		c.Set(condition, metav1.ConditionFalse, hwv1alpha1.ReasonNotAccepted, accepted.Message)
	case f.unavailable:
		c.Set(condition, metav1.ConditionUnknown, hwv1alpha1.ReasonMetadataUnavailable,
			"the metadata quorum has no leader or can't be reached, see the ReplicaSet; the rest of this status is as it was last committed")
	case f.state.Image == nil:
		if !c.Keep(condition) {
			c.Set(condition, metav1.ConditionUnknown, hwv1alpha1.ReasonMetadataUnavailable, accepted.Message)
		}
	case partition == nil:
		c.Set(condition, metav1.ConditionUnknown, hwv1alpha1.ReasonPending, accepted.Message)
	case partition.Leader < 0:
		c.Set(condition, metav1.ConditionFalse, hwv1alpha1.ReasonNoLeader, fmt.Sprintf(
			"no leader: none of the last replicas in sync (%s) serves", list(partition.ISR)))
	default:
		c.Set(condition, metav1.ConditionTrue, hwv1alpha1.ReasonLeaderElected, fmt.Sprintf("node %d leads", partition.Leader))
	}
}
