package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/highwater-io/highwater/test/e2e/cluster"
)

// copyChart copies a chart and replaces the first occurrence of a text in some of its files.
func copyChart(from, to string, changes map[string][2]string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	for name, change := range changes {
		path := filepath.Join(to, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !strings.Contains(string(text), change[0]) {
			return fmt.Errorf("%s has no %q", path, change[0])
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(text), change[0], change[1], 1)), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// cleanUp takes away what the run made: objects while an operator is there, then the release, the CRDs, the namespaces.
func (e *env) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	cluster.Say("cleaning up")
	try := func(_ string, err error) {
		if err != nil {
			cluster.Say("%v", err)
		}
	}
	// Before the namespace: its end would take the operator's Role first, and nobody were left to end the Partitions.
	try(e.Kubectl(ctx, "-n", userNamespace, "delete", "hwp,hwrs", "--all", "--timeout=60s"))
	for _, namespace := range []string{userNamespace, otherNamespace, "team-a", "team-b"} {
		err := e.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		try("", client.IgnoreNotFound(err))
	}
	try(e.Kubectl(ctx, "wait", "--for=delete", "--timeout=90s", "namespace/"+userNamespace))
	try(e.runHelm(ctx, "uninstall", release, "--namespace", systemNamespace, "--ignore-not-found"))
	try(e.Kubectl(ctx, "delete", "--ignore-not-found", "--timeout=30s",
		"crd/partitions.replication.highwater.dev", "crd/hwreplicasets.replication.highwater.dev", "namespace/"+systemNamespace))
}
