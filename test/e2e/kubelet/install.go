package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/highwater-io/highwater/test/e2e/cluster"
)

const operatorName = "highwater-operator"

func (e *env) installSteps() []cluster.Step {
	return []cluster.Step{
		{Name: "kubectl apply -k config/default", Limit: time.Minute, Do: e.install},
		{Name: "the operator's pod is Ready", Limit: 3 * time.Minute, Do: e.operatorReady},
		{Name: "the API server refuses a pod that is not restricted beside the operator", Limit: time.Minute, Do: e.restrictedIsEnforced},
	}
}

func (e *env) install(ctx context.Context) error {
	config, err := e.configFolder()
	if err != nil {
		return err
	}
	e.kustomization = filepath.Join(config, "default")
	if _, err := e.Kubectl(ctx, "apply", "--server-side", "-k", e.kustomization); err != nil {
		return err
	}
	_, err = e.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s",
		"crd/hwreplicasets.replication.highwater.dev", "crd/partitions.replication.highwater.dev")
	return err
}

// configFolder is config/, or a copy that names another image.
func (e *env) configFolder() (string, error) {
	config := filepath.Join(e.root, "config")
	if e.image == "" {
		return config, nil
	}
	dir, err := os.MkdirTemp("", "highwater-config-")
	if err != nil {
		return "", err
	}
	e.configCopy = dir
	if err := os.CopyFS(dir, os.DirFS(config)); err != nil {
		return "", err
	}
	// What `kustomize edit set image highwater=IMAGE` does.
	colon := strings.LastIndexByte(e.image, ':')
	if colon <= strings.LastIndexByte(e.image, '/') {
		return "", fmt.Errorf("--image=%s: want a tag", e.image)
	}
	name, tag := e.image[:colon], e.image[colon+1:]
	path := filepath.Join(dir, "manager", "kustomization.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	changed := bytes.Replace(text, []byte("newName: highwater\n  newTag: latest"),
		fmt.Appendf(nil, "newName: %s\n  newTag: %s", name, tag), 1)
	if bytes.Equal(changed, text) {
		return "", errors.New("config/manager/kustomization.yaml names its image otherwise than this program knows")
	}
	return dir, os.WriteFile(path, changed, 0o600)
}

func (e *env) operatorReady(ctx context.Context) error {
	return cluster.Eventually(ctx, "deployment "+operatorName+" is available", func(ctx context.Context) error {
		var deployment appsv1.Deployment
		if err := e.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: operatorName}, &deployment); err != nil {
			return err
		}
		s := deployment.Status
		if s.ObservedGeneration < deployment.Generation || s.Replicas != *deployment.Spec.Replicas ||
			s.UpdatedReplicas != s.Replicas || s.AvailableReplicas != s.Replicas {
			return fmt.Errorf("%d pods, %d of this version, %d available, want %d",
				s.Replicas, s.UpdatedReplicas, s.AvailableReplicas, *deployment.Spec.Replicas)
		}
		return nil
	})
}

// restrictedIsEnforced tries what the profile forbids: a test under it proves nothing where it is not in force.
func (e *env) restrictedIsEnforced(ctx context.Context) error {
	for _, namespace := range append([]string{systemNamespace}, e.namespaces...) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "not-restricted"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: e.clientImage}}},
		}
		err := e.Create(ctx, pod, client.DryRunAll)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `PodSecurity "restricted`) {
			return errors.Join(err, fmt.Errorf("namespace %s: a pod without a security context was not forbidden by PodSecurity restricted", namespace))
		}
	}
	return nil
}

func (e *env) rbacSteps() []cluster.Step {
	return []cluster.Step{
		{Name: "the shipped RBAC was enough, and is no more than it says", Limit: time.Minute, Do: e.rbacFits},
	}
}

// rbacFits looks for a refusal in what the operator logged, and asks for rights that it has no use for.
func (e *env) rbacFits(ctx context.Context) error {
	logs, err := e.Kubectl(ctx, "-n", systemNamespace, "logs", "-l", "app.kubernetes.io/component=operator", "--tail=-1")
	if err != nil {
		return err
	}
	for line := range strings.SplitSeq(logs, "\n") {
		if strings.Contains(line, "is forbidden: User") || strings.Contains(line, "forbidden: violates PodSecurity") {
			return fmt.Errorf("the operator was refused: %s", line)
		}
	}
	who := "--as=system:serviceaccount:" + systemNamespace + ":" + operatorName
	for _, what := range [][]string{{"get", "secrets"}, {"create", "roles.rbac.authorization.k8s.io"}, {"get", "nodes"}, {"delete", "persistentvolumes"}} {
		out, err := e.Kubectl(ctx, append([]string{"auth", "can-i", "--all-namespaces", who}, what...)...)
		if strings.TrimSpace(out) != "no" {
			return errors.Join(err, fmt.Errorf("may the operator %s: %q, want no", strings.Join(what, " "), strings.TrimSpace(out)))
		}
	}
	return nil
}
