package report

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
)

// Event is something that happened to an object.
type Event struct {
	// Reason is one of the Event constants of the API.
	Reason string
	// Warning says that somebody may have to act.
	Warning bool
	// Message for people. Its text is stable; numbers that move belong in status.
	Message string
	// Key tells this occurrence from others of the same reason on the same object, such as the partition epoch.
	// The same key gives the same event, so that writing it again changes nothing.
	Key string
}

// Events writes events of the group events.k8s.io.
type Events struct {
	writer   client.Writer
	instance string
	now      func() time.Time
}

// NewEvents returns a writer of events.
func NewEvents(writer client.Writer) *Events {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = FieldOwner
	}
	return &Events{writer: writer, instance: host, now: time.Now}
}

// Write writes events about an object. An event that was written before is left alone. The error is of those that
// another try may get written: a caller that finds its events in the difference to a status returns it before it writes
// that status. What the API server will never take is logged and lost, since what it tells also stands in the status.
func (e *Events) Write(ctx context.Context, kind string, object client.Object, events ...Event) error {
	var errs []error
	for _, event := range events {
		err := e.writer.Create(ctx, e.build(kind, object, event))
		if err == nil || apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			continue
		}
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) || apierrors.IsBadRequest(err) {
			log.FromContext(ctx).Error(err, "event not written", "reason", event.Reason, "note", event.Message)
			continue
		}
		errs = append(errs, fmt.Errorf("write event %s: %w", event.Reason, err))
	}
	return errors.Join(errs...)
}

func (e *Events) build(kind string, object client.Object, event Event) *eventsv1.Event {
	eventType := corev1.EventTypeNormal
	if event.Warning {
		eventType = corev1.EventTypeWarning
	}
	if len(event.Message) > maxMessage {
		event.Message = event.Message[:maxMessage-3] + "..."
	}
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: object.GetNamespace(),
			Name:      eventName(object, event),
		},
		EventTime:           metav1.NewMicroTime(e.now()),
		ReportingController: FieldOwner,
		ReportingInstance:   e.instance,
		Action:              "Observe",
		Reason:              event.Reason,
		Type:                eventType,
		Note:                event.Message,
		Regarding: corev1.ObjectReference{
			APIVersion: hwv1alpha1.GroupVersion.String(), Kind: kind,
			Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
			ResourceVersion: object.GetResourceVersion(),
		},
	}
}

// eventName is the same for the same occurrence.
func eventName(object client.Object, event Event) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", object.GetUID(), event.Reason, event.Key))
	name := object.GetName()
	if len(name) > 200 {
		name = strings.TrimRight(name[:200], ".-")
	}
	return name + "." + hex.EncodeToString(sum[:8])
}
