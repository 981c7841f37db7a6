package devcluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

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

// Metrics asks a node for its metrics, in Prometheus' text format.
func (c *Cluster) Metrics(ctx context.Context, name string) (string, error) {
	address, err := localkube.Connect(c.Dir).PodAddress(ctx, Namespace, name, "http")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// Metric asks a node for one metric (scrape.Value).
func (c *Cluster) Metric(ctx context.Context, pod, name string) (float64, error) {
	address, err := localkube.Connect(c.Dir).PodAddress(ctx, Namespace, pod, "http")
	if err != nil {
		return 0, err
	}
	return scrape.Value(ctx, address, name)
}
