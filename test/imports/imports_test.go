// Package imports holds the architecture as a test: which package may know which.
package imports

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/highwater-io/highwater/"

type listedPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func list(t *testing.T) []listedPackage {
	t.Helper()
	command := exec.Command("go", "list", "-deps=false", "-json=ImportPath,Imports,Deps", "./...")
	command.Dir = "../.."
	out, err := command.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var packages []listedPackage
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listedPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("go list output: %v", err)
		}
		packages = append(packages, p)
	}
}

// mayKnow lists, for each package of the engine, which others of ours it may import. A package below one that
// is listed inherits its line. What is not listed here (commands, tests, the operator) has a rule below.
var mayKnow = map[string][]string{
	"pkg/ident":             {},
	"pkg/vfs":               {"pkg/ident"},
	"pkg/batch":             {"pkg/ident"},
	"pkg/epoch":             {"pkg/ident"},
	"pkg/nodefact":          {"pkg/ident"},
	"pkg/topicconfig":       {"pkg/ident"},
	"pkg/buffer":            {},
	"pkg/wire":              {"pkg/ident", "pkg/buffer"},
	"pkg/metadata":          {"pkg/ident", "pkg/batch"},
	"pkg/log":               {"pkg/ident", "pkg/vfs", "pkg/batch", "pkg/epoch"},
	"pkg/quorum/raft":       {"pkg/ident", "pkg/epoch", "pkg/batch", "pkg/quorum/raft"},
	"pkg/quorum/controller": {"pkg/ident", "pkg/metadata", "pkg/topicconfig", "pkg/quorum/controller"},
	"pkg/quorum/observer":   {"pkg/ident", "pkg/batch", "pkg/metadata", "pkg/wire"},
	"pkg/replication":       {"pkg/ident", "pkg/epoch"},
	"pkg/node/exec":         {"pkg/ident", "pkg/vfs", "pkg/batch", "pkg/epoch", "pkg/log", "pkg/metadata", "pkg/quorum/raft", "pkg/replication"},
	"pkg/sim":               {"pkg/ident", "pkg/vfs", "pkg/batch", "pkg/epoch", "pkg/log", "pkg/metadata", "pkg/quorum/raft", "pkg/quorum/controller", "pkg/replication", "pkg/node/exec", "pkg/topicconfig", "pkg/sim"},
	"pkg/node":              {"pkg/", "internal/buildinfo"},
	"api":                   {},
	"controllers":           {"api", "controllers", "pkg/ident", "pkg/metadata", "pkg/nodefact", "pkg/quorum/observer", "pkg/topicconfig", "pkg/wire"},
	"internal/localkube":    {"internal/localkube", "internal/procs", "internal/buildinfo", "hack/kube"},
}

// within says whether path is prefix or lies below it.
func within(path, prefix string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

func ruleFor(path string) (rule string, allowed []string, ok bool) {
	for prefix, list := range mayKnow {
		if within(path, prefix) && len(prefix) > len(rule) {
			rule, allowed, ok = prefix, list, true
		}
	}
	return rule, allowed, ok
}

func TestImportsPointOneWay(t *testing.T) {
	seen := 0
	for _, p := range list(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		rule, allowed, ok := ruleFor(path)
		if !ok {
			continue
		}
		seen++
		for _, imported := range p.Imports {
			ours, found := strings.CutPrefix(imported, module)
			if !found || within(ours, rule) {
				continue
			}
			permitted := false
			for _, prefix := range allowed {
				permitted = permitted || within(ours, prefix)
			}
			if !permitted {
				t.Errorf("%s imports %s, which the architecture does not let it know", path, ours)
			}
		}
	}
	if seen < 5 {
		t.Fatalf("only %d packages are under a rule: did the layout move?", seen)
	}
}

func TestTheNodeNeverLinksAKubernetesClient(t *testing.T) {
	found := false
	for _, p := range list(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		if path != "cmd/node" && !strings.HasPrefix(path, "pkg/") {
			continue
		}
		found = found || path == "cmd/node"
		for _, dep := range p.Deps {
			if strings.HasPrefix(dep, "k8s.io/client-go") || strings.HasPrefix(dep, "sigs.k8s.io/controller-runtime") {
				t.Errorf("%s links %s: data pods hold no Kubernetes credentials and no client", path, dep)
				break
			}
		}
	}
	if !found {
		t.Fatal("cmd/node is not there")
	}
}

func TestOnlyTheDevCommandAndTestsImportTheLocalCluster(t *testing.T) {
	for _, p := range list(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		if within(path, "internal/localkube") || within(path, "cmd/highwater") || within(path, "test") {
			continue
		}
		for _, imported := range p.Imports {
			ours := strings.TrimPrefix(imported, module)
			// internal/testenv is for TestMain functions, whose imports are not listed here.
			if within(ours, "internal/testenv") || within(ours, "internal/localkube") && path != "internal/testenv" {
				t.Errorf("%s imports %s, which belongs to the local cluster", path, ours)
			}
		}
	}
}

// The cores are pure: what they may not import keeps them replayable from a seed.
func TestCoresImportNothingThatMovesByItself(t *testing.T) {
	forbidden := map[string]bool{"os": true, "net": true, "sync": true, "math/rand": true, "net/http": true, "io/fs": true, "sync/atomic": true, "context": true}
	for _, p := range list(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		switch {
		case within(path, "pkg/quorum/raft"), within(path, "pkg/quorum/controller"), within(path, "pkg/replication"), path == "pkg/epoch", path == "pkg/metadata":
			for _, imported := range p.Imports {
				if forbidden[imported] {
					t.Errorf("%s imports %s", path, imported)
				}
			}
		}
	}
}
