package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/test/devcluster"
)

// toldOffline waits until people are told of the node whose directory went offline: by the condition, with the reason,
// and by one event for this time.
func (p *proof) toldOffline(ctx context.Context, v *victim, reason string) error {
	p.offlines[v.id]++
	return p.Eventually(ctx, 30*time.Second, func(ctx context.Context) error {
		rs, err := p.ReplicaSet(ctx, devcluster.SampleReplicaSet)
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(rs.Status.Conditions, hwv1alpha1.ReplicaSetReplicasAvailable)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != hwv1alpha1.ReasonLogDirOffline ||
			!strings.Contains(c.Message, v.pod) || !strings.Contains(c.Message, reason) {
			return fmt.Errorf("the ReplicaSet's condition is %+v, want %s with %s of %s", c, hwv1alpha1.ReasonLogDirOffline, reason, v.pod)
		}
		return p.events(ctx, hwv1alpha1.EventLogDirOffline, v)
	})
}

// toldOnline waits until people were told of each return of the node's directory, and of nothing else.
func (p *proof) toldOnline(ctx context.Context, v *victim) error {
	return p.Eventually(ctx, 30*time.Second, func(ctx context.Context) error {
		return errors.Join(p.events(ctx, hwv1alpha1.EventLogDirOffline, v), p.events(ctx, hwv1alpha1.EventLogDirOnline, v))
	})
}

// events counts the events of a reason about the node: one for each time that its directory went.
func (p *proof) events(ctx context.Context, reason string, v *victim) error {
	all, err := p.Events(ctx)
	if err != nil {
		return err
	}
	n := 0
	for i := range all {
		if all[i].Reason == reason && strings.Contains(all[i].Note, "(pod "+v.pod+")") {
			n++
		}
	}
	if n != p.offlines[v.id] {
		return fmt.Errorf("%d events %s of %s, want %d", n, reason, v.pod, p.offlines[v.id])
	}
	return nil
}
