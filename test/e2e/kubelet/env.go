package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/highwater-io/highwater/test/e2e/cluster"
)

// systemNamespace is where the operator runs.
const systemNamespace = "highwater-system"

// env is the cluster under test and what the steps share.
type env struct {
	*cluster.Cluster
	options

	// kustomization is the folder that was applied.
	kustomization string
	// configCopy is its parent where that is a copy.
	configCopy string
	namespaces []string
}

// restrictedNamespace makes a namespace in which the API server refuses every pod that is not restricted.
func (e *env) restrictedNamespace(ctx context.Context, name string) error {
	e.namespaces = append(e.namespaces, name)
	return e.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}})
}

// pod reads a pod.
func (e *env) pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	var pod corev1.Pod
	return &pod, e.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod)
}

// deletePod deletes the pod that this one is, and not one that took its name since.
func (e *env) deletePod(ctx context.Context, pod *corev1.Pod) error {
	uid := pod.UID
	return client.IgnoreNotFound(e.Delete(ctx, pod, client.Preconditions{UID: &uid}))
}

// podsOn lists the pods of a Kubernetes node.
func (e *env) podsOn(ctx context.Context, node string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := e.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, err
	}
	return pods.Items, nil
}

// exec runs the client in a pod of its own image.
func (e *env) exec(ctx context.Context, namespace, pod string, args ...string) (string, error) {
	return e.Kubectl(ctx, append([]string{"-n", namespace, "exec", pod, "--", "/client"}, args...)...)
}

// onMachine runs one of the scripts that made the cluster.
func (e *env) onMachine(ctx context.Context, script string, args ...string) error {
	if e.machine == "" {
		return cluster.NotRun{Why: "needs the machines; this cluster is not ours"}
	}
	_, err := cluster.Run(ctx, "", filepath.Join(e.machine, script), args...)
	return err
}

// cleanUp takes away what the run made.
func (e *env) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cluster.Say("cleaning up")
	for _, name := range e.namespaces {
		err := e.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if client.IgnoreNotFound(err) != nil {
			cluster.Say("namespace %s stays: %v", name, err)
		}
	}
	for _, name := range e.namespaces {
		err := cluster.Eventually(ctx, "namespace "+name+" is gone", func(ctx context.Context) error {
			err := e.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(err, errors.New("it is there"))
		})
		if err != nil {
			cluster.Say("%v", err)
		}
	}
	if e.kustomization != "" {
		if _, err := e.Kubectl(ctx, "delete", "--ignore-not-found", "--timeout=60s", "-k", e.kustomization); err != nil {
			cluster.Say("%v", err)
		}
	}
	if e.configCopy != "" {
		if err := os.RemoveAll(e.configCopy); err != nil {
			cluster.Say("%v", err)
		}
	}
}

// dump leaves what helps to find out why a step failed: objects on standard error, logs in a folder.
func (e *env) dump(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "highwater-e2e-")
	if err != nil {
		cluster.Say("no folder for logs: %v", err)
		return
	}
	for _, namespace := range append([]string{systemNamespace}, e.namespaces...) {
		out, err := e.Kubectl(ctx, "-n", namespace, "get", "pods,pvc,hwrs,hwp", "-o", "wide")
		fmt.Fprintf(os.Stderr, "--- %s\n%s", namespace, out)
		if err != nil {
			cluster.Say("%v", err)
		}
		for file, args := range map[string][]string{
			"objects.yaml": {"get", "pods,pvc,svc,cm,pdb,hwrs,hwp,events.events.k8s.io", "-o", "yaml"},
			"describe.txt": {"describe", "pods,pvc"},
		} {
			out, _ := e.Kubectl(ctx, append([]string{"-n", namespace}, args...)...)
			e.write(filepath.Join(dir, namespace+"-"+file), out)
		}
		names, _ := e.Kubectl(ctx, "-n", namespace, "get", "pods", "-o", "name")
		for _, name := range strings.Fields(names) {
			for _, previous := range []string{"false", "true"} {
				out, err := e.Kubectl(ctx, "-n", namespace, "logs", name, "--previous="+previous, "--timestamps")
				if err == nil {
					e.write(filepath.Join(dir, fmt.Sprintf("%s-%s-previous-%s.log", namespace, filepath.Base(name), previous)), out)
				}
			}
		}
	}
	cluster.Say("objects and logs are in %s", dir)
}

func (e *env) write(path, text string) {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		cluster.Say("%v", err)
	}
}
