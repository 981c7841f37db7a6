package devcluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/highwater-io/highwater/internal/localkube"
	"github.com/highwater-io/highwater/internal/scrape"
)

// Pod reads a pod.
func (c *Cluster) Pod(ctx context.Context, name string) (*corev1.Pod, error) {
	var pod corev1.Pod
	return &pod, c.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: name}, &pod)
}

// ClaimDir is the directory of this machine that a pod's volume is.
func (c *Cluster) ClaimDir(ctx context.Context, name string) (string, error) {
	pod, err := c.Pod(ctx, name)
	if err != nil {
		return "", err
	}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		var claim corev1.PersistentVolumeClaim
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: v.PersistentVolumeClaim.ClaimName}, &claim); err != nil {
			return "", err
		}
		var pv corev1.PersistentVolume
		if err := c.Client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, &pv); err != nil {
			return "", err
		}
		switch {
		case pv.Spec.HostPath != nil:
			return pv.Spec.HostPath.Path, nil
		case pv.Spec.Local != nil:
			return pv.Spec.Local.Path, nil
		}
	}
	return "", fmt.Errorf("pod %s has no volume that is a directory of this machine", name)
}

// Metrics asks a node for its metrics (scrape.Text).
func (c *Cluster) Metrics(ctx context.Context, pod string) (string, error) {
	address, err := c.httpAddress(ctx, pod)
	if err != nil {
		return "", err
	}
	return scrape.Text(ctx, address)
}

// Metric asks a node for one metric (scrape.Value).
func (c *Cluster) Metric(ctx context.Context, pod, name string) (float64, error) {
	address, err := c.httpAddress(ctx, pod)
	if err != nil {
		return 0, err
	}
	return scrape.Value(ctx, address, name)
}

func (c *Cluster) httpAddress(ctx context.Context, pod string) (string, error) {
	return localkube.Connect(c.Dir).PodAddress(ctx, Namespace, pod, "http")
}
