package partition

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/report"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// events are the differences between two statuses that people want to hear of, apart from replicas that left the ISR,
// which may wait for their reason: see shrinkEvent. partition is what is committed, nil when that is not known; refilled
// says whether a replica that is no longer damaged is whole.
func events(before, after *hwv1alpha1.PartitionStatus, partition *metadata.Partition, refilled func(id int32) bool) []report.Event {
	if partition == nil {
		return nil
	}
	var all []report.Event
	add := func(reason string, warning bool, key, format string, args ...any) {
		all = append(all, report.Event{Reason: reason, Warning: warning, Key: after.TopicID + "/" + key, Message: fmt.Sprintf(format, args...)})
	}
	epoch := fmt.Sprint(*after.PartitionEpoch)
	if before.TopicID == "" {
		if after.Origin == hwv1alpha1.OriginCreated {
			add(hwv1alpha1.EventPartitionCreated, false, "", "made on nodes %s", list(after.Assignment))
		} else {
			add(hwv1alpha1.EventPartitionAdopted, false, "", "the partition was there before, on nodes %s; its topic is never deleted with its Partitions", list(after.Assignment))
		}
	} else {
		if joined := without(after.ISR, before.ISR); len(joined) > 0 {
			add(hwv1alpha1.EventISRExpanded, false, epoch, "ISR is %s: %s joined", list(after.ISR), list(joined))
		}
		leaderEvents(before, after, partition, add)
	}
	damageEvents(before, after, refilled, add)
	was, is := conditionStatus(before, hwv1alpha1.PartitionMinISRSatisfied), conditionStatus(after, hwv1alpha1.PartitionMinISRSatisfied)
	switch {
	case is == metav1.ConditionFalse && was != metav1.ConditionFalse:
		add(hwv1alpha1.EventUnderMinISR, true, epoch, "ISR is %s and minInSyncReplicas is %d: writes with acks=all are refused", list(after.ISR), *after.MinInSyncReplicas)
	case is == metav1.ConditionTrue && was == metav1.ConditionFalse:
		add(hwv1alpha1.EventMinISRRestored, false, epoch, "ISR is %s and minInSyncReplicas is %d: writes with acks=all are taken again", list(after.ISR), *after.MinInSyncReplicas)
	}
	return all
}

func leaderEvents(before, after *hwv1alpha1.PartitionStatus, partition *metadata.Partition, add func(string, bool, string, string, ...any)) {
	was, is := int32(-1), *after.Leader
	if before.Leader != nil {
		was = *before.Leader
	}
	epoch := fmt.Sprint(*after.LeaderEpoch)
	switch {
	case before.LeaderEpoch != nil && *before.LeaderEpoch == *after.LeaderEpoch && was == is:
	case is < 0 && was >= 0:
		add(hwv1alpha1.EventLeaderLost, true, epoch, "node %d no longer leads and no other replica in sync serves", was)
	case is < 0:
	case partition.RecoveryState == metadata.Recovering:
		add(hwv1alpha1.EventUncleanLeaderElected, true, epoch, "node %d leads although it was not in sync: records may be lost", is)
	default:
		add(hwv1alpha1.EventLeaderElected, false, epoch, "node %d leads in epoch %d", is, *after.LeaderEpoch)
	}
}

// shrinkEvent tells of replicas that left the ISR, and why.
func shrinkEvent(topicID string, s shrink, replicas []hwv1alpha1.ReplicaStatus) report.Event {
	var texts []string
	for _, id := range s.left {
		text := fmt.Sprintf("%d left", id)
		i := slices.IndexFunc(replicas, func(r hwv1alpha1.ReplicaStatus) bool { return r.ID == id })
		if i >= 0 {
			text += why(replicas[i])
		}
		texts = append(texts, text)
	}
	return report.Event{
		Reason: hwv1alpha1.EventISRShrunk, Warning: true, Key: fmt.Sprintf("%s/%d", topicID, s.until),
		Message: fmt.Sprintf("ISR is %s: %s", list(s.isr), strings.Join(texts, "; ")),
	}
}

func why(r hwv1alpha1.ReplicaStatus) string {
	switch {
	case r.Reason == "":
		return ", " + hwv1alpha1.ReasonOutOfSync
	case r.LagMillis != nil && r.LagOffsets != nil:
		lag := time.Duration(*r.LagMillis) * time.Millisecond
		return fmt.Sprintf(", %s: %s and %d records behind", r.Reason, lag, *r.LagOffsets)
	case r.LagOffsets != nil:
		return fmt.Sprintf(", %s: %d records behind", r.Reason, *r.LagOffsets)
	default:
		return ", " + r.Reason
	}
}

func conditionStatus(s *hwv1alpha1.PartitionStatus, conditionType string) metav1.ConditionStatus {
	for _, condition := range s.Conditions {
		if condition.Type == conditionType {
			return condition.Status
		}
	}
	return metav1.ConditionUnknown
}
