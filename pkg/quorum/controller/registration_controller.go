package controller

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// ControllerRegistration (70) notes where a controller listens and which levels it supports (KIP-919). Apache Kafka's
// controllers ask for it, voters or not; ours need nothing of it, since what it says stands in the voter set. The same
// incarnation again, to which the answer was lost, writes nothing.
//
// INVALID_REQUEST; INVALID_REGISTRATION and UNSUPPORTED_VERSION for features as BrokerRegistration has them: a
// controller that can't read the log must not wait to become a voter.
func (c *Controller) ControllerRegistration(now ident.Instant, request *kmsg.ControllerRegistrationRequest) Decision {
	response := request.ResponseKind().(*kmsg.ControllerRegistrationResponse)
	if !c.active {
		response.ErrorCode = kerr.NotController.Code
		return notController(response)
	}
	c.enter(now)
	defer c.plan()
	refuse := func(code *kerr.Error, why string) Decision {
		response.ErrorCode, response.ErrorMessage = code.Code, &why
		return c.answer(response)
	}
	record := &metadata.RegisterControllerRecord{ControllerID: ident.NodeID(request.ControllerID), IncarnationID: request.IncarnationID}
	for _, l := range request.Listeners {
		record.EndPoints = append(record.EndPoints, metadata.Endpoint{Name: l.Name, Host: l.Host, Port: l.Port, SecurityProtocol: l.SecurityProtocol})
	}
	for _, f := range request.Features {
		record.Features = append(record.Features, metadata.SupportedFeature{
			Name: f.Name, MinSupportedVersion: f.MinSupportedVersion, MaxSupportedVersion: f.MaxSupportedVersion,
		})
	}
	switch {
	case record.ControllerID < 0 || record.IncarnationID.IsZero() || len(record.EndPoints) == 0:
		return refuse(kerr.InvalidRequest, "a controller needs an id, an incarnation id and a listener")
	case request.ZkMigrationReady:
		return refuse(kerr.InvalidRequest, "there is no ZooKeeper to migrate from")
	}
	if code := c.checkFeatures(record.Features); code != nil {
		return refuse(code, "the controller's features do not fit the cluster's levels")
	}
	if probe := c.begin(); !probe.fits(maxRegistration, record) {
		return refuse(kerr.InvalidRequest, "the registration is too large")
	}
	t := c.begin()
	if known, ok := c.appended.image.Controller(record.ControllerID); !ok || known.Incarnation != record.IncarnationID {
		t.add(record)
	}
	d := t.commit(response)
	if len(d.Records) > 0 {
		d.Reason = *text("controller %d registers", record.ControllerID)
	}
	return d
}
