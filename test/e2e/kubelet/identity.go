package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/highwater-io/highwater/controllers/specs"
	"github.com/highwater-io/highwater/test/e2e/cluster"
)

// user is what nodes run as and whose group owns their volumes.
const user = "65532"

// claimsBound looks at each node's claim and remembers it: from here on it must stay the same claim on the same volume.
func (e *env) claimsBound(ctx context.Context, f *fixture) error {
	rs, _, err := e.objects(ctx, f)
	if err != nil {
		return err
	}
	f.claims = map[int32]corev1.PersistentVolumeClaim{}
	for _, node := range specs.Nodes(rs) {
		var claim corev1.PersistentVolumeClaim
		if err := e.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: specs.ClaimName(rs, node.ID)}, &claim); err != nil {
			return err
		}
		identity, ok := specs.ClaimIdentity(rs, &claim)
		switch {
		case claim.Status.Phase != corev1.ClaimBound:
			return fmt.Errorf("claim %s is %s", claim.Name, claim.Status.Phase)
		case len(claim.OwnerReferences) > 0:
			return fmt.Errorf("claim %s has an owner and would go with it, against retention Retain", claim.Name)
		case !ok || identity.NodeID != node.ID || identity.ClusterID.String() != rs.Status.ClusterID:
			return fmt.Errorf("claim %s says %v, the ReplicaSet cluster %s", claim.Name, identity, rs.Status.ClusterID)
		}
		f.claims[node.ID] = claim
	}
	return nil
}

// claimsKept fails when a claim or its volume is not the one of the beginning.
func (e *env) claimsKept(ctx context.Context, f *fixture) error {
	for _, first := range f.claims {
		var now corev1.PersistentVolumeClaim
		if err := e.Get(ctx, client.ObjectKeyFromObject(&first), &now); err != nil {
			return err
		}
		if now.UID != first.UID || now.Spec.VolumeName != first.Spec.VolumeName ||
			now.Annotations[specs.AnnotationDirectoryID] != first.Annotations[specs.AnnotationDirectoryID] {
			return fmt.Errorf("claim %s is not the claim that it was: uid %s, volume %s; then uid %s, volume %s",
				first.Name, now.UID, now.Spec.VolumeName, first.UID, first.Spec.VolumeName)
		}
	}
	return nil
}

// watchPermits follows the namespace's pods from now on. What it returns ends that, and says which permit each pod was
// seen with.
func (e *env) watchPermits(ctx context.Context, f *fixture) (func() map[string]string, error) {
	watcher, err := e.Watch(ctx, &corev1.PodList{}, client.InNamespace(f.namespace))
	if err != nil {
		return nil, err
	}
	seen, ended := map[string]string{}, make(chan struct{})
	go func() {
		defer close(ended)
		for event := range watcher.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && pod.Annotations[specs.AnnotationFormatPermit] != "" {
				seen[pod.Name] = pod.Annotations[specs.AnnotationFormatPermit]
			}
		}
	}()
	return func() map[string]string {
		watcher.Stop()
		<-ended
		return seen
	}, nil
}

// permitWithdrawn proves the two halves: each pod had the permit for its own volume when it came up, and now no pod has
// one and every claim is marked. (That an empty volume without a permit stops a node is volumesWiped's.)
func (e *env) permitWithdrawn(ctx context.Context, f *fixture) error {
	pods, err := e.pods(ctx, f)
	if err != nil {
		return err
	}
	for id, pod := range pods {
		claim := f.claims[id]
		if directory := claim.Annotations[specs.AnnotationDirectoryID]; f.permits[pod.Name] != directory {
			return fmt.Errorf("pod %s came up with permit %q, its volume is %s", pod.Name, f.permits[pod.Name], directory)
		}
	}
	return cluster.Eventually(ctx, "no pod has a format permit any more", func(ctx context.Context) error {
		pods, err := e.pods(ctx, f)
		if err != nil {
			return err
		}
		for id, pod := range pods {
			if permit, has := pod.Annotations[specs.AnnotationFormatPermit]; has {
				return fmt.Errorf("pod %s has permit %s", pod.Name, permit)
			}
			claim := f.claims[id]
			if err := e.Get(ctx, client.ObjectKeyFromObject(&claim), &claim); err != nil {
				return err
			}
			if claim.Annotations[specs.AnnotationFormatted] != "true" {
				return fmt.Errorf("claim %s is not marked as formatted", claim.Name)
			}
		}
		return nil
	})
}

