package metadata

import (
	"slices"
	"strings"

	"github.com/highwater-io/highwater/pkg/ident"
)

func (d *Delta) registerBroker(r *RegisterBrokerRecord) {
	d.putBroker(&Broker{
		ID: r.BrokerID, Epoch: r.BrokerEpoch, Incarnation: r.IncarnationID,
		Endpoints: byName(r.EndPoints), Features: featuresByName(r.Features), Rack: r.Rack,
		Fenced: r.Fenced, InControlledShutdown: r.InControlledShutdown,
		LogDirs: sortedDirs(r.LogDirs), IsMigratingZkBroker: r.IsMigratingZkBroker,
	})
}

func (d *Delta) putBroker(b *Broker) {
	d.brokers[b.ID] = struct{}{}
	d.next.brokers = d.next.brokers.set(b.ID, b)
}

func (d *Delta) unregisterBroker(r *UnregisterBrokerRecord) {
	d.brokers[r.BrokerID] = struct{}{}
	d.next.brokers = d.next.brokers.delete(r.BrokerID)
}

// changeBroker applies a change to the registration of that very epoch.
func (d *Delta) changeBroker(id ident.NodeID, epoch int64, change func(*Broker) error) error {
	old, ok := d.next.brokers.get(id)
	if !ok {
		return misfit("change of broker %d, which is not registered", id)
	}
	if old.Epoch != epoch {
		return misfit("change of broker %d of epoch %d, which is registered with epoch %d", id, epoch, old.Epoch)
	}
	changed := *old
	if err := change(&changed); err != nil {
		return err
	}
	d.putBroker(&changed)
	return nil
}

func (r *BrokerRegistrationChangeRecord) apply(b *Broker) error {
	switch r.Fenced {
	case Fence:
		b.Fenced = true
	case Unfence:
		b.Fenced = false
	case NoFencingChange:
	default:
		return misfit("registration of broker %d: unknown fencing change %d", r.BrokerID, r.Fenced)
	}
	switch r.InControlledShutdown {
	case ControlledShutdown:
		b.InControlledShutdown = true
	case NoShutdownChange:
	default:
		return misfit("registration of broker %d: unknown controlled shutdown change %d", r.BrokerID, r.InControlledShutdown)
	}
	if len(r.LogDirs) > 0 {
		b.LogDirs = sortedDirs(r.LogDirs)
	}
	return nil
}

func (d *Delta) registerController(r *RegisterControllerRecord) {
	d.controllers[r.ControllerID] = struct{}{}
	d.next.controllers = d.next.controllers.set(r.ControllerID, &Controller{
		ID: r.ControllerID, Incarnation: r.IncarnationID, ZkMigrationReady: r.ZkMigrationReady,
		Endpoints: byName(r.EndPoints), Features: featuresByName(r.Features),
	})
}

// Kafka keeps listeners, features and directories as sets, and its snapshots write them in any order. Kept in
// order, two images that say the same are the same.

func byName(endpoints []Endpoint) []Endpoint {
	endpoints = slices.Clone(endpoints)
	slices.SortStableFunc(endpoints, func(a, b Endpoint) int { return strings.Compare(a.Name, b.Name) })
	return endpoints
}

func featuresByName(features []SupportedFeature) []SupportedFeature {
	features = slices.Clone(features)
	slices.SortStableFunc(features, func(a, b SupportedFeature) int { return strings.Compare(a.Name, b.Name) })
	return features
}

func sortedDirs(dirs []ident.UUID) []ident.UUID {
	if len(dirs) == 0 {
		return nil
	}
	dirs = slices.Clone(dirs)
	slices.SortFunc(dirs, ident.UUID.Compare)
	return dirs
}
