package report

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
)

// maxMessage bounds a condition's message; the API server refuses more than 32768 bytes.
const maxMessage = 1024

// Conditions collects the conditions of one object in one pass. Every type of the kind must be set before Done.
type Conditions struct {
	kind       string
	generation int64
	previous   []metav1.Condition
	now        metav1.Time
	set        map[string]metav1.Condition
}

// NewConditions begins a pass over an object of a kind that had the previous conditions.
func NewConditions(kind string, generation int64, previous []metav1.Condition, now metav1.Time) *Conditions {
	return &Conditions{kind: kind, generation: generation, previous: previous, now: now, set: map[string]metav1.Condition{}}
}

// Set gives a condition its value. The combination must stand in hwv1alpha1.ConditionTable: one that does not is a
// mistake in this program and panics, so that a test finds it.
func (c *Conditions) Set(conditionType string, status metav1.ConditionStatus, reason, message string) {
	if !inTable(hwv1alpha1.ConditionRow{Kind: c.kind, Type: conditionType, Status: status, Reason: reason}) {
		panic(fmt.Sprintf("condition %s %s=%s with reason %s is not in the condition table", c.kind, conditionType, status, reason))
	}
	if len(message) > maxMessage {
		message = message[:maxMessage-3] + "..."
	}
	condition := metav1.Condition{
		Type: conditionType, Status: status, Reason: reason, Message: message,
		ObservedGeneration: c.generation, LastTransitionTime: c.now,
	}
	if before := meta.FindStatusCondition(c.previous, conditionType); before != nil && before.Status == status {
		condition.LastTransitionTime = before.LastTransitionTime
	}
	c.set[conditionType] = condition
}

// Keep leaves a condition as it was, apart from the generation, and says whether there was one.
func (c *Conditions) Keep(conditionType string) bool {
	before := meta.FindStatusCondition(c.previous, conditionType)
	if before == nil {
		return false
	}
	condition := *before
	condition.ObservedGeneration = c.generation
	c.set[conditionType] = condition
	return true
}

// Get returns what was set in this pass.
func (c *Conditions) Get(conditionType string) metav1.Condition { return c.set[conditionType] }

// Done returns the conditions in the order of the table. One that was not set is a mistake in this program.
func (c *Conditions) Done() []metav1.Condition {
	var all []metav1.Condition
	for _, conditionType := range hwv1alpha1.ConditionTypes(c.kind) {
		condition, ok := c.set[conditionType]
		if !ok {
			panic(fmt.Sprintf("condition %s of a %s was not set in this pass", conditionType, c.kind))
		}
		all = append(all, condition)
	}
	return all
}

func inTable(wanted hwv1alpha1.ConditionRow) bool {
	for _, row := range hwv1alpha1.ConditionTable {
		if row == wanted {
			return true
		}
	}
	return false
}
