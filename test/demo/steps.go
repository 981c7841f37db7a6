package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/test/workload"
)

// apply brings the samples up and starts to write.
func (d *demo) apply(ctx context.Context) error {
	d.say("kubectl apply -f %s: three voters, three data nodes, one Partition with minInSyncReplicas 2", d.samples)
	if _, err := d.Kubectl(ctx, "apply", "-f", d.samples); err != nil {
		return err
	}
	if err := d.waitReplicaSet(ctx, hwv1alpha1.ReplicaSetReady, metav1.ConditionTrue, 120*time.Second); err != nil {
		return err
	}
	for _, condition := range []string{hwv1alpha1.PartitionReady, hwv1alpha1.PartitionInSync, hwv1alpha1.PartitionMinISRSatisfied} {
		if err := d.waitPartition(ctx, condition, metav1.ConditionTrue, 60*time.Second); err != nil {
			return err
		}
	}
	var err error
	if d.seeds, err = d.Bootstrap(ctx, replicaSet); err != nil {
		return err
	}
	d.say("a franz-go producer (acks=all, idempotent) writes numbered records to %s", strings.Join(d.seeds, ","))
	d.producer, err = workload.Start(d.seeds, partition, 20*time.Millisecond)
	if err != nil {
		return err
	}
	return d.waitAcks(ctx, 50)
}

// cutFollower cuts one follower from the leader while its heartbeats go on.
func (d *demo) cutFollower(ctx context.Context) error {
	p, err := d.Partition(ctx, partition)
	if err != nil {
		return err
	}
	leader, follower := p.Status.Leader, otherThan(p.Status.ISR, *p.Status.Leader)[0]
	d.say("cut the link of follower %d to leader %d; its heartbeats to the controller go on", follower, *leader)
	if _, err := d.Dev(ctx, "fault", "cut", pod(follower), pod(*leader), "INTERNAL"); err != nil {
		return err
	}
	if err := d.waitPartition(ctx, hwv1alpha1.PartitionInSync, metav1.ConditionFalse, 30*time.Second); err != nil {
		return err
	}
	if p, err = d.Partition(ctx, partition); err != nil {
		return err
	}
	if reason := meta.FindStatusCondition(p.Status.Conditions, hwv1alpha1.PartitionInSync).Reason; reason != hwv1alpha1.ReasonLagTimeExceeded {
		return fmt.Errorf("InSync is False for reason %s, want %s", reason, hwv1alpha1.ReasonLagTimeExceeded)
	}
	if slices.Contains(p.Status.ISR, follower) || len(p.Status.ISR) != 2 {
		return fmt.Errorf("ISR is %v after replica %d fell out", p.Status.ISR, follower)
	}
	if err := d.waitEvent(ctx, hwv1alpha1.EventISRShrunk, fmt.Sprintf("%d left, %s", follower, hwv1alpha1.ReasonLagTimeExceeded)); err != nil {
		return err
	}
	rs, err := d.ReplicaSet(ctx, replicaSet)
	if err != nil {
		return err
	}
	for _, n := range rs.Status.Nodes {
		if n.ID == follower && n.State != hwv1alpha1.NodeUnfenced {
			return fmt.Errorf("node %d is %s; only its link to the leader was cut", follower, n.State)
		}
	}
	d.say("heal the link")
	if _, err := d.Dev(ctx, "fault", "heal", pod(follower), pod(*leader), "INTERNAL"); err != nil {
		return err
	}
	if err := d.waitPartition(ctx, hwv1alpha1.PartitionInSync, metav1.ConditionTrue, 30*time.Second); err != nil {
		return err
	}
	return d.waitEvent(ctx, hwv1alpha1.EventISRExpanded, fmt.Sprintf("%d joined", follower))
}

// pauseDataNodes stops the two followers' processes.
func (d *demo) pauseDataNodes(ctx context.Context) error {
	p, err := d.Partition(ctx, partition)
	if err != nil {
		return err
	}
	followers := otherThan(p.Status.Assignment, *p.Status.Leader)
	// Asked now: a client that is given the address of a stopped node waits for it.
	addresses, err := workload.Addresses(ctx, d.seeds)
	if err != nil {
		return err
	}
	d.say("stop the data nodes %v (SIGSTOP): the controller fences them", followers)
	if err := d.signal(ctx, "pause", followers...); err != nil {
		return err
	}
	if err := d.waitPartition(ctx, hwv1alpha1.PartitionMinISRSatisfied, metav1.ConditionFalse, 30*time.Second); err != nil {
		return err
	}
	if err := d.waitEvent(ctx, hwv1alpha1.EventUnderMinISR, ""); err != nil {
		return err
	}
	for _, id := range followers {
		if err := d.waitEvent(ctx, hwv1alpha1.EventNodeFenced, fmt.Sprintf("node %d", id)); err != nil {
			return err
		}
	}
	err = d.wait(ctx, 30*time.Second, "a producer is refused", func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, testscale.Duration(5*time.Second))
		defer cancel()
		err := workload.Probe(ctx, []string{addresses[*p.Status.Leader]}, partition)
		switch {
		case err == nil:
			return "", errors.New("the write was taken, want NOT_ENOUGH_REPLICAS")
		case !errors.Is(err, kerr.NotEnoughReplicas):
			return "", fmt.Errorf("want NOT_ENOUGH_REPLICAS, got: %w", err)
		}
		return err.Error(), nil
	})
	if err != nil {
		return err
	}
	d.say("let them go on (SIGCONT)")
	if err := d.signal(ctx, "resume", followers...); err != nil {
		return err
	}
	for _, condition := range []string{hwv1alpha1.PartitionMinISRSatisfied, hwv1alpha1.PartitionInSync} {
		if err := d.waitPartition(ctx, condition, metav1.ConditionTrue, 60*time.Second); err != nil {
			return err
		}
	}
	return d.waitEvent(ctx, hwv1alpha1.EventMinISRRestored, "")
}

