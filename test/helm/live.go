package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/highwater-io/highwater/controllers/specs"
	"github.com/highwater-io/highwater/test/e2e/cluster"
)

// Where things are on the cluster.
const (
	release         = "highwater"
	systemNamespace = "highwater-system"
	operatorName    = "highwater-operator"
	userNamespace   = "highwater-helm"
	otherNamespace  = "highwater-helm-other"
	replicaSet      = "one"
)

func (e *env) liveSteps() []cluster.Step {
	step := func(limit time.Duration, name string, do func(context.Context) error) cluster.Step {
		return cluster.Step{Name: name, Limit: limit, Do: do}
	}
	return []cluster.Step{
		step(2*time.Minute, "a real API server accepts each way to set the chart, strictly", e.acceptedByServer),
		step(4*time.Minute, "helm install, under the restricted profile", e.install),
		step(4*time.Minute, "a ReplicaSet and a Partition come up", e.comeUp),
		step(4*time.Minute, "helm upgrade to another version and other values: CRDs follow, nodes are not touched", e.upgrade),
		step(3*time.Minute, "helm rollback", e.rollback),
		step(3*time.Minute, "helm uninstall: operator and rights are gone; CRDs, objects and nodes stay", e.uninstall),
		step(4*time.Minute, "under another name: refused until the CRDs are handed over, as the README says", e.handOver),
		step(4*time.Minute, "helm install again: what is there is taken over and works", e.reinstall),
		step(4*time.Minute, "for one namespace only: it goes on there, and nothing happens elsewhere", e.namespaced),
	}
}

