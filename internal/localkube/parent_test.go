package localkube

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/highwater-io/highwater/internal/procs"
)

// runParent is a process that runs a cluster in a directory with one pod and one child, says "up" and waits.
func runParent(dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	o := options()
	o.Dir = dir
	c, err := Start(context.Background(), o)
	fail(err)
	k, err := client.New(c.Config(), client.Options{Scheme: scheme.Scheme})
	fail(err)
	pod := (&env{ns: "default"}).pod("a")
	fail(client.IgnoreAlreadyExists(k.Create(context.Background(), pod)))
	_, err = c.StartChild(context.Background(), ChildSpec{Name: "child", Path: filepath.Join(binDir(), "app"), Args: []string{"wait"}})
	fail(err)
	for !isReady(pod) {
		fail(k.Get(context.Background(), client.ObjectKeyFromObject(pod), pod))
	}
	fmt.Println("up")
	select {}
}

func TestKilledClusterLeavesNoProcessAndGoesOnLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), "LOCALKUBE_TEST_PARENT="+dir, "LOCALKUBE_TEST_BIN="+binDir())
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "up" {
		t.Fatalf("the parent said %q", lines.Text())
	}
	if _, err := Start(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "already up") {
		t.Errorf("a second cluster in the same directory: %v", err)
	}
	var children []procs.Ref
	err = filepath.WalkDir(filepath.Join(dir, "pids"), func(name string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, procs.Suffix) {
			ref, err := procs.ReadPidFile(name)
			if err != nil || !ref.Alive() {
				t.Errorf("%s: %v, alive %v", name, err, ref.Alive())
			}
			children = append(children, ref)
		}
		return err
	})
	if err != nil || len(children) != 4 {
		t.Fatalf("pid files of %d processes, %v; want etcd, kube-apiserver, the child and the pod", len(children), err)
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	e := &env{T: t}
	for _, ref := range children {
		e.eventually("the children to end", func() error {
			if procs.ChildrenEndWithParent && ref.Alive() {
				return fmt.Errorf("process %d lives", ref.Pid)
			}
			return nil
		})
	}

	o := options()
	o.Dir = dir
	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	e = envIn(t, c)
	e.ns = "default"
	e.eventually("the pod of before to run again", func() error {
		pod, err := e.get("a")
		if err == nil && (!isReady(pod) || pod.Status.ContainerStatuses[0].RestartCount != 1) {
			err = fmt.Errorf("%+v", pod.Status.ContainerStatuses)
		}
		return err
	})
	var nodes corev1.NodeList
	e.must(e.k.List(t.Context(), &nodes))
	if len(nodes.Items) != 3 {
		t.Errorf("%d Nodes, want 3", len(nodes.Items))
	}
}
