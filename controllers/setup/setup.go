// Package setup puts the controllers into a manager, for the operator and for tests.
package setup

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/controllers/indexes"
	"github.com/highwater-io/highwater/controllers/partition"
	"github.com/highwater-io/highwater/controllers/replicaset"
	"github.com/highwater-io/highwater/controllers/report"
	"github.com/highwater-io/highwater/controllers/specs"
)

// managedLabels are on every object that the operator makes.
func managedLabels() map[string]string {
	return map[string]string{"app.kubernetes.io/managed-by": specs.ManagedBy}
}

// Controllers adds both controllers and the connections to the clusters that they share. open makes a connection;
// nodeImage is what nodes run when a ReplicaSet names no image. ctx ends with the manager.
func Controllers(ctx context.Context, mgr ctrl.Manager, open cluster.Opener, nodeImage string) error {
	if err := indexes.Add(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	clusters := cluster.NewRegistry(open)
	if err := mgr.Add(clusters); err != nil {
		return fmt.Errorf("add the cluster connections: %w", err)
	}
	events := report.NewEvents(mgr.GetClient())
	sets := &replicaset.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clusters: clusters, DefaultImage: nodeImage,
		Events: events, Statuses: report.NewStatuses(hwv1alpha1.KindReplicaSet, mgr.GetClient()),
	}
	if err := sets.SetUp(mgr, clusters.Subscribe(ctx)); err != nil {
		return err
	}
	partitions := &partition.Reconciler{
		Client: mgr.GetClient(), Clusters: clusters,
		Events: events, Statuses: report.NewStatuses(hwv1alpha1.KindPartition, mgr.GetClient()),
	}
	return partitions.SetUp(mgr, clusters.Subscribe(ctx))
}
