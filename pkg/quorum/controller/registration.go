package controller

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// BrokerRegistration (62) makes a broker known, fenced, under the offset of its registration record as broker epoch.
// The same incarnation again amends its registration and keeps epoch, fencing and shutdown (KAFKA-16952).
//
// Of Kafka's errors: INCONSISTENT_CLUSTER_ID; DUPLICATE_BROKER_REGISTRATION while another incarnation of the id is
// unfenced and heard of; INVALID_REGISTRATION for directories that are missing, reserved, given twice or another
// broker's, and for features without metadata.version; UNSUPPORTED_VERSION when a finalized feature is out of the
// broker's range; INVALID_REQUEST. REQUEST_TIMED_OUT: the partitions that the old incarnation is in sync for take more
// than one batch; it is taken out of all of them first.
func (c *Controller) BrokerRegistration(now ident.Instant, request *kmsg.BrokerRegistrationRequest) Decision {
	response := request.ResponseKind().(*kmsg.BrokerRegistrationResponse)
	response.BrokerEpoch = -1
	if !c.active {
		response.ErrorCode = kerr.NotController.Code
		return notController(response)
	}
	c.enter(now)
	defer c.plan()
	refuse := func(code *kerr.Error) Decision {
		response.ErrorCode = code.Code
		return c.answer(response)
	}
	id, incarnation := ident.NodeID(request.BrokerID), ident.UUID(request.IncarnationID)
	existing := c.appended.broker(id)
	amends := existing != nil && existing.Incarnation == incarnation
	switch {
	case request.ClusterID != c.cfg.ClusterID:
		return refuse(kerr.InconsistentClusterID)
	case existing != nil && !amends && !existing.Fenced && !c.expired(id):
		return refuse(kerr.DuplicateBrokerRegistration)
	case id < 0 || incarnation.IsZero():
		return refuse(kerr.InvalidRequest)
	case request.IsMigratingZkBroker:
		return refuse(kerr.BrokerIDNotRegistered)
	}
	if code := c.checkDirectories(id, request.LogDirs); code != nil {
		return refuse(code)
	}
	record := registrationRecord(request)
	if code := c.checkFeatures(record.Features); code != nil {
		return refuse(code)
	}
	if probe := c.begin(); !probe.fits(maxRegistration, record) {
		return refuse(kerr.InvalidRequest)
	}
	t := c.begin()
	if amends {
		record.BrokerEpoch, record.Fenced, record.InControlledShutdown = existing.Epoch, existing.Fenced, existing.InControlledShutdown
	} else {
		if existing != nil && !slices.ContainsFunc(existing.LogDirs, func(dir ident.UUID) bool { return slices.Contains(record.LogDirs, dir) }) {
			t.forgetDamage(existing)
		}
		// The old incarnation, or an old registration of which something is left. The new one may have lost its page
		// cache: it must see no partition of which it is still said to lead it, or to be in sync.
		if !t.leaveAll(id) {
			return c.leaveFirst(t, existing, response)
		}
		record.BrokerEpoch = int64(t.nextOffset())
	}
	t.add(record)
	if amends { // it may name other directories
		t.leaveOffline(id)
		t.electLeaderless()
	}
	response.BrokerEpoch = record.BrokerEpoch
	d := t.commit(response)
	if amends {
		c.sessions[id].contact = c.now
	} else {
		c.startSession(id)
	}
	return d
}

// leaveFirst is for a broker that is in more ISRs than one batch can take it out of. The rest is decided at once, in
// more batches; the broker asks again, as after any error.
func (c *Controller) leaveFirst(t *tx, existing *metadata.Broker, response *kmsg.BrokerRegistrationResponse) Decision {
	if existing != nil && !existing.Fenced {
		t.add(&metadata.BrokerRegistrationChangeRecord{BrokerID: existing.ID, BrokerEpoch: existing.Epoch, Fenced: metadata.Fence})
	}
	response.ErrorCode = kerr.RequestTimedOut.Code
	return t.commit(response)
}

