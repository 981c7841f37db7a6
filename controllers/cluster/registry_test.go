package cluster_test

import (
	"context"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"

	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/controllers/clustertest"
	"github.com/highwater-io/highwater/pkg/ident"
)

var logs = types.NamespacedName{Namespace: "n", Name: "logs"}

func TestRegistryKeepsAConnectionWhileItsTargetIsTheSame(t *testing.T) {
	fake := clustertest.New()
	registry := cluster.NewRegistry(fake.Open)
	target := cluster.Target{ReplicaSet: logs, Voters: map[ident.NodeID]string{1000: "a:1"}}
	registry.Ensure(target)
	first, _ := registry.Get(logs)
	target.Voters = map[ident.NodeID]string{1000: "a:1"}
	registry.Ensure(target)
	if again, _ := registry.Get(logs); again != first {
		t.Error("the same target was connected to twice")
	}
	// Another address is no other cluster: what is known of it stays.
	target.Voters = map[ident.NodeID]string{1000: "b:1"}
	for range 2 {
		registry.Ensure(target)
	}
	if again, _ := registry.Get(logs); again != first || len(fake.Targets()) != 2 || fake.Targets()[1].Voters[1000] != "b:1" {
		t.Errorf("targets %+v", fake.Targets())
	}
	target.UID = "another"
	registry.Ensure(target)
	if again, _ := registry.Get(logs); again == first || fake.Connections() != 1 {
		t.Errorf("another cluster: the old connection stays; %d are open", fake.Connections())
	}
	registry.Close(logs)
	if _, found := registry.Get(logs); found || fake.Connections() != 0 {
		t.Error("a closed connection is still there")
	}
}

func TestSlowSubscriberGetsChangesMerged(t *testing.T) {
	defer goleak.VerifyNone(t)
	fake := clustertest.New()
	registry := cluster.NewRegistry(fake.Open)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes := registry.Subscribe(ctx)
	registry.Ensure(cluster.Target{ReplicaSet: logs})
	fake.Follow(1, 1)
	if change := (<-changes).Object; !change.Everything || change.ReplicaSet != logs {
		t.Errorf("got %+v", change)
	}
	// Nobody reads while these happen, so nothing may be lost, and they are few messages.
	for _, topic := range []string{"c", "a", "b", "a"} {
		fake.MakeTopic(cluster.NewTopic{Name: topic + "x", Partitions: 1, ReplicationFactor: 1})
		fake.RemoveTopic(fake.TopicID(topic + "x"))
	}
	seen := map[string]bool{}
	for messages := 0; len(seen) < 3; messages++ {
		change := (<-changes).Object
		if !slices.IsSorted(change.Topics) || messages > 3 {
			t.Fatalf("message %d: %+v", messages, change)
		}
		for _, topic := range change.Topics {
			seen[topic] = true
		}
	}
}
