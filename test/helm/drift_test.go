package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestChartFilesAreThoseOfConfig: CRDs and RBAC have one source, which is made from the code.
func TestChartFilesAreThoseOfConfig(t *testing.T) {
	const config, files = "../../config", "../../charts/highwater/files"
	crds, err := filepath.Glob(config + "/crd/bases/*.yaml")
	if err != nil || len(crds) == 0 {
		t.Fatalf("no CRDs in %s (%v)", config, err)
	}
	want := map[string]string{
		files + "/rbac/role.yaml":                 config + "/rbac/role.yaml",
		files + "/rbac/leader_election_role.yaml": config + "/rbac/leader_election_role.yaml",
	}
	for _, crd := range crds {
		want[filepath.Join(files, "crds", filepath.Base(crd))] = crd
	}
	for copied, source := range want {
		a, err := os.ReadFile(copied)
		if err != nil {
			t.Errorf("%v: run make chart-files", err)
			continue
		}
		b, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs from %s: run make chart-files", copied, source)
		}
	}
	have, err := filepath.Glob(files + "/*/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range have {
		if _, known := want[filepath.Clean(path)]; !known {
			t.Errorf("%s has no source in config: run make chart-files", path)
		}
	}
}
