package controller

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

func controllerRegistration(id ident.NodeID, incarnation byte) *kmsg.ControllerRegistrationRequest {
	r := kmsg.NewPtrControllerRegistrationRequest()
	r.ControllerID, r.IncarnationID = int32(id), ident.UUID{0: 7, 15: incarnation}
	l := kmsg.NewControllerRegistrationRequestListener()
	l.Name, l.Host, l.Port = "CONTROLLER", "host", 9093
	r.Listeners = append(r.Listeners, l)
	f := kmsg.NewControllerRegistrationRequestFeature()
	f.Name, f.MinSupportedVersion, f.MaxSupportedVersion = metadata.FeatureMetadataVersion, 7, int16(metadata.Pinned)
	r.Features = append(r.Features, f)
	return r
}

func (h *harness) registerController(r *kmsg.ControllerRegistrationRequest) (*kmsg.ControllerRegistrationResponse, []metadata.Record) {
	d := h.c.ControllerRegistration(h.now, r)
	return d.Response.(*kmsg.ControllerRegistrationResponse), h.take(d)
}

func TestControllerRegistersOncePerIncarnation(t *testing.T) {
	h := newHarness(t, testConfig())
	for _, incarnation := range []byte{1, 1, 2} {
		known, ok := h.c.appended.image.Controller(200)
		again := ok && known.Incarnation == ident.UUID{0: 7, 15: incarnation}
		answer, records := h.registerController(controllerRegistration(200, incarnation))
		if answer.ErrorCode != 0 || (len(records) == 0) != again {
			t.Fatalf("incarnation %d: %s and %d records", incarnation, name(answer.ErrorCode), len(records))
		}
		got, ok := h.c.appended.image.Controller(200)
		if !ok || got.Incarnation != (ident.UUID{0: 7, 15: incarnation}) || len(got.Endpoints) != 1 || got.Endpoints[0].Port != 9093 || len(got.Features) != 1 {
			t.Errorf("registered %+v", got)
		}
	}
}

func TestControllerRegistrationErrors(t *testing.T) {
	for what, c := range map[string]struct {
		edit func(*kmsg.ControllerRegistrationRequest)
		want *kerr.Error
	}{
		"negative id":    {func(r *kmsg.ControllerRegistrationRequest) { r.ControllerID = -1 }, kerr.InvalidRequest},
		"no incarnation": {func(r *kmsg.ControllerRegistrationRequest) { r.IncarnationID = ident.ZeroUUID }, kerr.InvalidRequest},
		"no listener":    {func(r *kmsg.ControllerRegistrationRequest) { r.Listeners = nil }, kerr.InvalidRequest},
		"from ZooKeeper": {func(r *kmsg.ControllerRegistrationRequest) { r.ZkMigrationReady = true }, kerr.InvalidRequest},
		"no features":    {func(r *kmsg.ControllerRegistrationRequest) { r.Features = nil }, kerr.InvalidRegistration},
		"too old":        {func(r *kmsg.ControllerRegistrationRequest) { r.Features[0].MaxSupportedVersion-- }, kerr.UnsupportedVersion},
		"large": {func(r *kmsg.ControllerRegistrationRequest) {
			r.Listeners = slices.Repeat(r.Listeners, 10_000)
		}, kerr.InvalidRequest},
	} {
		h := newHarness(t, testConfig())
		r := controllerRegistration(200, 1)
		c.edit(r)
		answer, records := h.registerController(r)
		if answer.ErrorCode != c.want.Code || answer.ErrorMessage == nil || len(records) != 0 {
			t.Errorf("%s: %s and %d records, want %s", what, name(answer.ErrorCode), len(records), c.want.Message)
		}
	}
	h := newHarness(t, testConfig())
	h.c.Resign()
	if answer, _ := h.registerController(controllerRegistration(200, 1)); answer.ErrorCode != kerr.NotController.Code {
		t.Errorf("while another leads: %s", name(answer.ErrorCode))
	}
}
