package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pod is the name of a node's pod.
func pod(id int32) string { return fmt.Sprintf("%s-%d", replicaSet, id) }

// otherThan returns ids without one.
func otherThan(ids []int32, id int32) []int32 {
	return slices.DeleteFunc(slices.Clone(ids), func(other int32) bool { return other == id })
}

// signal pauses, resumes or kills pods.
func (d *demo) signal(ctx context.Context, what string, ids ...int32) error {
	for _, id := range ids {
		if _, err := d.Dev(ctx, what, pod(id)); err != nil {
			return err
		}
	}
	return nil
}

// condition says how a condition stands, or why it isn't as wanted.
func condition(conditions []metav1.Condition, kind string, want metav1.ConditionStatus) (string, error) {
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil {
		return "", fmt.Errorf("condition %s is not there yet", kind)
	}
	text := fmt.Sprintf("%s (%s)", c.Reason, c.Message)
	if c.Status != want {
		return "", fmt.Errorf("condition %s is %s, want %s: %s", kind, c.Status, want, text)
	}
	return text, nil
}

func (d *demo) waitPartition(ctx context.Context, kind string, want metav1.ConditionStatus, within time.Duration) error {
	return d.wait(ctx, within, fmt.Sprintf("Partition %s: %s=%s", partition, kind, want), func(ctx context.Context) (string, error) {
		p, err := d.Partition(ctx, partition)
		if err != nil {
			return "", err
		}
		return condition(p.Status.Conditions, kind, want)
	})
}

func (d *demo) waitReplicaSet(ctx context.Context, kind string, want metav1.ConditionStatus, within time.Duration) error {
	return d.wait(ctx, within, fmt.Sprintf("ReplicaSet %s: %s=%s", replicaSet, kind, want), func(ctx context.Context) (string, error) {
		rs, err := d.ReplicaSet(ctx, replicaSet)
		if err != nil {
			return "", err
		}
		return condition(rs.Status.Conditions, kind, want)
	})
}

// waitEvent waits for an event of a reason whose note contains a text.
func (d *demo) waitEvent(ctx context.Context, reason, note string) error {
	what := "event " + reason
	if note != "" {
		what += " about " + note
	}
	return d.wait(ctx, 15*time.Second, what, func(ctx context.Context) (string, error) {
		events, err := d.Events(ctx)
		if err != nil {
			return "", err
		}
		for i := len(events) - 1; i >= 0; i-- {
			if e := &events[i]; e.Reason == reason && strings.Contains(e.Note, note) {
				return e.Note, nil
			}
		}
		return "", fmt.Errorf("not among %d events", len(events))
	})
}

// waitAcks waits until the producer got so many more acknowledgements.
func (d *demo) waitAcks(ctx context.Context, more int) error {
	before, _ := d.producer.Acked()
	return d.wait(ctx, 60*time.Second, fmt.Sprintf("%d more records acknowledged", more), func(context.Context) (string, error) {
		now, _ := d.producer.Acked()
		if now < before+more {
			return "", fmt.Errorf("%d acknowledged, %d before", now, before)
		}
		return fmt.Sprintf("%d in all", now), nil
	})
}
