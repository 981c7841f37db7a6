package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/highwater-io/highwater/controllers/specs"
	"github.com/highwater-io/highwater/test/e2e/cluster"
)

// recovered is asked after each fault: new pods in place of the old, on the same volumes, all conditions healthy, names
// that lead to the new addresses, and the load goes on with nothing lost.
func (e *env) recovered(ctx context.Context, f *fixture, old []corev1.Pod) error {
	for _, before := range old {
		err := cluster.Eventually(ctx, "another pod is in place of "+before.Name, func(ctx context.Context) error {
			now, err := e.pod(ctx, before.Namespace, before.Name)
			if err == nil && now.UID == before.UID {
				err = errors.New("it is the same pod")
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := e.healthy(ctx, f); err != nil {
		return err
	}
	if err := e.claimsKept(ctx, f); err != nil {
		return err
	}
	if err := e.namesResolve(ctx, f); err != nil {
		return err
	}
	return e.flows(ctx, f)
}

func (e *env) podDeleted(ctx context.Context, f *fixture) error {
	pods, err := e.pods(ctx, f)
	if err != nil {
		return err
	}
	pod := pods[f.victim]
	cluster.Say("deleting pod %s", pod.Name)
	if err := e.deletePod(ctx, pod); err != nil {
		return err
	}
	return e.recovered(ctx, f, []corev1.Pod{*pod})
}

// nodePodsDeleted deletes everything on one machine at once, the operator when it is there, DNS too.
func (e *env) nodePodsDeleted(ctx context.Context, f *fixture) error {
	pods, err := e.podsOn(ctx, f.machine)
	if err != nil {
		return err
	}
	var ours []corev1.Pod
	for i := range pods {
		pod := &pods[i]
		if pod.Namespace != f.namespace && pod.Namespace != systemNamespace && e.machine == "" {
			continue // other people's, on a cluster that is not ours
		}
		cluster.Say("deleting pod %s/%s", pod.Namespace, pod.Name)
		if err := e.deletePod(ctx, pod); err != nil {
			return err
		}
		if pod.Labels[specs.LabelReplicaSet] == f.replicaSet {
			ours = append(ours, *pod)
		}
	}
	if len(ours) == 0 {
		return fmt.Errorf("no pod of %s was on %s", f.replicaSet, f.machine)
	}
	return e.recovered(ctx, f, ours)
}

// nodeKilled ends every process of a machine with SIGKILL, leaves it so until its pods were given up, and starts it
// again.
func (e *env) nodeKilled(ctx context.Context, f *fixture) error {
	pods, err := e.podsOn(ctx, f.machine)
	if err != nil {
		return err
	}
	var ours []corev1.Pod
	for _, pod := range pods {
		if pod.Labels[specs.LabelReplicaSet] == f.replicaSet && pod.Namespace == f.namespace {
			ours = append(ours, pod)
		}
	}
	if len(ours) == 0 {
		return fmt.Errorf("no pod of %s was on %s", f.replicaSet, f.machine)
	}
	if err := e.onMachine(ctx, "node.sh", "kill", f.machine); err != nil {
		return err
	}
	cluster.Say("killed %s with %d pods of %s", f.machine, len(ours), f.replicaSet)
	err = cluster.Eventually(ctx, "Kubernetes gives the pods of "+f.machine+" up", func(ctx context.Context) error {
		for _, pod := range ours {
			now, err := e.pod(ctx, pod.Namespace, pod.Name)
			if err != nil {
				return err
			}
			if now.UID != pod.UID {
				return fmt.Errorf("pod %s was replaced while its machine, which may still run it, is silent", pod.Name)
			}
			if now.DeletionTimestamp == nil {
				return fmt.Errorf("pod %s is not under deletion", pod.Name)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	cluster.Say("%s comes back", f.machine)
	if err := e.onMachine(ctx, "node.sh", "start", f.machine); err != nil {
		return err
	}
	err = cluster.Eventually(ctx, "machine "+f.machine+" is Ready", func(ctx context.Context) error {
		var node corev1.Node
		if err := e.Get(ctx, client.ObjectKey{Name: f.machine}, &node); err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return errors.New("it is not")
	})
	if err != nil {
		return err
	}
	return e.recovered(ctx, f, ours)
}

// hung stops a node's process without ending it. The pod turns unready, and after a minute of silence the kubelet
// restarts the container, in the same pod.
func (e *env) hung(ctx context.Context, f *fixture) error {
	pods, err := e.pods(ctx, f)
	if err != nil {
		return err
	}
	pod := pods[f.victim]
	container := pod.Status.ContainerStatuses[0]
	_, id, _ := strings.Cut(container.ContainerID, "://")
	if err := e.onMachine(ctx, "signal.sh", f.machine, id, "STOP"); err != nil {
		return err
	}
	stopped := time.Now()
	err = cluster.Eventually(ctx, pod.Name+" turns unready", func(ctx context.Context) error {
		now, err := e.pod(ctx, f.namespace, pod.Name)
		if err == nil && cluster.IsReady(now) {
			err = errors.New("it is Ready")
		}
		return err
	})
	if err != nil {
		return err
	}
	cluster.Say("unready after %.1f s", time.Since(stopped).Seconds())
	err = cluster.Eventually(ctx, pod.Name+" is restarted", func(ctx context.Context) error {
		now, err := e.pod(ctx, f.namespace, pod.Name)
		if err != nil {
			return err
		}
		if now.UID != pod.UID {
			return errors.New("the pod was replaced")
		}
		if now.Status.ContainerStatuses[0].RestartCount <= container.RestartCount {
			return fmt.Errorf("%d restarts", now.Status.ContainerStatuses[0].RestartCount)
		}
		return nil
	})
	if err != nil {
		return err
	}
	cluster.Say("restarted after %.1f s", time.Since(stopped).Seconds())
	return e.recovered(ctx, f, nil)
}

// deleted removes the ReplicaSet and the Partition: pods go, claims stay.
func (e *env) deleted(ctx context.Context, f *fixture) error {
	pods, err := e.pods(ctx, f)
	if err != nil {
		return err
	}
	if _, err := e.Kubectl(ctx, "-n", f.namespace, "delete", "hwp/"+f.partition, "hwrs/"+f.replicaSet, "--timeout=60s"); err != nil {
		return err
	}
	for _, pod := range pods {
		if err := e.gone(ctx, pod); err != nil {
			return err
		}
	}
	return e.claimsKept(ctx, f)
}
