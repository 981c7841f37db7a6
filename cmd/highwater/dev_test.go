package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/highwater-io/highwater/config"
)

func deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	manifest, err := config.Manifests.ReadFile("manager/manager.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rest, d, err := splitDeployment([]byte("kind: A\napiVersion: v1\n---\n" + string(manifest) + "---\nkind: B\napiVersion: v1\n"))
	if err != nil || d == nil {
		t.Fatalf("%v, %v", d, err)
	}
	if got := string(rest); strings.Contains(got, "Deployment") || !strings.Contains(got, "kind: A") || !strings.Contains(got, "kind: B") {
		t.Errorf("the rest is %q", got)
	}
	return d
}

func TestOperatorRunsAsItsDeploymentSays(t *testing.T) {
	d := deployment(t)
	spec, err := operatorSpec(d, upOptions{bin: "/bin-dir", operatorArgs: []string{"--log-level=debug"}}, "127.1.2.1")
	if err != nil {
		t.Fatal(err)
	}
	if spec.Path != "/bin-dir/highwater-operator" || spec.Namespace != d.Namespace || spec.ServiceAccount != "highwater-operator" {
		t.Errorf("%+v", spec)
	}
	shipped := d.Spec.Template.Spec.Containers[0].Args
	if !slices.Equal(spec.Args[:len(shipped)], shipped) || spec.Args[len(spec.Args)-1] != "--log-level=debug" {
		t.Errorf("arguments %q do not begin with the shipped %q", spec.Args, shipped)
	}
	if !slices.Contains(spec.Args, "--metrics-bind-address=127.1.2.1:8080") {
		t.Errorf("arguments %q bind an address that is not the cluster's", spec.Args)
	}
	if !slices.ContainsFunc(spec.Env, func(v string) bool { return strings.HasPrefix(v, "HIGHWATER_NODE_IMAGE=") }) {
		t.Errorf("environment %q lacks the shipped variable", spec.Env)
	}
	spec, err = operatorSpec(d, upOptions{}, "127.0.0.1")
	if err != nil || !slices.Contains(spec.Args, "--metrics-bind-address=0") {
		t.Errorf("on a shared address: %q, %v", spec.Args, err)
	}
	d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{}}}}
	if _, err := operatorSpec(d, upOptions{}, "127.0.0.1"); err == nil {
		t.Error("a variable that can't be had was dropped silently")
	}
}

func TestStateDirectoryFollowsTheEnvironment(t *testing.T) {
	t.Setenv(dirVariable, "")
	t.Setenv("HOME", "/home/x")
	for xdg, want := range map[string]string{
		"": "/home/x/.local/state/highwater/dev", "/s": "/s/highwater/dev", "relative": "/home/x/.local/state/highwater/dev",
	} {
		t.Setenv("XDG_STATE_HOME", xdg)
		if got := defaultDir(); got != want {
			t.Errorf("XDG_STATE_HOME=%q: %q, want %q", xdg, got, want)
		}
	}
	t.Setenv(dirVariable, "/else")
	if got := defaultDir(); got != "/else" {
		t.Errorf("%s is not used: %q", dirVariable, got)
	}
}

func TestCommandsThatNeedAClusterSaySo(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{
		{"fault", "cut", "a", "b", "INTERNAL"}, {"fault", "list"}, {"env"}, {"bootstrap", "logs"}, {"pause", "logs-0"},
	} {
		cmd := rootCommand()
		cmd.SetArgs(append([]string{"dev", "--dir", dir}, args...))
		var out strings.Builder
		cmd.SetOut(&out)
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%v: %v, want an error that names %s", args, err, dir)
		}
	}
	cmd := rootCommand()
	cmd.SetArgs([]string{"dev", "down", "--purge", "--dir", dir})
	cmd.SetOut(&strings.Builder{})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Errorf("down without a cluster: %v", err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("down --purge deleted a directory that was no cluster's: %v", err)
	}
	cmd = rootCommand()
	cmd.SetArgs([]string{"dev", "--dir", dir, "--bin-dir", filepath.Join(dir, "none")})
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("without binaries: %v", err)
	}
}
