package assets

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestSourceIsTheModuleInHack(t *testing.T) {
	for name, embedded := range map[string][]byte{"go.mod": sourceGoMod, "go.sum": sourceGoSum, "envtest/main.go": sourceMain} {
		want, err := os.ReadFile(filepath.Join("..", "..", "..", "hack", "kube", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, embedded) {
			t.Errorf("hack/kube/%s changed: run go generate ./internal/localkube/assets", name)
		}
	}
	if want := "k8s.io/kubernetes " + KubernetesVersion + "\n"; !strings.Contains(string(sourceGoMod), want) {
		t.Errorf("hack/kube/go.mod does not require %q: change KubernetesVersion with it", strings.TrimSpace(want))
	}
}

func fill(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func noBuild(context.Context, string, io.Writer) error { return errors.New("no build in this test") }

func TestEnvironmentVariableWinsAndIsChecked(t *testing.T) {
	dir := t.TempDir()
	fill(t, dir)
	t.Setenv(Variable, dir)
	if got, err := Dir(t.Context(), nil); err != nil || got != dir {
		t.Fatalf("Dir() = %q, %v; want %q", got, err, dir)
	}
	if err := os.Remove(filepath.Join(dir, "kubectl")); err != nil {
		t.Fatal(err)
	}
	if _, err := Dir(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "kubectl") {
		t.Fatalf("Dir() with kubectl missing = %v, want an error that names it", err)
	}
}

func TestCacheIsUsedWithoutNetwork(t *testing.T) {
	root := t.TempDir()
	want := filepath.Join(root, KubernetesVersion)
	fill(t, want)
	f := finder{root: root, indexURL: "http://127.0.0.1:1/", build: noBuild, progress: io.Discard}
	if got, err := f.dir(t.Context()); err != nil || got != want {
		t.Fatalf("dir() = %q, %v; want %q", got, err, want)
	}
}

func TestBuildsWhenNothingCanBeDownloaded(t *testing.T) {
	root := t.TempDir()
	built := 0
	f := finder{root: root, indexURL: "http://127.0.0.1:1/", progress: io.Discard,
		build: func(_ context.Context, out string, _ io.Writer) error { built++; fill(t, out); return nil }}
	for range 2 {
		if got, err := f.dir(t.Context()); err != nil || got != filepath.Join(root, KubernetesVersion) {
			t.Fatalf("dir() = %q, %v", got, err)
		}
	}
	if built != 1 {
		t.Fatalf("built %d times, want once", built)
	}
	f.root, f.build = t.TempDir(), noBuild
	if _, err := f.dir(t.Context()); err == nil {
		t.Fatal("a failed build gave no error")
	}
}

// archiveServer serves an index with one good release, a newer minor release and a pre-release.
func archiveServer(t *testing.T, corrupt bool, files []string) *httptest.Server {
	t.Helper()
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	tarred := tar.NewWriter(zipped)
	for _, name := range files {
		if err := tarred.WriteHeader(&tar.Header{Name: "controller-tools/envtest/" + name, Mode: 0o755, Size: int64(len(name))}); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(tarred, name)
	}
	tarred.Close()
	zipped.Close()
	sum := sha512.Sum512(archive.Bytes())
	hash := hex.EncodeToString(sum[:])
	if corrupt {
		hash = strings.Repeat("0", len(hash))
	}
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	mux.HandleFunc("/archive", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive.Bytes()) })
	mux.HandleFunc("/index", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "releases:")
		for _, v := range []string{"v1.36.1", "v1.37.0", "v1.37.1-rc.0", "v1.38.0", "v2.0.0"} {
			fmt.Fprintf(w, "  %s:\n    envtest-%s-%s-%s.tar.gz: {hash: %s, selfLink: %s/archive}\n", v, v, runtime.GOOS, runtime.GOARCH, hash, srv.URL)
		}
	})
	return srv
}

func TestDownloadTakesTheNewestFittingRelease(t *testing.T) {
	srv := archiveServer(t, false, []string{"etcd", "kube-apiserver", "kubectl", "README"})
	f := finder{root: t.TempDir(), indexURL: srv.URL + "/index", build: noBuild, progress: io.Discard}
	want := filepath.Join(f.root, "envtest-v1.37.0")
	if got, err := f.dir(t.Context()); err != nil || got != want {
		t.Fatalf("dir() = %q, %v; want %q", got, err, want)
	}
	srv.Close()
	if got, err := f.dir(t.Context()); err != nil || got != want {
		t.Fatalf("dir() from the cache = %q, %v; want %q", got, err, want)
	}
}

func TestDownloadRefusesWhatIsNotWhole(t *testing.T) {
	for name, srv := range map[string]*httptest.Server{
		"SHA-512":    archiveServer(t, true, names),
		"no kubectl": archiveServer(t, false, []string{"etcd", "kube-apiserver"}),
	} {
		f := finder{root: t.TempDir(), indexURL: srv.URL + "/index", progress: io.Discard}
		if _, err := f.download(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("download = %v, want an error that says %q", err, name)
		}
		if _, ok := f.cached(); ok {
			t.Errorf("%s: something was left in the cache", name)
		}
	}
}