// acceptedByServer has the API server check every object against its schemas, unknown fields included.
func (e *env) acceptedByServer(ctx context.Context) error {
	for _, namespace := range []string{systemNamespace, "team-a", "team-b"} {
		if err := e.Create(ctx, restricted(namespace)); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(valueSets)) {
		out, err := e.runHelm(ctx, append([]string{"template", release, e.chart, "--namespace", systemNamespace}, valueSets[name]...)...)
		if err != nil {
			return err
		}
		if _, err := cluster.Run(ctx, out, "kubectl", "apply", "--dry-run=server", "--validate=strict", "-f", "-"); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func restricted(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
}

// with are the arguments that all releases of the run have.
func (e *env) with(args ...string) []string {
	args = append(args, "--namespace", systemNamespace, "--wait", "--timeout", "2m")
	if e.image != "" {
		colon := strings.LastIndexByte(e.image, ':')
		args = append(args, "--set", "image.repository="+e.image[:colon]+",image.tag="+e.image[colon+1:])
	}
	return args
}

func (e *env) install(ctx context.Context) error {
	out, err := e.runHelm(ctx, e.with("install", release, e.chart)...)
	if err != nil {
		return err
	}
	if !strings.Contains(out, "kind: ReplicaSet") || strings.Contains(out, "WARNING") {
		return fmt.Errorf("the notes don't say how to go on, or warn of nothing: %s", out)
	}
	return nil
}

func (e *env) comeUp(ctx context.Context) error {
	for _, namespace := range []string{userNamespace, otherNamespace} {
		if err := e.Create(ctx, restricted(namespace)); err != nil {
			return err
		}
	}
	if err := e.apply(ctx, userNamespace, replicaSet, "first"); err != nil {
		return err
	}
	if err := e.healthy(ctx, "first"); err != nil {
		return err
	}
	var err error
	e.pods, err = e.podUIDs(ctx)
	return err
}

func (e *env) apply(ctx context.Context, namespace, set, partition string) error {
	return e.Apply(ctx, fmt.Sprintf(`
apiVersion: replication.highwater.dev/v1alpha1
kind: ReplicaSet
metadata: {name: %s, namespace: %s}
spec:
  replicas: 1
  quorum: {voters: 1}
  storage: {size: 1Gi}
---
apiVersion: replication.highwater.dev/v1alpha1
kind: Partition
metadata: {name: %s, namespace: %s}
spec: {replicaSetRef: {name: %s}, replicationFactor: 1}
`, set, namespace, partition, namespace, set))
}

func (e *env) healthy(ctx context.Context, partition string) error {
	return cluster.Eventually(ctx, "ReplicaSet and Partition "+partition+" are healthy", func(ctx context.Context) error {
		return e.Healthy(ctx, userNamespace, replicaSet, partition)
	})
}

// podUIDs of the ReplicaSet's nodes, by name.
func (e *env) podUIDs(ctx context.Context) (map[string]string, error) {
	var pods corev1.PodList
	if err := e.List(ctx, &pods, client.InNamespace(userNamespace), client.MatchingLabels{specs.LabelReplicaSet: replicaSet}); err != nil {
		return nil, err
	}
	uids := map[string]string{}
	for _, pod := range pods.Items {
		uids[pod.Name] = string(pod.UID)
		if restarts := pod.Status.ContainerStatuses[0].RestartCount; restarts > 0 {
			return nil, fmt.Errorf("pod %s was restarted %d times", pod.Name, restarts)
		}
	}
	return uids, nil
}

func (e *env) untouched(ctx context.Context) error {
	now, err := e.podUIDs(ctx)
	if err != nil {
		return err
	}
	if !maps.Equal(now, e.pods) {
		return fmt.Errorf("pods are %v, were %v", now, e.pods)
	}
	return nil
}

// upgrade installs a chart of a higher version whose CRDs differ by an annotation, with another log level.
func (e *env) upgrade(ctx context.Context) error {
	next, err := e.nextVersion()
	if err != nil {
		return err
	}
	if _, err := e.runHelm(ctx, e.with("upgrade", release, next, "--set", "logging.level=debug,resources.requests.cpu=60m")...); err != nil {
		return err
	}
	crd, err := e.Kubectl(ctx, "get", "crd/partitions.replication.highwater.dev", "-o", "jsonpath={.metadata.annotations.example\\.com/next}")
	if err != nil {
		return err
	}
	if crd != "yes" {
		return fmt.Errorf("the CRD was not upgraded: its annotation is %q", crd)
	}
	args, err := e.operatorArgs(ctx)
	if err != nil {
		return err
	}
	if !slices.Contains(args, "--log-level=debug") {
		return fmt.Errorf("the operator's flags are %v", args)
	}
	if err := e.apply(ctx, userNamespace, replicaSet, "second"); err != nil {
		return err
	}
	if err := e.healthy(ctx, "second"); err != nil {
		return err
	}
	return e.untouched(ctx)
}

// nextVersion copies the chart and makes it 0.1.1.
func (e *env) nextVersion() (string, error) {
	next := filepath.Join(e.scratch, "next")
	if err := copyChart(e.chart, next, map[string][2]string{
		"Chart.yaml": {"\nversion: 0.1.0\n", "\nversion: 0.1.1\n"},
		"files/crds/replication.highwater.dev_partitions.yaml": {"\n  annotations:\n", "\n  annotations:\n    example.com/next: \"yes\"\n"},
	}); err != nil {
		return "", err
	}
	return next, nil
}

func (e *env) operatorArgs(ctx context.Context) ([]string, error) {
	var deployment appsv1.Deployment
	if err := e.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: operatorName}, &deployment); err != nil {
		return nil, err
	}
	return deployment.Spec.Template.Spec.Containers[0].Args, nil
}

func (e *env) rollback(ctx context.Context) error {
	if _, err := e.runHelm(ctx, "rollback", release, "1", "--namespace", systemNamespace, "--wait", "--timeout", "2m"); err != nil {
		return err
	}
	args, err := e.operatorArgs(ctx)
	if err != nil {
		return err
	}
	if slices.Contains(args, "--log-level=debug") {
		return fmt.Errorf("the operator's flags are %v", args)
	}
	if err := e.healthy(ctx, "second"); err != nil {
		return err
	}
	return e.untouched(ctx)
}