// namesResolve asks the cluster's DNS from inside for every pod and for the bootstrap Service.
func (e *env) namesResolve(ctx context.Context, f *fixture) error {
	rs, _, err := e.objects(ctx, f)
	if err != nil {
		return err
	}
	var service corev1.Service
	if err := e.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: specs.BootstrapServiceName(rs)}, &service); err != nil {
		return err
	}
	want := map[string]string{service.Name + "." + f.namespace + ".svc": service.Spec.ClusterIP}
	pods, err := e.pods(ctx, f)
	if err != nil {
		return err
	}
	for id, pod := range pods {
		want[specs.Host(rs, id)] = pod.Status.PodIP
	}
	if len(rs.Status.Listeners) == 0 || rs.Status.Listeners[0].Bootstrap != specs.BootstrapAddress(rs) {
		return fmt.Errorf("status.listeners is %v, want %s", rs.Status.Listeners, specs.BootstrapAddress(rs))
	}
	for name, address := range want {
		// A name that was asked for too early is remembered as unknown for a few seconds.
		err := cluster.Eventually(ctx, name+" resolves", func(ctx context.Context) error {
			out, err := e.exec(ctx, f.namespace, toolsPod, "resolve", name)
			if err == nil && strings.TrimSpace(out) != address {
				err = fmt.Errorf("%s is %q, want %s", name, strings.TrimSpace(out), address)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// probesAnswer asks what the kubelet asks, and checks that no container was restarted by it on the way up.
func (e *env) probesAnswer(ctx context.Context, f *fixture) error {
	pods, err := e.pods(ctx, f)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		for _, path := range []string{"/livez", "/readyz"} {
			out, err := e.exec(ctx, f.namespace, toolsPod, "get", fmt.Sprintf("http://%s:%d%s", pod.Status.PodIP, specs.PortHTTP, path))
			if err != nil {
				return err
			}
			if code, _, _ := strings.Cut(out, "\n"); code != "200" {
				return fmt.Errorf("%s of %s: %s", path, pod.Name, out)
			}
		}
		c := pod.Spec.Containers[0]
		if c.StartupProbe == nil || c.LivenessProbe == nil || c.ReadinessProbe == nil {
			return fmt.Errorf("pod %s has not all three probes", pod.Name)
		}
		if restarts := pod.Status.ContainerStatuses[0].RestartCount; restarts > 0 {
			return fmt.Errorf("pod %s was restarted %d times on its way up: %v", pod.Name, restarts,
				pod.Status.ContainerStatuses[0].LastTerminationState.Terminated)
		}
	}
	return nil
}

// volumesHaveGroup looks at each volume from a pod without fsGroup, which sees what the node's pod has made of it.
func (e *env) volumesHaveGroup(ctx context.Context, f *fixture) error {
	pods, err := e.pods(ctx, f)
	if err != nil {
		return err
	}
	for id, pod := range pods {
		claim := f.claims[id]
		out, err := e.runOnce(ctx, f, job{name: fmt.Sprintf("stat-%d", id), args: []string{"stat", "/volume"}, claim: claim.Name, machine: pod.Spec.NodeName})
		if err != nil {
			return err
		}
		fields := strings.Fields(out)
		if len(fields) != 4 || fields[1] != user || fields[3] != "true" {
			return fmt.Errorf("volume of %s: uid gid mode setgid are %q, want group %s and setgid", pod.Name, strings.TrimSpace(out), user)
		}
	}
	return nil
}

// volumesWiped empties the volumes while their nodes are away. Nothing but VolumeLost may come of it: a voter that came
// back empty could vote twice, a data node would call nothing everything.
func (e *env) volumesWiped(ctx context.Context, f *fixture) error {
	if err := e.scaleOperator(ctx, 0); err != nil {
		return err
	}
	pods, err := e.pods(ctx, f)
	if err != nil {
		return err
	}
	for id, pod := range pods {
		if err := e.deletePod(ctx, pod); err != nil {
			return err
		}
		if err := e.gone(ctx, pod); err != nil {
			return err
		}
		claim := f.claims[id]
		out, err := e.runOnce(ctx, f, job{name: fmt.Sprintf("wipe-%d", id), args: []string{"wipe", "/volume"}, claim: claim.Name, group: true})
		if err != nil {
			return err
		}
		if strings.TrimSpace(out) == "removed 0 entries" {
			return fmt.Errorf("volume of %s was empty before it was wiped", pod.Name)
		}
	}
	if err := e.scaleOperator(ctx, 1); err != nil {
		return err
	}
	for id, old := range pods {
		if err := e.endsAsVolumeLost(ctx, f, old); err != nil {
			return err
		}
		claim := f.claims[id]
		out, err := e.runOnce(ctx, f, job{name: fmt.Sprintf("list-%d", id), args: []string{"list", "/volume"}, claim: claim.Name, group: true, machine: old.Spec.NodeName})
		if err != nil {
			return err
		}
		if slices.ContainsFunc(strings.Fields(out), func(path string) bool { return strings.HasSuffix(path, "/meta.properties") }) {
			return fmt.Errorf("the wiped volume of %s was formatted again: %s", old.Name, out)
		}
	}
	return cluster.Eventually(ctx, "the ReplicaSet says VolumeLost", func(ctx context.Context) error {
		rs, _, err := e.objects(ctx, f)
		if err != nil {
			return err
		}
		for _, condition := range rs.Status.Conditions {
			if condition.Type == "Ready" && condition.Status == "False" && condition.Reason == "VolumeLost" {
				cluster.Say("Ready=False, VolumeLost: %s", condition.Message)
				return nil
			}
		}
		return fmt.Errorf("conditions are %v", rs.Status.Conditions)
	})
}

// endsAsVolumeLost waits for the pod in the old one's place to end as it must.
func (e *env) endsAsVolumeLost(ctx context.Context, f *fixture, old *corev1.Pod) error {
	lost := func(ctx context.Context) error {
		pod, err := e.pod(ctx, f.namespace, old.Name)
		if err != nil {
			return err
		}
		if pod.UID == old.UID || len(pod.Status.ContainerStatuses) == 0 {
			return errors.New("the new pod has no container yet")
		}
		status := pod.Status.ContainerStatuses[0]
		for _, ended := range []*corev1.ContainerStateTerminated{status.State.Terminated, status.LastTerminationState.Terminated} {
			if ended == nil {
				continue
			}
			if ended.ExitCode != specs.ExitBadVolume || !strings.HasPrefix(ended.Message, "VolumeLost") {
				return fmt.Errorf("container ended with code %d and %q, want %d and VolumeLost", ended.ExitCode, ended.Message, specs.ExitBadVolume)
			}
			if cluster.IsReady(pod) {
				return errors.New("the pod is Ready")
			}
			return nil
		}
		return fmt.Errorf("the container has not ended: %+v", status.State)
	}
	if err := cluster.Eventually(ctx, old.Name+" ends as VolumeLost", lost); err != nil {
		return err
	}
	// A later start must not be another one's luck.
	return cluster.Holds(ctx, 10*time.Second, old.Name+" stays VolumeLost", lost)
}