func registrationRecord(request *kmsg.BrokerRegistrationRequest) *metadata.RegisterBrokerRecord {
	record := &metadata.RegisterBrokerRecord{
		BrokerID: ident.NodeID(request.BrokerID), IncarnationID: request.IncarnationID, Rack: request.Rack, Fenced: true,
	}
	for _, l := range request.Listeners {
		record.EndPoints = append(record.EndPoints, metadata.Endpoint{Name: l.Name, Host: l.Host, Port: l.Port, SecurityProtocol: l.SecurityProtocol})
	}
	for _, f := range request.Features {
		record.Features = append(record.Features, metadata.SupportedFeature{
			Name: f.Name, MinSupportedVersion: f.MinSupportedVersion, MaxSupportedVersion: f.MaxSupportedVersion,
		})
	}
	for _, dir := range request.LogDirs {
		record.LogDirs = append(record.LogDirs, dir)
	}
	return record
}

// checkDirectories is KIP-858's part of the registration's rules.
func (c *Controller) checkDirectories(id ident.NodeID, dirs [][16]byte) *kerr.Error {
	if len(dirs) == 0 {
		return kerr.InvalidRegistration
	}
	for i, dir := range dirs {
		if ident.UUID(dir).IsReserved() || slices.Contains(dirs[:i], dir) {
			return kerr.InvalidRegistration
		}
	}
	for b := range c.appended.image.Brokers() {
		if b.ID == id {
			continue
		}
		for _, dir := range dirs {
			if slices.Contains(b.LogDirs, ident.UUID(dir)) {
				return kerr.InvalidRegistration
			}
		}
	}
	return nil
}

// checkFeatures wants every finalized feature within the range that a node supports (KIP-584).
func (c *Controller) checkFeatures(features []metadata.SupportedFeature) *kerr.Error {
	supported := map[string]metadata.SupportedFeature{}
	for _, f := range features {
		if _, twice := supported[f.Name]; twice {
			return kerr.InvalidRegistration
		}
		supported[f.Name] = f
	}
	if _, ok := supported[metadata.FeatureMetadataVersion]; !ok {
		return kerr.InvalidRegistration
	}
	for name, level := range c.appended.image.Features() {
		f, ok := supported[name]
		if !ok || level < f.MinSupportedVersion || level > f.MaxSupportedVersion {
			return kerr.UnsupportedVersion
		}
	}
	for name, f := range supported {
		if c.appended.image.Feature(name) == 0 && name != metadata.FeatureMetadataVersion && name != metadata.FeatureKRaft && f.MinSupportedVersion > 0 {
			return kerr.UnsupportedVersion
		}
	}
	return nil
}

// UnregisterBroker (64) forgets a broker after it has left every ISR. BROKER_ID_NOT_REGISTERED when there is none.
func (c *Controller) UnregisterBroker(now ident.Instant, request *kmsg.UnregisterBrokerRequest) Decision {
	response := request.ResponseKind().(*kmsg.UnregisterBrokerResponse)
	if !c.active {
		response.ErrorCode = kerr.NotController.Code
		return notController(response)
	}
	c.enter(now)
	defer c.plan()
	id := ident.NodeID(request.BrokerID)
	b := c.appended.broker(id)
	if b == nil {
		response.ErrorCode, response.ErrorMessage = kerr.BrokerIDNotRegistered.Code, text("Broker ID %d is not currently registered", id)
		return c.answer(response)
	}
	t := c.begin()
	t.forgetDamage(b)
	t.leaveAll(id)
	t.add(&metadata.UnregisterBrokerRecord{BrokerID: id, BrokerEpoch: b.Epoch})
	d := t.commit(response)
	d.Reason = fmt.Sprintf("broker %d is unregistered", id)
	delete(c.sessions, id)
	return d
}
