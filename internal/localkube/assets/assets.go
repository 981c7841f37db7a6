package assets

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// KubernetesVersion is the release that Dir looks for and builds. It is the one that the project's k8s.io
// modules belong to.
const KubernetesVersion = "v1.37.2"

// Variable names the environment variable that, when set, is the answer of Dir; envtest reads the same one.
const Variable = "KUBEBUILDER_ASSETS"

// Names of the executables that a directory of assets holds.
var names = []string{"etcd", "kube-apiserver", "kubectl"}

// Dir returns a directory with the executables etcd, kube-apiserver and kubectl. In this order: the directory
// that KUBEBUILDER_ASSETS names; the user's cache (${XDG_CACHE_HOME:-~/.cache}/highwater/kube); the archive that
// setup-envtest would fetch, if its server answers in time; a build from the Go modules, which takes 6 to 12
// minutes on two cores the first time. What was fetched or built stays in the cache. progress gets a line for
// every step that takes long and may be nil. Processes that call Dir at the same time wait for each other.
func Dir(ctx context.Context, progress io.Writer) (string, error) {
	if progress == nil {
		progress = io.Discard
	}
	if dir := os.Getenv(Variable); dir != "" {
		if missing := missingIn(dir); missing != "" {
			return "", fmt.Errorf("%s=%s has no executable %s: point it at a directory with %s, or unset it",
				Variable, dir, missing, strings.Join(names, ", "))
		}
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	if xdg := os.Getenv("XDG_CACHE_HOME"); filepath.IsAbs(xdg) {
		cache, err = xdg, nil // os.UserCacheDir ignores it on macOS
	}
	if err != nil {
		return "", fmt.Errorf("find the user's cache directory: %w (set %s or HOME)", err, Variable)
	}
	return finder{
		root:     filepath.Join(cache, "highwater", "kube"),
		indexURL: indexURL,
		build:    build,
		progress: progress,
	}.dir(ctx)
}

// finder is Dir with its surroundings as values.
type finder struct {
	root     string
	indexURL string
	build    func(ctx context.Context, out string, progress io.Writer) error
	progress io.Writer
}

func (f finder) dir(ctx context.Context) (string, error) {
	if dir, ok := f.cached(); ok {
		return dir, nil
	}
	if err := os.MkdirAll(f.root, 0o755); err != nil {
		return "", fmt.Errorf("make the cache for Kubernetes' executables: %w", err)
	}
	unlock, err := lockDir(ctx, f.root, f.progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	if dir, ok := f.cached(); ok { // another process was faster
		return dir, nil
	}
	fmt.Fprintf(f.progress, "no etcd and kube-apiserver in %s: asking for the prebuilt archive\n", f.root)
	dir, err := f.download(ctx)
	if err == nil {
		return dir, nil
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	fmt.Fprintf(f.progress, "not downloaded (%v): building Kubernetes %s from its Go modules, which takes minutes the first time\n",
		err, KubernetesVersion)
	out := filepath.Join(f.root, KubernetesVersion)
	if err := f.build(ctx, out, f.progress); err != nil {
		return "", fmt.Errorf("build etcd, kube-apiserver and kubectl: %w", err)
	}
	if missing := missingIn(out); missing != "" {
		return "", fmt.Errorf("the build of Kubernetes %s left no %s in %s", KubernetesVersion, missing, out)
	}
	return out, nil
}

// cached returns the directory of an earlier build, else of an earlier download.
func (f finder) cached() (string, bool) {
	dirs := []string{filepath.Join(f.root, KubernetesVersion)}
	downloaded, _ := filepath.Glob(filepath.Join(f.root, downloadPrefix+"*"))
	for i := len(downloaded) - 1; i >= 0; i-- {
		dirs = append(dirs, downloaded[i])
	}
	for _, dir := range dirs {
		if missingIn(dir) == "" {
			return dir, true
		}
	}
	return "", false
}

// missingIn names the first executable that dir lacks, or is empty.
func missingIn(dir string) string {
	for _, name := range names {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return name
		}
	}
	return ""
}
