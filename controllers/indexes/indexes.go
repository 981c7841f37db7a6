// Package indexes finds cached objects by fields that no label has.
package indexes

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
)

const replicaSetField = "spec.replicaSetRef.name"

// Add registers the indexes. It is called once, before the cache starts.
func Add(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &hwv1alpha1.Partition{}, replicaSetField, func(object client.Object) []string {
		partition, ok := object.(*hwv1alpha1.Partition)
		if !ok {
			return nil
		}
		return []string{partition.Spec.ReplicaSetRef.Name}
	})
	if err != nil {
		return fmt.Errorf("index Partitions by ReplicaSet: %w", err)
	}
	return nil
}

// PartitionsOf lists the Partitions that name a ReplicaSet. They are the cache's own: change none of them.
func PartitionsOf(ctx context.Context, reader client.Reader, replicaSet types.NamespacedName) ([]hwv1alpha1.Partition, error) {
	var list hwv1alpha1.PartitionList
	err := reader.List(ctx, &list, client.InNamespace(replicaSet.Namespace),
		client.MatchingFields{replicaSetField: replicaSet.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list Partitions of ReplicaSet %s: %w", replicaSet, err)
	}
	return list.Items, nil
}
