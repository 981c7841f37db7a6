package exec

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// TestChecksumIsCheckedByTheLogAlone: batches pass through here as bytes. Whoever checks one here checks it twice.
func TestChecksumIsCheckedByTheLogAlone(t *testing.T) {
	set := token.NewFileSet()
	files, err := filepath.Glob("partition*.go")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, name := range append(files, "../produce.go", "../fetch.go", "../fetcher.go", "../replica.go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok && (call.Sel.Name == "VerifyCRC" || call.Sel.Name == "Verify" || call.Sel.Name == "Records") {
				if pkg, ok := call.X.(*ast.Ident); ok && pkg.Name == "batch" {
					t.Errorf("batch.%s at %s", call.Sel.Name, set.Position(n.Pos()))
				}
			}
			return true
		})
	}
}

func TestOneWriteForEachProduceAndForEachFetchedResponse(t *testing.T) {
	l, f := newRig(t, 1, false), newRig(t, 2, false)
	l.role(1, 3, 1, 2)
	f.role(1, 3, 1, 2)
	writes := 0
	count := func(op, path string) error {
		if op == vfs.OpWrite && strings.HasSuffix(path, ".log") {
			writes++
		}
		return nil
	}
	l.fault = count
	for range 20 {
		if p := l.produce(1, records("a", "b", "c").Build()); p.Code != replication.None {
			t.Fatalf("%+v", p)
		}
	}
	if writes != 20 {
		t.Errorf("the leader wrote %d times for 20 requests", writes)
	}
	l.fault, f.fault, writes = nil, count, 0
	res, _ := pull(f, l)
	if batches := res.Records.Bytes; batches == 0 || f.Log().EndOffset() != l.Log().EndOffset() {
		t.Fatalf("fetched %d bytes, to %d", batches, f.Log().EndOffset())
	}
	if writes != 1 {
		t.Errorf("the follower wrote %d times for one response of 20 batches", writes)
	}
}

// TestAllocationsOfAProduceDoNotGrowWithItsRecords: none for a record, and few for a batch.
func TestAllocationsOfAProduceDoNotGrowWithItsRecords(t *testing.T) {
	const bound = 8 // events and the log's new view
	for _, n := range []int{1, 1000} {
		r := newRig(t, 1, false)
		r.cfg.FS, r.cfg.Dir, r.cfg.MaxMessageBytes = vfs.OS(), t.TempDir()+"/t-0", 0
		r.open()
		r.role(1, 3, 1)
		b := batch.NewBuilder(0, 0, 1)
		for range n {
			b.Append(nil, make([]byte, 100))
		}
		data := b.Build()
		perOp := testing.AllocsPerRun(200, func() {
			batch.SetBaseOffset(data, 0)
			r.Produce(r.now, replication.Produce{Token: 7, Acks: 1}, data)
			if len(r.drain().Completed) != 1 {
				t.Fatal("not answered")
			}
		})
		t.Logf("a batch of %d records: %.0f allocations", n, perOp)
		if perOp > bound {
			t.Errorf("a batch of %d records costs %.0f allocations, at most %d are allowed", n, perOp, bound)
		}
	}
}
