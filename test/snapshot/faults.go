package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/internal/localkube"
	"github.com/highwater-io/highwater/test/devcluster"
)

// stopSomewhere has the transfer stop at a random byte.
func (p *proof) stopSomewhere(r *round) { r.gate = r.tap.await(1+p.random.Int64N(r.size*9/10), true) }

// killLeader kills the leader when the transfer stops.
func (p *proof) killLeader(ctx context.Context, r *round) error {
	g := r.gate
	if err := r.reach(ctx); err != nil {
		return err
	}
	if _, err := localkube.Signal(p.Dir, g.server, localkube.Kill); err != nil {
		return err
	}
	p.Say("  %s killed after %d of about %d bytes", g.server, g.at, r.size)
	r.tap.open()
	return nil
}

// killOperator kills the operator once it has told that the node installs; the next one leads when its lease has ended,
// and has to tell the rest.
func (p *proof) killOperator(ctx context.Context, r *round) error {
	if err := r.Eventually(ctx, 20*time.Second, func(context.Context) error { return r.told.begun() }); err != nil {
		return err
	}
	s, err := r.tap.look()
	if err != nil {
		return err
	}
	if _, err := localkube.Signal(p.Dir, "operator", localkube.Kill); err != nil {
		return err
	}
	p.Say("  the operator killed after %d of about %d bytes", s.bytes, r.size)
	return nil
}

// changeBytes has a byte changed in each of three downloads.
func (p *proof) changeBytes(r *round) {
	r.changes = 3
	r.tap.flip(p.random.Int64N(r.size*9/10), p.random.Int64N(r.size*9/10), p.random.Int64N(r.size*9/10))
}

// changeOn changes metadata until the snapshot is there, so that the leader has newer ones by then. It must keep the one
// that is being fetched, and the log behind it; and the node must serve nobody meanwhile.
func (p *proof) changeOn(ctx context.Context, r *round) error {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	steps := 0
	for {
		s, err := r.tap.look()
		if err != nil {
			return err
		}
		if s.last.whole() {
			p.Say("  %d changes of metadata meanwhile", steps)
			return nil
		}
		rs, err := p.ReplicaSet(ctx, devcluster.SampleReplicaSet)
		if err != nil {
			return err
		}
		for _, n := range rs.Status.Nodes {
			if n.ID == r.id && n.State == hwv1alpha1.NodeUnfenced {
				return fmt.Errorf("%s is unfenced with %d bytes of %d of its snapshot", r.pod, len(s.last.content), s.last.size)
			}
		}
		if err := p.churn.step(ctx); err != nil {
			return err
		}
		steps++
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-p.Done():
			return errors.New("the local cluster ended by itself")
		}
	}
}

// killInstaller kills the installing node at a random byte, with the transfer stopped there or as it goes on, or within
// some ten milliseconds of its end; sometimes once more, in the download that begins then.
func (p *proof) killInstaller(ctx context.Context, seed uint64) error {
	p.reseed(seed)
	voter, first, second := seed%2 == 0, p.drawMoment(), p.drawMoment()
	twice := !first.whole() && p.random.IntN(3) == 0
	return p.install(ctx, voter, plan{
		rate: 8_000_000, killed: true,
		prepare: func(r *round) { r.arm(first) },
		act: func(ctx context.Context, r *round) error {
			if !twice {
				return r.killAt(ctx, first, nil)
			}
			if err := r.killAt(ctx, first, &second); err != nil {
				return err
			}
			return r.killAt(ctx, second, nil)
		},
	})
}

// moment is when a node is killed.
type moment struct {
	share float64       // of the snapshot that has passed
	late  time.Duration // after the whole of it
	shut  bool          // nothing more passes
}

func (m moment) whole() bool { return m.share >= 1 }

func (p *proof) drawMoment() moment {
	m := moment{share: min(1, p.random.Float64()*1.2), shut: p.random.IntN(2) == 0}
	if late := time.Duration(p.random.Int64N(int64(40 * time.Millisecond))); m.whole() {
		m.late, m.shut = late, false
	}
	return m
}

// arm makes the tap tell when it is time.
func (r *round) arm(m moment) {
	if m.whole() {
		r.gate = r.tap.awaitWhole()
	} else {
		r.gate = r.tap.await(int64(m.share*float64(r.size)), m.shut)
	}
}

// killAt kills the node when it is time, and waits for its next process, which next is armed for.
func (r *round) killAt(ctx context.Context, m moment, next *moment) error {
	if err := r.reach(ctx); err != nil {
		return err
	}
	if m.late > 0 && !r.tap.pause(m.late) {
		return ctx.Err()
	}
	pids, err := localkube.Signal(r.Dir, r.pod, localkube.Kill)
	if err != nil || len(pids) != 1 || pids[0] != r.pid {
		return errors.Join(err, fmt.Errorf("processes %v of %s were killed, it was %d", pids, r.pod, r.pid))
	}
	r.tap.open()
	if next != nil {
		r.arm(*next)
	}
	r.killed++
	r.Say("  %s killed after %d of about %d bytes (the transfer stopped: %t; %v later)",
		r.pod, int64(m.share*float64(r.size)), r.size, m.shut, m.late.Round(time.Millisecond))
	r.pid, err = r.process(ctx, r.pod, r.pid)
	return err
}
