package report

import (
	"context"
	"regexp"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// refusing is a client.Writer whose Create fails.
type refusing struct {
	client.Writer
	err error
}

func (r refusing) Create(context.Context, client.Object, ...client.CreateOption) error { return r.err }

// An event that a later try may get written must hold the status back, or nobody would find it missing.
func TestOnlyAnEventThatMayYetBeWrittenIsAnError(t *testing.T) {
	resource := schema.GroupResource{Group: "events.k8s.io", Resource: "events"}
	for _, row := range []struct {
		name  string
		err   error
		again bool
	}{
		{"written", nil, false},
		{"written before", apierrors.NewAlreadyExists(resource, "e"), false},
		{"forbidden", apierrors.NewForbidden(resource, "e", nil), false},
		{"too many requests", apierrors.NewTooManyRequests("slow down", 1), true},
		{"server is away", apierrors.NewServiceUnavailable("away"), true},
		{"connection lost", context.DeadlineExceeded, true},
	} {
		events := NewEvents(refusing{err: row.err})
		err := events.Write(t.Context(), hwv1alpha1.KindPartition, partition("orders", "1"), Event{Reason: hwv1alpha1.EventLeaderLost})
		if (err != nil) != row.again {
			t.Errorf("%s: error %v, want one: %v", row.name, err, row.again)
		}
	}
}
