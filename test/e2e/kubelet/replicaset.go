package main

import (
	"context"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/controllers/specs"
	"github.com/highwater-io/highwater/test/e2e/cluster"
)

// fixture is a ReplicaSet with one Partition, and what is known of it while the steps go on.
type fixture struct {
	// name of the set of steps; namespace is where it all lives.
	name, namespace string
	// manifest is text for kubectl apply; or folder has files.
	manifest, folder      string
	replicaSet, partition string
	// thorough adds what takes minutes and says nothing new on a larger set.
	thorough bool

	// machine is the Kubernetes node that faults happen to. victim is a data node whose pod ran there first.
	machine string
	victim  int32
	// claims of all nodes as they were bound first.
	claims map[int32]corev1.PersistentVolumeClaim
	// permits that pods were seen with while the set came up, by pod.
	permits map[string]string
}

// single is the smallest that works: one voter, one data node.
func single() *fixture {
	return &fixture{
		name: "single", namespace: "highwater-e2e-single", replicaSet: "one", partition: "events", thorough: true,
		manifest: `
apiVersion: replication.highwater.dev/v1alpha1
kind: ReplicaSet
metadata: {name: one}
spec:
  replicas: 1
  quorum: {voters: 1, mode: Dedicated, storage: {size: 1Gi}}
  storage: {size: 1Gi}
  resources: {requests: {cpu: 50m, memory: 64Mi}}
---
apiVersion: replication.highwater.dev/v1alpha1
kind: Partition
metadata: {name: events}
spec: {replicaSetRef: {name: one}, replicationFactor: 1}
`,
	}
}

// sample is config/samples, as a reader of the README applies it.
func sample(root string) *fixture {
	return &fixture{
		name: "sample", namespace: "highwater-e2e-sample", replicaSet: "logs", partition: "orders",
		folder: filepath.Join(root, "config", "samples"),
	}
}

func (e *env) replicaSetSteps(f *fixture) []cluster.Step {
	step := func(limit time.Duration, name string, do func(context.Context, *fixture) error) cluster.Step {
		return cluster.Step{Name: f.name + ": " + name, Limit: limit, Do: func(ctx context.Context) error { return do(ctx, f) }}
	}
	steps := []cluster.Step{
		step(4*time.Minute, "applied in a restricted namespace, ReplicaSet and Partition come up", e.apply),
		step(time.Minute, "claims are bound, belong to nobody, and carry the volumes' identity", e.claimsBound),
		step(2*time.Minute, "the permit to format reached the pod and is withdrawn after registration", e.permitWithdrawn),
		step(2*time.Minute, "pods with the tools and the load", e.startClients),
		step(time.Minute, "DNS has each pod by name, and the bootstrap Service", e.namesResolve),
		step(time.Minute, "probes: a node answers what the kubelet asks it", e.probesAnswer),
		step(time.Minute, "volumes belong to the pods' fsGroup", e.volumesHaveGroup),
		step(time.Minute, "records are acknowledged and read back", e.flows),
		step(4*time.Minute, "a data pod deleted: it comes back with its data", e.podDeleted),
		step(5*time.Minute, "all pods of a node deleted: all come back with their data", e.nodePodsDeleted),
		step(6*time.Minute, "a node's processes killed and returned: all comes back with its data", e.nodeKilled),
	}
	if f.thorough {
		steps = append(steps, step(6*time.Minute, "a node that hangs turns unready and is restarted by its probe", e.hung))
	}
	steps = append(steps, step(4*time.Minute, "every acknowledged record is there once and in order", e.endLoad))
	if f.thorough {
		steps = append(steps, step(5*time.Minute, "wiped volumes end as VolumeLost and not as fresh nodes", e.volumesWiped))
	}
	return append(steps, step(3*time.Minute, "deleted: its pods go, its claims stay", e.deleted))
}

func (e *env) apply(ctx context.Context, f *fixture) error {
	if err := e.restrictedNamespace(ctx, f.namespace); err != nil {
		return err
	}
	if err := e.restrictedIsEnforced(ctx); err != nil {
		return err
	}
	watched, err := e.watchPermits(ctx, f)
	if err != nil {
		return err
	}
	args := []string{"-n", f.namespace, "apply", "--server-side"}
	if f.folder != "" {
		_, err = e.Kubectl(ctx, append(args, "-f", f.folder)...)
	} else {
		_, err = cluster.Run(ctx, f.manifest, "kubectl", append(args, "-f", "-")...)
	}
	if err != nil {
		return err
	}
	if err := e.healthy(ctx, f); err != nil {
		return err
	}
	f.permits = watched()
	return nil
}

// healthy waits until every condition says so and every pod is Ready.
func (e *env) healthy(ctx context.Context, f *fixture) error {
	return cluster.Eventually(ctx, f.replicaSet+" and "+f.partition+" are healthy", func(ctx context.Context) error {
		return e.Healthy(ctx, f.namespace, f.replicaSet, f.partition)
	})
}

func (e *env) objects(ctx context.Context, f *fixture) (*hwv1alpha1.ReplicaSet, *hwv1alpha1.Partition, error) {
	return e.Objects(ctx, f.namespace, f.replicaSet, f.partition)
}

// pods returns the set's pods by node id.
func (e *env) pods(ctx context.Context, f *fixture) (map[int32]*corev1.Pod, error) {
	rs, _, err := e.objects(ctx, f)
	if err != nil {
		return nil, err
	}
	pods := map[int32]*corev1.Pod{}
	for _, node := range specs.Nodes(rs) {
		if pods[node.ID], err = e.pod(ctx, f.namespace, specs.PodName(rs, node.ID)); err != nil {
			return nil, err
		}
	}
	return pods, nil
}
