package exec_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/node/exec"
)

func TestQuorumDoesItsChoresWhenItFlushes(t *testing.T) {
	for _, apart := range []bool{false, true} {
		fsys := formatted(t, 7)
		cfg := quorumConfig(fsys, 7)
		cfg.ChoresApart = apart
		cfg.Log.Settings = log.Settings{SegmentBytes: 1000}
		q, _, err := exec.OpenQuorum(cfg)
		if err == nil {
			err = q.Start(0)
		}
		if err == nil {
			err = q.Flush(0)
		}
		if err != nil {
			t.Fatal(err)
		}
		for now := ident.Instant(1); now < 9; now++ {
			if _, err := q.Propose(now, 1, records(strings.Repeat("x", 300))); err != nil {
				t.Fatal(err)
			}
		}
		if len(q.Log().Segments()) < 3 {
			t.Fatalf("segments %v", q.Log().Segments())
		}
		if err := q.Flush(9); err != nil {
			t.Fatal(err)
		}
		// What a flush covers it has written itself; the next segment's file is left.
		prepared := func() bool {
			_, err := fsys.Stat(filepath.Join(metadataDir, "next-segment.tmp"))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			return err == nil
		}
		if prepared() == apart {
			t.Fatalf("apart %v: the next file is there: %v", apart, prepared())
		}
		if apart {
			c := q.BeginChores()
			if c == nil {
				t.Fatal("nothing to do")
			}
			if err := q.EndChores(c, c.Run()); err != nil {
				t.Fatal(err)
			}
			if !prepared() {
				t.Fatal("the next file is not there")
			}
		}
		if err := q.Close(); err != nil || prepared() {
			t.Fatalf("closed: %v; the next file is there: %v", err, prepared())
		}
	}
}
