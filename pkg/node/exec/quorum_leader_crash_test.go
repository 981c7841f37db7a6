package exec_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// ruled is what a sole voter has made others rely on: in which epochs it led, and up to where it committed.
type ruled struct {
	led       map[ident.Epoch]bool
	committed ident.Offset
}

func leaderConfig(fsys vfs.FS) exec.QuorumConfig {
	cfg := quorumConfig(fsys, 7)
	cfg.Log.Settings = log.Settings{SegmentBytes: 400} // so that segments begin on the way, too
	return cfg
}

// leaderLife is what happens to a voter that is alone: it leads, appends and commits, moves to another address, starts
// again, and leads the next epoch.
func leaderLife(fsys vfs.FS, m *ruled) error {
	for life := range 2 {
		cfg := leaderConfig(fsys)
		if life > 0 {
			cfg.Raft.Endpoints = []raft.Endpoint{{Name: "CONTROLLER", Host: "elsewhere", Port: 1}}
		}
		q, _, err := exec.OpenQuorum(cfg)
		if err != nil {
			return err
		}
		now := ident.Instant(0)
		do := func(f func(now ident.Instant) error) {
			now++
			if err != nil {
				return
			}
			if err = f(now); err != nil {
				return
			}
			var out exec.QuorumOutput
			q.Drain(&out)
			if out.Leading != nil {
				m.led[out.Leading.Epoch] = true
			}
			m.committed = max(m.committed, q.HighWatermark())
		}
		do(q.Start)
		do(q.Flush)
		for n := range 4 {
			do(func(now ident.Instant) error {
				_, err := q.Propose(now, q.Core().Epoch(), topicBatch(10*life+n))
				return err
			})
			do(q.Flush)
		}
		if err != nil {
			return err
		}
		if err := q.Close(); err != nil {
			return err
		}
	}
	return nil
}

// A power cut, and an error of the disk, at every operation of a leader's life: what it committed is there, and it
// leads no epoch twice (KAFKA-10661).
func TestLeaderKeepsWhatItCommittedWhateverTheDiskDoes(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 11))
	for _, power := range []bool{true, false} {
		for at := 0; ; at++ {
			fsys := formatted(t, 7)
			m := &ruled{led: map[ident.Epoch]bool{}, committed: ident.UnknownOffset}
			disk := &failing{at: at, forGood: power}
			err := leaderLife(disk.over(fsys), m)
			ended, where := disk.ended(t, 20, err)
			if ended {
				if len(m.led) != 2 || m.committed < 12 {
					t.Fatalf("%+v", m)
				}
				break
			}
			where = fmt.Sprintf("power cut %v at %s", power, where)
			for _, keep := range []int{0, 50, 100} {
				clone := fsys.CrashClone(rng, keep)
				q, _, err := exec.OpenQuorum(leaderConfig(clone))
				if err != nil {
					t.Fatalf("%s, %d%% kept: %v", where, keep, err)
				}
				if q.EndOffset() < m.committed {
					t.Fatalf("%s, %d%% kept: log to %d, committed was %d", where, keep, q.EndOffset(), m.committed)
				}
				if err := errors.Join(q.Start(1), q.Flush(1)); err != nil {
					t.Fatalf("%s, %d%% kept: %v", where, keep, err)
				}
				if q.Core().Role() != raft.Leader || m.led[q.Core().Epoch()] || q.HighWatermark() <= m.committed {
					t.Fatalf("%s, %d%% kept: %s of epoch %d, high watermark %d; before %+v", where, keep, q.Core().Role(), q.Core().Epoch(), q.HighWatermark(), m)
				}
				if got := follow(t, q, emptyLoader()).Image(); m.committed > 4 && got.NumTopics() == 0 {
					t.Fatalf("%s, %d%% kept: no topics", where, keep)
				}
			}
		}
	}
}