func (e *env) uninstall(ctx context.Context) error {
	if _, err := e.runHelm(ctx, "uninstall", release, "--namespace", systemNamespace, "--wait", "--timeout", "2m"); err != nil {
		return err
	}
	for _, o := range []client.Object{
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: operatorName}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: operatorName}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: operatorName}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: operatorName}},
	} {
		if err := e.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			return errors.Join(err, fmt.Errorf("%T %s is left", o, o.GetName()))
		}
	}
	// Not just a moment later: nothing may be on its way to be collected.
	return cluster.Holds(ctx, 15*time.Second, "objects and nodes stay", func(ctx context.Context) error {
		for _, partition := range []string{"first", "second"} {
			rs, p, err := e.Objects(ctx, userNamespace, replicaSet, partition)
			if err != nil {
				return err
			}
			if rs.DeletionTimestamp != nil || p.DeletionTimestamp != nil {
				return errors.New("they are under deletion")
			}
		}
		return e.untouched(ctx)
	})
}

// handOver installs a release of another name in another namespace, and hands the CRDs back after it.
func (e *env) handOver(ctx context.Context) error {
	const other, namespace = "another", "team-a"
	install := []string{"install", other, e.chart, "--namespace", namespace, "--set", "replicaCount=0", "--wait", "--timeout", "1m"}
	if _, err := e.runHelm(ctx, install...); err == nil || !strings.Contains(err.Error(), "meta.helm.sh/release-name") {
		return errors.Join(err, errors.New("it was not refused for whose the CRDs are"))
	}
	give := func(name, namespace string) error {
		_, err := e.Kubectl(ctx, "annotate", "--overwrite", "crd/hwreplicasets.replication.highwater.dev", "crd/partitions.replication.highwater.dev",
			"meta.helm.sh/release-name="+name, "meta.helm.sh/release-namespace="+namespace)
		return err
	}
	if err := give(other, namespace); err != nil {
		return err
	}
	if _, err := e.runHelm(ctx, install...); err != nil {
		return err
	}
	if _, err := e.runHelm(ctx, "uninstall", other, "--namespace", namespace, "--wait", "--timeout", "1m"); err != nil {
		return err
	}
	return give(release, systemNamespace)
}

func (e *env) reinstall(ctx context.Context) error {
	if err := e.install(ctx); err != nil {
		return err
	}
	if err := e.apply(ctx, userNamespace, replicaSet, "third"); err != nil {
		return err
	}
	for _, partition := range []string{"first", "second", "third"} {
		if err := e.healthy(ctx, partition); err != nil {
			return err
		}
	}
	return e.untouched(ctx)
}

func (e *env) namespaced(ctx context.Context) error {
	if _, err := e.runHelm(ctx, e.with("upgrade", release, e.chart, "--set", "watchNamespaces={"+userNamespace+"}")...); err != nil {
		return err
	}
	err := e.Get(ctx, client.ObjectKey{Name: operatorName}, &rbacv1.ClusterRole{})
	if !apierrors.IsNotFound(err) {
		return errors.Join(err, errors.New("the ClusterRole is left"))
	}
	if err := e.apply(ctx, otherNamespace, replicaSet, "elsewhere"); err != nil {
		return err
	}
	if err := e.apply(ctx, userNamespace, replicaSet, "fourth"); err != nil {
		return err
	}
	if err := e.healthy(ctx, "fourth"); err != nil {
		return err
	}
	if err := e.untouched(ctx); err != nil {
		return err
	}
	return cluster.Holds(ctx, 10*time.Second, "nothing happens in the other namespace", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := e.List(ctx, &pods, client.InNamespace(otherNamespace)); err != nil {
			return err
		}
		rs, _, err := e.Objects(ctx, otherNamespace, replicaSet, "elsewhere")
		if err != nil {
			return err
		}
		if len(pods.Items) > 0 || len(rs.Status.Conditions) > 0 {
			return fmt.Errorf("%d pods, conditions %v", len(pods.Items), rs.Status.Conditions)
		}
		return nil
	})
}
