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
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"
)

// indexURL lists the archives; it is the index that setup-envtest reads.
const indexURL = "https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml"

const (
	downloadPrefix = "envtest-"
	// stallTimeout bounds the wait for the index, for the archive's first byte and for each byte after it. A link
	// that is slow but alive is still faster than building.
	stallTimeout = 10 * time.Second
	// Bounds on what a server may send.
	maxIndexBytes   = 16 << 20
	maxArchiveBytes = 1 << 30
)

// releases is the index: version -> archive name -> where it is.
type releases struct {
	Releases map[string]map[string]struct {
		Hash     string `json:"hash"` // SHA-512, hex
		SelfLink string `json:"selfLink"`
	} `json:"releases"`
}

func (f finder) download(ctx context.Context) (string, error) {
	raw, err := fetch(ctx, f.indexURL, maxIndexBytes)
	if err != nil {
		return "", err
	}
	var index releases
	if err := yaml.Unmarshal(raw, &index); err != nil {
		return "", fmt.Errorf("read %s: %w", f.indexURL, err)
	}
	pick, err := pickRelease(index)
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("envtest-%s-%s-%s.tar.gz", pick, runtime.GOOS, runtime.GOARCH)
	entry, ok := index.Releases[pick][name]
	if !ok {
		return "", fmt.Errorf("the index has no %s", name)
	}
	fmt.Fprintf(f.progress, "downloading %s\n", entry.SelfLink)
	archive, err := fetch(ctx, entry.SelfLink, maxArchiveBytes)
	if err != nil {
		return "", err
	}
	if sum := sha512.Sum512(archive); hex.EncodeToString(sum[:]) != entry.Hash {
		return "", fmt.Errorf("%s does not have the SHA-512 that the index gives", entry.SelfLink)
	}
	out := filepath.Join(f.root, downloadPrefix+pick)
	if err := unpack(archive, out); err != nil {
		return "", fmt.Errorf("unpack %s: %w", name, err)
	}
	return out, nil
}

// pickRelease returns the newest stable release that is not newer than KubernetesVersion's minor release and at
// most two minor releases older.
func pickRelease(index releases) (string, error) {
	want := version.MustParseSemantic(KubernetesVersion)
	var found *version.Version
	for name := range index.Releases {
		v, err := version.ParseSemantic(name)
		if err != nil || v.PreRelease() != "" || v.Major() != want.Major() || v.Minor() > want.Minor() || v.Minor()+2 < want.Minor() {
			continue
		}
		if found == nil || v.GreaterThan(found) {
			found = v
		}
	}
	if found == nil {
		return "", fmt.Errorf("the index has no release near %s", KubernetesVersion)
	}
	return "v" + found.String(), nil
}

// fetch reads one URL; it gives up when nothing arrives for stallTimeout.
func fetch(ctx context.Context, url string, maxBytes int64) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(stallTimeout, func() { cancel(fmt.Errorf("nothing arrived within %v", stallTimeout)) })
	defer stalled.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s", url, resp.Status)
	}
	data, err := io.ReadAll(&watched{r: io.LimitReader(resp.Body, maxBytes+1), arrived: func() { stalled.Reset(stallTimeout) }})
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", url, errors.Join(err, context.Cause(ctx)))
	}
	if int64(len(data)) > maxBytes {
		return nil, fmt.Errorf("get %s: more than %d bytes", url, maxBytes)
	}
	return data, nil
}

type watched struct {
	r       io.Reader
	arrived func()
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if n > 0 {
		w.arrived()
	}
	return n, err
}

// unpack writes the executables that we run from a tar.gz, whatever folder they are in, and renames the directory
// into place when all are there.
func unpack(archive []byte, out string) error {
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(out), ".download-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	zipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	files := tar.NewReader(zipped)
	for {
		header, err := files.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		name := filepath.Base(header.Name)
		if header.Typeflag != tar.TypeReg || !slices.Contains(names, name) {
			continue
		}
		if err := writeExecutable(filepath.Join(work, name), files); err != nil {
			return err
		}
	}
	if missing := missingIn(work); missing != "" {
		return fmt.Errorf("it holds no %s", missing)
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	return os.Rename(work, out)
}

func writeExecutable(name string, r io.Reader) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, io.LimitReader(r, maxArchiveBytes)); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
