package specs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// revisionOf hashes what the pod is made from. The format permit is not part of it: a pod is no other because it may
// no longer format its volume.
func revisionOf(pod *corev1.Pod) (string, error) {
	content, err := json.Marshal(struct {
		Labels      map[string]string
		Annotations map[string]string
		Spec        corev1.PodSpec
	}{pod.Labels, pod.Annotations, pod.Spec})
	if err != nil {
		return "", fmt.Errorf("hash the spec of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:6]), nil
}
