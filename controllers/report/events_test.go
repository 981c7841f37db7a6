package report

import (
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
)

func partition(name, uid string) *hwv1alpha1.Partition {
	return &hwv1alpha1.Partition{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(uid)}}
}

func TestTheSameOccurrenceHasTheSameNameAndAnotherHasAnother(t *testing.T) {
	events := NewEvents(nil)
	name := func(p *hwv1alpha1.Partition, e Event) string {
		return events.build(hwv1alpha1.KindPartition, p, e).Name
	}
	first := Event{Reason: hwv1alpha1.EventISRShrunk, Key: "t/5", Message: "a"}
	p := partition("orders", "1")
	if name(p, first) != name(p, Event{Reason: hwv1alpha1.EventISRShrunk, Key: "t/5", Message: "told otherwise"}) {
		t.Error("one occurrence has two names")
	}
	names := map[string]bool{name(p, first): true}
	for _, other := range []string{
		name(p, Event{Reason: hwv1alpha1.EventISRShrunk, Key: "t/6"}),
		name(p, Event{Reason: hwv1alpha1.EventISRExpanded, Key: "t/5"}),
		name(partition("orders", "2"), first),
	} {
		if names[other] {
			t.Errorf("two occurrences have the name %s", other)
		}
		names[other] = true
	}
}

func TestEventsOfLongNamesAreValid(t *testing.T) {
	subdomain := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	for _, name := range []string{"orders", strings.Repeat("a", 253), strings.Repeat("a", 199) + ".b", strings.Repeat("a", 199) + "-b"} {
		event := NewEvents(nil).build(hwv1alpha1.KindPartition, partition(name, "1"), Event{Reason: hwv1alpha1.EventLeaderLost, Warning: true, Message: strings.Repeat("m", 3000)})
		if len(event.Name) > 253 || !subdomain.MatchString(event.Name) {
			t.Errorf("name %q", event.Name)
		}
		if len(event.Note) > 1024 || event.Type != "Warning" {
			t.Errorf("a note of %d bytes, type %s", len(event.Note), event.Type)
		}
		if event.Regarding.APIVersion != "replication.highwater.dev/v1alpha1" || event.Regarding.Kind != "Partition" || event.Regarding.UID == "" {
			t.Errorf("regarding %+v", event.Regarding)
		}
	}
}
