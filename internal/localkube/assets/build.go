package assets

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// The module hack/kube, as text: it can't be embedded from where it lies, since it is a module of its own, and a
// highwater binary outside of the checkout has to build it too. TestSourceIsTheModuleInHack compares the two.
//
//go:generate cp ../../../hack/kube/go.mod source/go.mod.txt
//go:generate cp ../../../hack/kube/go.sum source/go.sum.txt
//go:generate cp ../../../hack/kube/envtest/main.go source/main.go.txt
var (
	//go:embed source/go.mod.txt
	sourceGoMod []byte
	//go:embed source/go.sum.txt
	sourceGoSum []byte
	//go:embed source/main.go.txt
	sourceMain []byte
)

// build fills out by the same steps as hack/kube/build.sh: one binary, and a symlink for each name it answers to.
// The links come last, by rename, so that a build that was interrupted is never taken for a whole one.
func build(ctx context.Context, out string, progress io.Writer) error {
	goCommand, err := exec.LookPath("go")
	if err != nil {
		return errors.New("no go command in PATH: install Go, or set " + Variable + " to a directory with etcd, kube-apiserver and kubectl")
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(out, ".build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := os.Mkdir(filepath.Join(work, "envtest"), 0o755); err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"go.mod": sourceGoMod, "go.sum": sourceGoSum, "envtest/main.go": sourceMain,
	} {
		if err := os.WriteFile(filepath.Join(work, name), data, 0o644); err != nil {
			return err
		}
	}

	binary := ".envtest-" + KubernetesVersion
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, goCommand, "build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags(KubernetesVersion),
		"-o", filepath.Join(work, binary), "./envtest")
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "CGO_ENABLED=0", "GOOS=", "GOARCH=")
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	stop := tick(progress)
	err = cmd.Run()
	stop()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, lastLines(output.String(), 20))
	}
	if err := os.Rename(filepath.Join(work, binary), filepath.Join(out, binary)); err != nil {
		return err
	}
	for _, name := range names {
		link := filepath.Join(work, name)
		if err := os.Symlink(binary, link); err != nil {
			return err
		}
		if err := os.Rename(link, filepath.Join(out, name)); err != nil {
			return err
		}
	}
	return nil
}

// ldflags stamps the version into the binary; without it the API server reports v0.0.0.
func ldflags(version string) string {
	minor, _, _ := strings.Cut(strings.TrimPrefix(version, "v1."), ".")
	const stamp = "k8s.io/component-base/version"
	return strings.Join([]string{"-s -w",
		"-X " + stamp + ".gitVersion=" + version, "-X " + stamp + ".gitMajor=1", "-X " + stamp + ".gitMinor=" + minor,
		"-X " + stamp + ".gitTreeState=clean", "-X k8s.io/client-go/pkg/version.gitVersion=" + version}, " ")
}

// tick says every ten seconds that the build goes on, since the Go command says nothing by itself.
func tick(progress io.Writer) (stop func()) {
	started, done, ended := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(10 * time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				fmt.Fprintf(progress, "building Kubernetes %s: %d s (6 to 12 minutes the first time, seconds after that)\n",
					KubernetesVersion, int(time.Since(started).Seconds()))
			}
		}
	}()
	return func() { close(done); <-ended }
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
