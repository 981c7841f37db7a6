package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/vfs"
)

func TestOpenVolumeTakesOnlyItsOwn(t *testing.T) {
	cluster, directory := ident.UUID{0: 7, 15: 200}, testUUID(9, 4)
	own := log.MetaProperties{ClusterID: cluster.String(), NodeID: 4, DirectoryID: directory}
	other := func(change func(*log.MetaProperties)) *log.MetaProperties {
		m := own
		change(&m)
		return &m
	}
	for name, c := range map[string]struct {
		meta   *log.MetaProperties
		raw    string   // content of meta.properties
		holds  []string // further entries
		permit string
		want   string // reason, empty: it opens
	}{
		"its own":                                 {meta: &own},
		"its own needs no permit":                 {meta: &own, holds: []string{"orders-0"}, permit: testUUID(1, 1).String()},
		"of another cluster":                      {meta: other(func(m *log.MetaProperties) { m.ClusterID = "elsewhere" }), want: WrongClusterID},
		"of another node":                         {meta: other(func(m *log.MetaProperties) { m.NodeID = 5 }), want: WrongNodeID},
		"of an earlier life":                      {meta: other(func(m *log.MetaProperties) { m.DirectoryID = testUUID(9, 5) }), want: WrongDirectoryID},
		"damaged":                                 {raw: "version=1\ncluster.id", want: VolumeUnreadable},
		"of a later version":                      {raw: "version=2\ncluster.id=x\nnode.id=4\n", want: VolumeUnreadable},
		"empty, no permit":                        {want: VolumeLost},
		"empty, permit used up":                   {permit: "\n", want: VolumeLost},
		"empty, permit for another directory":     {permit: testUUID(9, 5).String(), want: VolumeLost},
		"empty, permit that is none":              {permit: "yes", want: VolumeLost},
		"empty, permitted":                        {permit: directory.String() + "\n"},
		"new disk, interrupted before, permitted": {holds: []string{"lost+found", ".lock", "other.tmp"}, permit: directory.String()},
		"somebody else's, permitted":              {holds: []string{"pgdata"}, permit: directory.String(), want: VolumeForeign},
		"lost its meta.properties, permitted":     {holds: []string{"orders-0"}, permit: directory.String(), want: VolumeForeign},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := vfs.NewMem()
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(fsys.MkdirAll(testDataDir, 0o755))
			for _, entry := range c.holds {
				must(fsys.MkdirAll(filepath.Join(testDataDir, entry), 0o755))
			}
			if c.meta != nil {
				must(log.WriteMetaProperties(fsys, testDataDir, *c.meta))
			}
			if c.raw != "" {
				must(vfs.WriteFileAtomic(fsys, filepath.Join(testDataDir, log.MetaPropertiesFile), []byte(c.raw)))
			}
			cfg := Config{NodeID: 4, DirectoryID: directory, Shared: SharedConfig{ClusterID: cluster}, FormatPermitFile: filepath.Join(t.TempDir(), "permit")}
			if c.permit != "" {
				must(os.WriteFile(cfg.FormatPermitFile, []byte(c.permit), 0o644))
			}
			err := openVolume(fsys, testDataDir, &cfg)
			if c.want == "" {
				must(err)
				found, err := log.ReadMetaProperties(fsys, testDataDir)
				must(err)
				if found != own {
					t.Fatalf("meta.properties says %+v", found)
				}
				return
			}
			var refused *VolumeError
			if !errors.As(err, &refused) || refused.Reason != c.want || !strings.HasPrefix(err.Error(), c.want+": ") {
				t.Fatalf("got %v, want %s", err, c.want)
			}
			if c.meta == nil && c.raw == "" {
				if _, err := fsys.Stat(filepath.Join(testDataDir, log.MetaPropertiesFile)); err == nil {
					t.Fatal("a refused volume was formatted")
				}
			}
		})
	}
}

func TestRefusedVolumeIsReportedInOneLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "termination-log")
	reportVolume(path, &VolumeError{VolumeLost, "it is empty"})
	raw, err := os.ReadFile(path)
	if err != nil || string(raw) != "VolumeLost: it is empty\n" {
		t.Fatalf("%q, %v", raw, err)
	}
	reportVolume("", &VolumeError{VolumeLost, "nobody reads it"})
	reportVolume(filepath.Join(path, "not", "there"), &VolumeError{VolumeLost, "no file"})
}

func TestDirectoryIsLockedOnceAndByOneProcess(t *testing.T) {
	fsys := vfs.NewMem()
	for _, dir := range []string{"/a", "/b"} {
		if err := fsys.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	first, second := dirLocks{fs: fsys}, dirLocks{fs: fsys}
	for range 2 {
		if err := first.take("/a"); err != nil {
			t.Fatal(err)
		}
	}
	if err := second.take("/b"); err != nil {
		t.Fatal(err)
	}
	if err := second.take("/a"); !errors.Is(err, errLocked) || !strings.Contains(err.Error(), "/a is in use") {
		t.Fatalf("got %v", err)
	}
	first.release()
	if err := second.take("/a"); err != nil {
		t.Fatal(err)
	}
	second.release()
	for _, dir := range []string{"/a", "/b"} {
		if err := first.take(dir); err != nil {
			t.Fatal(err)
		}
	}
	first.release()
}
