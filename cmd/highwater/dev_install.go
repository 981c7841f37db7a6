package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/highwater-io/highwater/config"
	"github.com/highwater-io/highwater/internal/localkube"
)

// operatorName is the operator's name in fault rules, logs and pid files.
const operatorName = "operator"

// install applies what an installation applies, but for the Deployment, which nothing plays: what it says of the
// operator is returned, and the operator runs as a process with the same arguments and rights.
func install(ctx context.Context, cluster *localkube.Cluster, o upOptions) (localkube.ChildSpec, error) {
	dir := o.config
	if dir == "" {
		temp, err := os.MkdirTemp("", "highwater-config-")
		if err != nil {
			return localkube.ChildSpec{}, err
		}
		defer os.RemoveAll(temp)
		if err := os.CopyFS(temp, config.Manifests); err != nil {
			return localkube.ChildSpec{}, err
		}
		dir = filepath.Join(temp, "default")
	} else if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return localkube.ChildSpec{}, fmt.Errorf("--config: %w", err)
	}
	rendered, err := kubectl(ctx, cluster, nil, "kustomize", dir)
	if err != nil {
		return localkube.ChildSpec{}, err
	}
	manifests, deployment, err := splitDeployment([]byte(rendered))
	if err != nil {
		return localkube.ChildSpec{}, fmt.Errorf("read the manifests in %s: %w", dir, err)
	}
	if deployment == nil {
		return localkube.ChildSpec{}, fmt.Errorf("the manifests in %s hold no Deployment: it says how the operator runs", dir)
	}
	if _, err := kubectl(ctx, cluster, manifests, "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
		return localkube.ChildSpec{}, err
	}
	if _, err := kubectl(ctx, cluster, nil, "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"); err != nil {
		return localkube.ChildSpec{}, err
	}
	return operatorSpec(deployment, o, cluster.Host())
}

// splitDeployment takes the Deployment out of a stream of objects.
func splitDeployment(stream []byte) (rest []byte, deployment *appsv1.Deployment, err error) {
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(stream)))
	var kept bytes.Buffer
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return kept.Bytes(), deployment, nil
		}
		if err != nil {
			return nil, nil, err
		}
		var object unstructured.Unstructured
		if err := sigsyaml.Unmarshal(document, &object.Object); err != nil {
			return nil, nil, err
		}
		if object.GroupVersionKind() != appsv1.SchemeGroupVersion.WithKind("Deployment") {
			fmt.Fprintf(&kept, "---\n%s", document)
			continue
		}
		deployment = &appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment); err != nil {
			return nil, nil, err
		}
	}
}

// operatorSpec turns the Deployment's container into a process. Of its arguments only the addresses that it binds are
// replaced, so that several local clusters can be up: they are of the cluster's own network, or none.
func operatorSpec(d *appsv1.Deployment, o upOptions, host string) (localkube.ChildSpec, error) {
	pod := d.Spec.Template.Spec
	if len(pod.Containers) != 1 {
		return localkube.ChildSpec{}, fmt.Errorf("the Deployment %s has %d containers, want one", d.Name, len(pod.Containers))
	}
	c := pod.Containers[0]
	if len(c.Command) == 0 {
		return localkube.ChildSpec{}, fmt.Errorf("the Deployment %s names no command", d.Name)
	}
	args := append(append([]string{}, c.Command[1:]...), c.Args...)
	metrics, health := "0", "0"
	if host != "127.0.0.1" {
		metrics, health = net.JoinHostPort(host, "8080"), net.JoinHostPort(host, "8081")
	}
	args = append(args, "--metrics-bind-address="+metrics, "--health-probe-bind-address="+health,
		"--leader-election-namespace="+d.Namespace)
	spec := localkube.ChildSpec{
		Name: operatorName, Path: filepath.Join(o.bin, filepath.Base(c.Command[0])), Args: append(args, o.operatorArgs...),
		Namespace: d.Namespace, ServiceAccount: pod.ServiceAccountName,
	}
	for _, v := range c.Env {
		value, err := literal(v, d)
		if err != nil {
			return localkube.ChildSpec{}, err
		}
		spec.Env = append(spec.Env, v.Name+"="+value)
	}
	return spec, nil
}

func literal(v corev1.EnvVar, d *appsv1.Deployment) (string, error) {
	if v.ValueFrom == nil {
		return v.Value, nil
	}
	if f := v.ValueFrom.FieldRef; f != nil && f.FieldPath == "metadata.namespace" {
		return d.Namespace, nil
	}
	return "", fmt.Errorf("the Deployment %s takes variable %s from where the local cluster can't", d.Name, v.Name)
}

// kubectl runs kubectl as cluster admin and returns what it prints.
func kubectl(ctx context.Context, cluster *localkube.Cluster, stdin []byte, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, cluster.Kubectl(), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig())
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %v: %s", args[0], err, bytes.TrimSpace(stderr.Bytes())) //nolint:errorlint // not wrapped: its exit code is not ours
	}
	return stdout.String(), nil
}
