package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/test/devcluster"
)

// told is what people are told of a node's install: by events, by the condition, by the node's status.
type told struct {
	pod    string
	before map[string]bool // events that were there already
	cancel context.CancelFunc
	done   chan struct{}

	mu         sync.Mutex
	conditions []metav1.Condition // as they followed one another
	failed     error
}

// listen begins before the node starts.
func listen(ctx context.Context, p *proof, pod string) (*told, error) {
	t := &told{pod: pod, before: map[string]bool{}, done: make(chan struct{})}
	events, err := p.Events(ctx)
	if err != nil {
		return nil, err
	}
	for i := range events {
		t.before[events[i].Name] = true
	}
	ctx, t.cancel = context.WithCancel(ctx)
	watch, err := p.Client.Watch(ctx, &hwv1alpha1.ReplicaSetList{}, client.InNamespace(devcluster.Namespace))
	if err != nil {
		t.cancel()
		return nil, err
	}
	go func() {
		defer close(t.done)
		defer watch.Stop()
		for event := range watch.ResultChan() {
			rs, ok := event.Object.(*hwv1alpha1.ReplicaSet)
			t.mu.Lock()
			if !ok {
				t.failed = fmt.Errorf("the watch of ReplicaSets sent a %T", event.Object)
			} else if c := meta.FindStatusCondition(rs.Status.Conditions, hwv1alpha1.ReplicaSetSnapshotInstalling); c != nil {
				if n := len(t.conditions); n == 0 || t.conditions[n-1] != *c {
					t.conditions = append(t.conditions, *c)
				}
			}
			t.mu.Unlock()
		}
	}()
	return t, nil
}

func (t *told) close() {
	t.cancel()
	<-t.done
}

// notes are those of the new events of a reason about the pod.
func (t *told) notes(ctx context.Context, p *proof, reason string) ([]string, error) {
	events, err := p.Events(ctx)
	if err != nil {
		return nil, err
	}
	var notes []string
	for i := range events {
		e := &events[i]
		if e.Reason == reason && !t.before[e.Name] && strings.Contains(e.Note, "(pod "+t.pod+")") {
			notes = append(notes, e.Note)
		}
	}
	return notes, nil
}

// check waits until everything was told that there is to tell of the install, once.
func (t *told) check(ctx context.Context, r *round) error {
	s, err := r.tap.look()
	if err != nil {
		return err
	}
	var failures []string
	err = r.Eventually(ctx, 90*time.Second, func(ctx context.Context) error {
		started, err := t.notes(ctx, r.proof, hwv1alpha1.EventSnapshotInstallStarted)
		if err != nil {
			return err
		}
		installed, err := t.notes(ctx, r.proof, hwv1alpha1.EventSnapshotInstalled)
		if err != nil {
			return err
		}
		if failures, err = t.notes(ctx, r.proof, hwv1alpha1.EventSnapshotInstallFailed); err != nil {
			return err
		}
		if len(started) != 1 || len(installed) != 1 {
			return fmt.Errorf("events tell of %d starts and %d ends of an install, want one of each: %q, %q", len(started), len(installed), started, installed)
		}
		if !strings.Contains(installed[0], s.last.snapshot) || !strings.Contains(installed[0], fmt.Sprintf(" of %d bytes in ", s.last.size)) {
			return fmt.Errorf("the event tells %q, on the wire were %d bytes of %s", installed[0], s.last.size, s.last.snapshot)
		}
		return t.status(ctx, r, &s.last)
	})
	if err != nil {
		return err
	}
	if len(failures) > 0 != r.plan.fails && (r.plan.fails || r.plan.quiet) {
		return fmt.Errorf("events of failures: %q", failures)
	}
	return t.condition(r, len(failures))
}

// begun says whether the condition was True.
func (t *told) begun() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.conditions {
		if c.Status == metav1.ConditionTrue {
			return nil
		}
	}
	return errors.New("the condition was not True yet")
}

// status is what the ReplicaSet's says of the node.
func (t *told) status(ctx context.Context, r *round, d *download) error {
	rs, err := r.ReplicaSet(ctx, devcluster.SampleReplicaSet)
	if err != nil {
		return err
	}
	c := meta.FindStatusCondition(rs.Status.Conditions, hwv1alpha1.ReplicaSetSnapshotInstalling)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != hwv1alpha1.ReasonNoInstall {
		return fmt.Errorf("the condition is %+v", c)
	}
	for _, n := range rs.Status.Nodes {
		if n.ID != r.id {
			continue
		}
		last := n.LastSnapshotInstall
		if n.SnapshotInstall != nil || n.Metadata != hwv1alpha1.MetadataCurrent || last == nil || last.SnapshotID != d.snapshot || last.Bytes != d.size {
			return fmt.Errorf("the status of node %d is %s, its install %+v, its last one %+v; want %s of %d bytes", n.ID, n.Metadata, n.SnapshotInstall, last, d.snapshot, d.size)
		}
		return nil
	}
	return fmt.Errorf("the status has no node %d", r.id)
}

var progress = regexp.MustCompile(` of \d[^(]*\((\d+)%\)`)

// condition looks at how the condition went: True, about this node and with progress when there was time for it, then
// False, and no second time.
func (t *told) condition(r *round, failures int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	began, ended, times, told := false, false, 0, ""
	for _, c := range t.conditions {
		switch {
		case c.Status == metav1.ConditionTrue && c.Reason == hwv1alpha1.ReasonInstalling && strings.Contains(c.Message, "(pod "+t.pod+")"):
			if !began || ended {
				times++
			}
			began, ended = true, false
			if m := progress.FindStringSubmatch(c.Message); m != nil && m[1] != "0" {
				told += " " + m[1] + "%"
			}
		case c.Status == metav1.ConditionFalse && began:
			ended = true
		}
	}
	r.Say("  told: one start and one end, %d failures; the condition was True %d time(s), progress%s", failures, times, told)
	switch {
	case t.failed != nil:
		return t.failed
	case times > 1:
		return fmt.Errorf("the condition was True %d times in one install", times)
	case r.plan.quiet && (!began || !ended):
		return errors.New("the condition did not go from True to False")
	case r.plan.long && told == "":
		return errors.New("the condition's message told no progress")
	}
	return nil
}

// toldInAll counts the events of all installs once more, in the end: none may have been told late a second time.
func (p *proof) toldInAll(ctx context.Context) error {
	events, err := p.Events(ctx)
	if err != nil {
		return err
	}
	started, installed := 0, 0
	for i := range events {
		switch events[i].Reason {
		case hwv1alpha1.EventSnapshotInstallStarted:
			started++
		case hwv1alpha1.EventSnapshotInstalled:
			installed++
		}
	}
	p.events = started + installed
	if started != p.rounds || installed != p.rounds {
		return fmt.Errorf("events tell of %d starts and %d ends of installs, there were %d", started, installed, p.rounds)
	}
	return nil
}
