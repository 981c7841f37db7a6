package v1alpha1_test

import (
	"regexp"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
)

func TestConditionTableHasEachRowOnceAndTypesInOnePlace(t *testing.T) {
	seen := map[hwv1alpha1.ConditionRow]bool{}
	camelCase := regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	for _, row := range hwv1alpha1.ConditionTable {
		if seen[row] {
			t.Errorf("%v stands twice", row)
		}
		seen[row] = true
		if !camelCase.MatchString(row.Reason) || !camelCase.MatchString(row.Type) {
			t.Errorf("%v: types and reasons are CamelCase", row)
		}
	}
	for _, kind := range []string{hwv1alpha1.KindPartition, hwv1alpha1.KindReplicaSet} {
		types := hwv1alpha1.ConditionTypes(kind)
		sorted := slices.Sorted(slices.Values(types))
		if len(slices.Compact(sorted)) != len(types) {
			t.Errorf("%s: the rows of a condition must follow each other: %v", kind, types)
		}
	}
}

func TestEveryConditionCanBeHealthyAndUnhealthy(t *testing.T) {
	for _, kind := range []string{hwv1alpha1.KindPartition, hwv1alpha1.KindReplicaSet} {
		for _, conditionType := range hwv1alpha1.ConditionTypes(kind) {
			for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse} {
				found := slices.ContainsFunc(hwv1alpha1.ConditionTable, func(row hwv1alpha1.ConditionRow) bool {
					return row.Kind == kind && row.Type == conditionType && row.Status == status
				})
				if !found {
					t.Errorf("%s %s has no row for %s", kind, conditionType, status)
				}
			}
		}
	}
}
