package exec

import (
	"errors"
	"strings"
	"testing"

	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// rolls opens another log, with segments that two records fill.
func (r *rig) rolls(apart bool) {
	r.t.Helper()
	if err := r.Close(r.now); err != nil {
		r.t.Fatal(err)
	}
	r.cfg.ChoresApart, r.cfg.Dir = apart, "/data/u-0"
	r.cfg.Log.Settings = log.Settings{SegmentBytes: 600}
	r.open()
	r.role(1, 3, 1)
}

func (r *rig) has(name string) bool {
	_, err := r.mem.Stat("/data/u-0/" + name)
	return err == nil
}

func (r *rig) put() {
	r.t.Helper()
	if p := r.produce(1, records(strings.Repeat("x", 200)).Build()); p.Code != replication.None {
		r.t.Fatal(p)
	}
}

func TestDrainDoesTheChoresUnlessTheyAreRunApart(t *testing.T) {
	const index = "00000000000000000000.index"
	for _, apart := range []bool{false, true} {
		r := newRig(t, 1, false)
		r.rolls(apart)
		for range 3 {
			r.put()
		}
		if len(r.Log().Segments()) < 2 {
			t.Fatalf("segments %v", r.Log().Segments())
		}
		if r.out.Chores != apart || r.has(index) == apart {
			t.Fatalf("apart %v: chores wanted %v, index there %v", apart, r.out.Chores, r.has(index))
		}
		if !apart {
			continue
		}
		c := r.BeginChores()
		if c == nil || r.BeginChores() != nil || r.drain().Chores {
			t.Fatal("chores begin twice, or not at all")
		}
		r.EndChores(r.now, c, c.Run())
		if out := r.drain(); out.Failed != nil || !r.has(index) {
			t.Fatalf("failed %v, index there %v", out.Failed, r.has(index))
		}
	}
}

func TestAFailedChoreTakesTheDirectoryOutOfService(t *testing.T) {
	disk := errors.New("input/output error")
	for _, apart := range []bool{false, true} {
		r := newRig(t, 1, false)
		r.rolls(apart)
		r.put()
		r.fault = func(op, path string) error {
			if op == vfs.OpCreate && strings.HasSuffix(path, ".index") {
				return disk
			}
			return nil
		}
		var failed error
		for range 3 {
			r.Produce(r.now, replication.Produce{Token: 7, Acks: 1}, records(strings.Repeat("x", 200)).Build())
			if apart {
				if c := r.BeginChores(); c != nil {
					r.EndChores(r.now, c, c.Run())
				}
			}
			if out := r.drain(); out.Failed != nil {
				failed = out.Failed
			}
		}
		if !errors.Is(failed, disk) || r.Core().Role() != replication.Failed {
			t.Errorf("apart %v: failed %v, role %v", apart, failed, r.Core().Role())
		}
	}
}
