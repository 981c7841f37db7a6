package report_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/report"
)

var (
	earlier = metav1.NewTime(time.Unix(1000, 0))
	later   = metav1.NewTime(time.Unix(2000, 0))
)

func setAll(c *report.Conditions, ready metav1.ConditionStatus, reason, message string) {
	c.Set(hwv1alpha1.PartitionAccepted, metav1.ConditionTrue, hwv1alpha1.ReasonAccepted, "")
	c.Set(hwv1alpha1.PartitionReady, ready, reason, message)
	c.Set(hwv1alpha1.PartitionInSync, metav1.ConditionTrue, hwv1alpha1.ReasonAllInSync, "")
	c.Set(hwv1alpha1.PartitionMinISRSatisfied, metav1.ConditionTrue, hwv1alpha1.ReasonEnoughInSync, "")
	c.Set(hwv1alpha1.PartitionIntact, metav1.ConditionTrue, hwv1alpha1.ReasonAllReplicasIntact, "")
}

func TestTransitionTimeMovesOnlyWithTheStatus(t *testing.T) {
	first := report.NewConditions(hwv1alpha1.KindPartition, 1, nil, earlier)
	setAll(first, metav1.ConditionFalse, hwv1alpha1.ReasonNoLeader, "a")
	before := first.Done()

	second := report.NewConditions(hwv1alpha1.KindPartition, 2, before, later)
	setAll(second, metav1.ConditionFalse, hwv1alpha1.ReasonNotAccepted, "b")
	if ready := second.Done()[1]; !ready.LastTransitionTime.Equal(&earlier) || ready.Message != "b" || ready.ObservedGeneration != 2 {
		t.Errorf("same status: %+v", ready)
	}
	third := report.NewConditions(hwv1alpha1.KindPartition, 2, before, later)
	setAll(third, metav1.ConditionTrue, hwv1alpha1.ReasonLeaderElected, "")
	if ready := third.Done()[1]; !ready.LastTransitionTime.Equal(&later) {
		t.Errorf("other status: %+v", ready)
	}
}

func TestConditionsComeInTheOrderOfTheTable(t *testing.T) {
	c := report.NewConditions(hwv1alpha1.KindPartition, 1, nil, earlier)
	setAll(c, metav1.ConditionFalse, hwv1alpha1.ReasonNoLeader, "")
	for i, condition := range c.Done() {
		if want := hwv1alpha1.ConditionTypes(hwv1alpha1.KindPartition)[i]; condition.Type != want {
			t.Errorf("condition %d is %s, want %s", i, condition.Type, want)
		}
	}
}

func TestMistakesOfTheProgramPanic(t *testing.T) {
	for name, mistake := range map[string]func(*report.Conditions){
		"a reason that the table does not have": func(c *report.Conditions) {
			c.Set(hwv1alpha1.PartitionReady, metav1.ConditionTrue, hwv1alpha1.ReasonNoLeader, "")
		},
		"a condition of another kind": func(c *report.Conditions) {
			c.Set(hwv1alpha1.ReplicaSetProgressing, metav1.ConditionFalse, hwv1alpha1.ReasonSettled, "")
		},
		"a condition that was forgotten": func(c *report.Conditions) {
			c.Set(hwv1alpha1.PartitionReady, metav1.ConditionFalse, hwv1alpha1.ReasonNoLeader, "")
			c.Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("did not panic")
				}
			}()
			mistake(report.NewConditions(hwv1alpha1.KindPartition, 1, nil, earlier))
		})
	}
}

func TestKeepLeavesAConditionAsItWas(t *testing.T) {
	first := report.NewConditions(hwv1alpha1.KindPartition, 1, nil, earlier)
	setAll(first, metav1.ConditionFalse, hwv1alpha1.ReasonNoLeader, "why")
	second := report.NewConditions(hwv1alpha1.KindPartition, 5, first.Done(), later)
	if !second.Keep(hwv1alpha1.PartitionReady) {
		t.Fatal("there was one to keep")
	}
	kept := second.Get(hwv1alpha1.PartitionReady)
	if kept.Message != "why" || kept.ObservedGeneration != 5 || !kept.LastTransitionTime.Equal(&earlier) {
		t.Errorf("kept %+v", kept)
	}
	if report.NewConditions(hwv1alpha1.KindPartition, 5, nil, later).Keep(hwv1alpha1.PartitionReady) {
		t.Error("there was none to keep")
	}
}

func TestLongMessagesAreCut(t *testing.T) {
	c := report.NewConditions(hwv1alpha1.KindPartition, 1, nil, earlier)
	setAll(c, metav1.ConditionFalse, hwv1alpha1.ReasonNoLeader, strings.Repeat("x", 5000))
	if n := len(c.Done()[1].Message); n > 1024 {
		t.Errorf("a message of %d bytes", n)
	}
}
