package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/test/devcluster"
)

// seen is one state of the Partition as a watch showed it.
type seen struct {
	at     time.Time
	epoch  int32
	isr    []int32
	inSync metav1.ConditionStatus
}

// watcher notes each state of one Partition.
type watcher struct {
	client client.WithWatch
	name   string

	mu     sync.Mutex
	states []seen
	err    error
}

// run watches until ctx ends. A watch that the API server ends is begun again.
func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := w.watch(ctx); err != nil && ctx.Err() == nil {
			w.mu.Lock()
			w.err = err
			w.mu.Unlock()
			return
		}
	}
}

func (w *watcher) watch(ctx context.Context) error {
	stream, err := w.client.Watch(ctx, &hwv1alpha1.PartitionList{}, client.InNamespace(devcluster.Namespace),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", w.name)})
	if err != nil {
		return err
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		now := time.Now()
		switch event.Type {
		case watch.Error:
			return apierrors.FromObject(event.Object)
		case watch.Deleted:
			return errors.New("the Partition was deleted")
		case watch.Added, watch.Modified, watch.Bookmark:
		}
		p, ok := event.Object.(*hwv1alpha1.Partition)
		if !ok || p.Status.PartitionEpoch == nil {
			continue
		}
		s := seen{at: now, epoch: *p.Status.PartitionEpoch, isr: slices.Sorted(slices.Values(p.Status.ISR)), inSync: metav1.ConditionUnknown}
		if c := meta.FindStatusCondition(p.Status.Conditions, hwv1alpha1.PartitionInSync); c != nil {
			s.inSync = c.Status
		}
		w.mu.Lock()
		w.states = append(w.states, s)
		w.mu.Unlock()
	}
	return nil
}

// first returns the first state at or after a time that a condition holds for.
func (w *watcher) first(after time.Time, holds func(seen) bool) (seen, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.states {
		if !s.at.Before(after) && holds(s) {
			return s, true
		}
	}
	return seen{}, false
}

func (w *watcher) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