// killLeader kills the leader's pod.
func (d *demo) killLeader(ctx context.Context) error {
	before, err := d.Partition(ctx, partition)
	if err != nil {
		return err
	}
	d.say("kill the pod of leader %d (SIGKILL)", *before.Status.Leader)
	if err := d.signal(ctx, "kill", *before.Status.Leader); err != nil {
		return err
	}
	err = d.wait(ctx, 30*time.Second, "another leader", func(ctx context.Context) (string, error) {
		now, err := d.Partition(ctx, partition)
		if err != nil {
			return "", err
		}
		leader, epoch := *now.Status.Leader, *now.Status.LeaderEpoch
		if leader < 0 || leader == *before.Status.Leader || epoch <= *before.Status.LeaderEpoch {
			return "", fmt.Errorf("leader %d in epoch %d, was %d in epoch %d", leader, epoch, *before.Status.Leader, *before.Status.LeaderEpoch)
		}
		if !slices.Contains(before.Status.ISR, leader) {
			return "", fmt.Errorf("leader %d was not in the ISR %v", leader, before.Status.ISR)
		}
		return fmt.Sprintf("node %d of the ISR leads in epoch %d, was %d", leader, epoch, *before.Status.LeaderEpoch), nil
	})
	if err != nil {
		return err
	}
	if err := d.waitEvent(ctx, hwv1alpha1.EventLeaderElected, ""); err != nil {
		return err
	}
	d.say("the killed pod is started again by itself")
	if err := d.waitPartition(ctx, hwv1alpha1.PartitionInSync, metav1.ConditionTrue, 90*time.Second); err != nil {
		return err
	}
	return d.waitAcks(ctx, 50)
}

// pauseVoters stops two of three voters, the leader among them.
func (d *demo) pauseVoters(ctx context.Context) error {
	rs, err := d.ReplicaSet(ctx, replicaSet)
	if err != nil {
		return err
	}
	leader := rs.Status.Quorum.LeaderID
	stopped := []int32{leader, otherThan(rs.Status.Quorum.Voters, leader)[0]}
	d.say("stop the voters %v (SIGSTOP), of which %d leads: no majority is left", stopped, leader)
	if err := d.signal(ctx, "pause", stopped...); err != nil {
		return err
	}
	if err := d.waitReplicaSet(ctx, hwv1alpha1.ReplicaSetQuorumAvailable, metav1.ConditionFalse, 30*time.Second); err != nil {
		return err
	}
	d.say("writes go on without a quorum: leaders keep leading what was committed")
	if err := d.waitAcks(ctx, 100); err != nil {
		return err
	}
	d.say("let them go on (SIGCONT)")
	if err := d.signal(ctx, "resume", stopped...); err != nil {
		return err
	}
	if err := d.waitReplicaSet(ctx, hwv1alpha1.ReplicaSetQuorumAvailable, metav1.ConditionTrue, 60*time.Second); err != nil {
		return err
	}
	if err := d.waitReplicaSet(ctx, hwv1alpha1.ReplicaSetReady, metav1.ConditionTrue, 60*time.Second); err != nil {
		return err
	}
	return d.waitPartition(ctx, hwv1alpha1.PartitionInSync, metav1.ConditionTrue, 60*time.Second)
}

// readBack ends the writing and compares what is there with what was acknowledged.
func (d *demo) readBack(ctx context.Context) error {
	d.say("stop writing and read everything back")
	ctx, cancel := context.WithTimeout(ctx, testscale.Duration(90*time.Second))
	defer cancel()
	if err := d.producer.Stop(ctx); err != nil {
		return err
	}
	report, err := d.producer.Verify(ctx, d.seeds)
	if err != nil {
		return err
	}
	if err := errors.Join(report.Err(), report.Failed); err != nil {
		return err
	}
	d.say("  %s: every acknowledged record is there once and in order", report)
	return nil
}

// checkEvents leaves the events as kubectl gives them, and asks for each kind that must have been seen.
func (d *demo) checkEvents(ctx context.Context) error {
	raw, err := d.Kubectl(ctx, "get", "events.events.k8s.io", "--sort-by=.metadata.creationTimestamp", "-o", "json")
	if err != nil {
		return err
	}
	if err := os.WriteFile(d.events, raw, 0o644); err != nil {
		return err
	}
	for _, reason := range []string{
		hwv1alpha1.EventISRShrunk, hwv1alpha1.EventISRExpanded, hwv1alpha1.EventUnderMinISR, hwv1alpha1.EventMinISRRestored,
		hwv1alpha1.EventLeaderElected, hwv1alpha1.EventNodeFenced, hwv1alpha1.EventNodeUnfenced, hwv1alpha1.EventQuorumLeaderChanged,
	} {
		if err := d.waitEvent(ctx, reason, ""); err != nil {
			return err
		}
	}
	return nil
}
