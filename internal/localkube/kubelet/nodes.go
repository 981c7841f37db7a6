package kubelet

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const (
	leaseNamespace = corev1.NamespaceNodeLease
	leaseSeconds   = 40
	leaseRenewal   = 10 * time.Second
	// zones is over how many topology.kubernetes.io/zone values Nodes are spread.
	zones = 3
)

// NodeName is the name of the i-th Node.
func NodeName(i int) string { return fmt.Sprintf("node-%d", i) }

// atLeast returns how many Nodes there are to be: one that an earlier run made may have pods.
func atLeast(ctx context.Context, k client.Client, n int) (int, error) {
	var nodes corev1.NodeList
	if err := k.List(ctx, &nodes); err != nil {
		return 0, fmt.Errorf("list Nodes: %w", err)
	}
	for i := range nodes.Items {
		var number int
		if _, err := fmt.Sscanf(nodes.Items[i].Name, "node-%d", &number); err == nil {
			n = max(n, number+1)
		}
	}
	return n, nil
}

func nodeCapacity() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory:           resource.MustParse("16Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
		corev1.ResourcePods:             resource.MustParse("110"),
	}
}

// register makes all Nodes exist and Ready.
func (k *Kubelet) register(ctx context.Context) error {
	for i := range k.o.Nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: NodeName(i), Labels: map[string]string{
			corev1.LabelHostname: NodeName(i), corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
			corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%zones), corev1.LabelTopologyRegion: "local",
		}}}
		err := k.o.Uncached.Create(ctx, node)
		if apierrors.IsAlreadyExists(err) {
			err = k.o.Uncached.Get(ctx, client.ObjectKeyFromObject(node), node)
		}
		if err != nil {
			return fmt.Errorf("register Node %s: %w", node.Name, err)
		}
		// Admission gives a new Node this taint, and a node lifecycle controller takes it away.
		spec := node.DeepCopy()
		spec.Spec.Taints = slices.DeleteFunc(spec.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady })
		if len(spec.Spec.Taints) != len(node.Spec.Taints) {
			if err := k.o.Uncached.Update(ctx, spec); err != nil {
				return fmt.Errorf("register Node %s: %w", node.Name, err)
			}
			node = spec
		}
		k.nodeStatus(&node.Status)
		if err := k.o.Uncached.Status().Update(ctx, node); err != nil {
			return fmt.Errorf("register Node %s: %w", node.Name, err)
		}
		// The API server makes the leases' namespace a moment after it is ready.
		err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
			err := k.renewLease(ctx, node.Name)
			return err == nil, client.IgnoreNotFound(err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (k *Kubelet) nodeStatus(s *corev1.NodeStatus) {
	now := metav1.Now()
	_, port, _ := net.SplitHostPort(k.o.Network.listener.Addr().String())
	number, _ := strconv.Atoi(port)
	s.Capacity, s.Allocatable = nodeCapacity(), nodeCapacity()
	s.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: k.o.Network.Host()}}
	s.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	s.NodeInfo.OperatingSystem, s.NodeInfo.Architecture = runtime.GOOS, runtime.GOARCH
	s.NodeInfo.KubeletVersion = "highwater-local"
	s.NodeInfo.ContainerRuntimeVersion = "process://1"
	s.Conditions = nil
	for _, c := range []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "the local cluster runs pods as processes"},
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "NotPlayed"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "NotPlayed"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "NotPlayed"},
	} {
		c.LastHeartbeatTime, c.LastTransitionTime = now, now
		s.Conditions = append(s.Conditions, c)
	}
}

func (k *Kubelet) renewLease(ctx context.Context, node string) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: leaseNamespace, Name: node}}
	_, err := controllerutil.CreateOrUpdate(ctx, k.o.Uncached, lease, func() error {
		now := metav1.NewMicroTime(time.Now())
		lease.Spec.HolderIdentity = ptr.To(node)
		lease.Spec.LeaseDurationSeconds = ptr.To(int32(leaseSeconds))
		lease.Spec.RenewTime = &now
		return nil
	})
	if err != nil {
		return fmt.Errorf("renew the lease of Node %s: %w", node, err)
	}
	return nil
}

// keepLeases renews the Nodes' leases until the end.
func (k *Kubelet) keepLeases() {
	ticker := time.NewTicker(leaseRenewal)
	defer ticker.Stop()
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-ticker.C:
		}
		for i := range k.o.Nodes {
			if err := k.renewLease(k.ctx, NodeName(i)); err != nil && k.ctx.Err() == nil {
				k.log.Error(err, "Node lease")
			}
		}
	}
}
