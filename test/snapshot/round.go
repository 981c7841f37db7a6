package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/test/devcluster"
)

// plan is what happens to one install.
type plan struct {
	rate    int64 // of the links, in bytes of snapshots a second; 0 is no limit
	quiet   bool  // nothing happens to the node or its leader: the epoch stays, nobody asks for a vote, no process ends
	long    bool  // it takes so long that progress must be told
	churns  bool  // metadata changes meanwhile, so that the leader drops the snapshot once nobody fetches it
	killed  bool  // the node itself is killed
	fails   bool  // it must be told that something failed on the way
	prepare func(*round)
	act     func(context.Context, *round) error
}

// round is one install.
type round struct {
	*proof
	plan    plan
	id      int32
	pod     string
	pid     int
	dir     string // of its metadata log
	end     int64  // of that when it was stopped
	size    int64  // of the leader's latest snapshot
	changes int    // bytes that are changed on the wire
	tap     *tap
	told    *told
	gate    *gate
	before  quorumState
}

// install has a node fall behind and watches it install a snapshot.
func (p *proof) install(ctx context.Context, voter bool, plan plan) (err error) {
	r := &round{proof: p, plan: plan}
	if r.id, err = p.choose(ctx, voter); err != nil {
		return err
	}
	r.pod = devcluster.SamplePod(r.id)
	if err := r.fallBehind(ctx); err != nil {
		return err
	}
	if r.tap, err = openTap(ctx, p.remote, r.pod, p.voters); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, r.tap.close())
		p.transferred += r.tap.seen.bytes
		p.downloads += r.tap.seen.downloads
		p.flipped += r.tap.seen.flipped
	}()
	r.tap.slow(plan.rate)
	if plan.prepare != nil {
		plan.prepare(r)
	}
	if r.told, err = listen(ctx, p, r.pod); err != nil {
		return err
	}
	defer r.told.close()
	began := time.Now()
	if r.pid, err = p.start(ctx, r.pod); err != nil {
		return err
	}
	if plan.act != nil {
		if err := plan.act(ctx, r); err != nil {
			return err
		}
	}
	if err := r.arrives(ctx); err != nil {
		return fmt.Errorf("%s does not come to the leader's state: %w", r.pod, err)
	}
	took := time.Since(began)
	if err := r.once(ctx); err != nil {
		return err
	}
	if err := r.same(ctx); err != nil {
		return fmt.Errorf("the state of %s is not the leader's: %w", r.pod, err)
	}
	if err := r.told.check(ctx, r); err != nil {
		return fmt.Errorf("what is told of the install: %w", err)
	}
	p.rounds++
	return p.Eventually(ctx, 60*time.Second, func(ctx context.Context) error {
		if err := p.Healthy(ctx); err != nil {
			return fmt.Errorf("after %v: %w", took, err)
		}
		return nil
	})
}

// fallBehind stops the node and changes metadata until the leader's log begins behind the node's end.
func (r *round) fallBehind(ctx context.Context) (err error) {
	if err := r.stop(ctx, r.pod); err != nil {
		return err
	}
	volume, err := r.ClaimDir(ctx, r.pod)
	if err != nil {
		return err
	}
	if r.dir, err = findMetadata(volume); err != nil {
		return err
	}
	log, err := readBatches(r.dir, 0)
	if err != nil {
		return err
	}
	names, err := snapshotFiles(r.dir)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		if r.end, _, err = endOf(names[len(names)-1]); err != nil {
			return err
		}
	}
	if len(log) > 0 {
		r.end = log[len(log)-1].next
	}
	if r.before, err = r.describe(ctx); err != nil {
		return err
	}
	if err := r.churn.connect(ctx); err != nil {
		return err
	}
	leader := devcluster.SamplePod(r.before.leader)
	var start float64
	for until := time.Now().Add(testscale.Duration(90 * time.Second)); start <= float64(r.end); {
		if time.Now().After(until) {
			return fmt.Errorf("the log of %s begins at %v after much churn, %s ends at %d", leader, start, r.pod, r.end)
		}
		if err := r.churn.step(ctx); err != nil {
			return err
		}
		if start, err = r.Metric(ctx, leader, metricLogStart); err != nil {
			return err
		}
	}
	size, err := r.Metric(ctx, leader, metricSnapshotBytes)
	if err != nil {
		return err
	}
	r.size = int64(size)
	if r.before, err = r.describe(ctx); err != nil {
		return err
	}
	r.Say("  %s stopped at offset %d; the log of leader %s begins at %.0f, its snapshot has %d bytes", r.pod, r.end, leader, start, r.size)
	return nil
}

// reach waits until the transfer is at the gate.
func (r *round) reach(ctx context.Context) error {
	timer := time.NewTimer(testscale.Duration(60 * time.Second))
	defer timer.Stop()
	select {
	case <-r.gate.reached:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.Done():
		return errors.New("the local cluster ended by itself")
	case <-timer.C:
		s, err := r.tap.look()
		return errors.Join(fmt.Errorf("only %d bytes of snapshots have passed, of %d that are awaited", s.bytes, r.gate.at), err)
	}
}

// arrives waits until the node installs nothing any more and follows the leader again.
func (r *round) arrives(ctx context.Context) error {
	var wrong error // which no time makes right
	return errors.Join(r.Eventually(ctx, 90*time.Second, func(ctx context.Context) error {
		if _, wrong = r.tap.look(); wrong != nil {
			return nil
		}
		installing, err := r.Metric(ctx, r.pod, metricInstalling)
		if err != nil {
			return err
		}
		q, err := r.describe(ctx)
		if err != nil {
			return err
		}
		if installing != 0 || q.ends[r.id] < r.before.highWatermark {
			return fmt.Errorf("it installs a snapshot (%v), its log ends at %d, committed was %d when it started", installing, q.ends[r.id], r.before.highWatermark)
		}
		return nil
	}), wrong)
}

// once checks what passed on the wire and what became of the processes.
func (r *round) once(ctx context.Context) error {
	s, err := r.tap.look()
	if err != nil {
		return err
	}
	q, err := r.describe(ctx)
	if err != nil {
		return err
	}
	installed, err := r.Metric(ctx, r.pod, metricInstalled)
	if err != nil {
		return err
	}
	r.Say("  %d bytes of %s in %d pieces, %d downloads; epoch %d, was %d; asked for %d votes, %d pre-votes",
		s.bytes, s.last.snapshot, s.pieces, s.downloads, q.epoch, r.before.epoch, s.votes, s.preVotes)
	switch {
	case !s.last.whole():
		return fmt.Errorf("%d bytes of %d of snapshot %s passed", len(s.last.content), s.last.size, s.last.snapshot)
	case !r.plan.killed && installed != 1:
		return fmt.Errorf("%s says that it installed %v snapshots, want 1", r.pod, installed)
	case s.flipped != r.changes:
		return fmt.Errorf("%d bytes were changed, want %d", s.flipped, r.changes)
	}
	left, err := partials(r.dir)
	if err != nil || len(left) > 0 {
		return errors.Join(err, fmt.Errorf("there is still %v", left))
	}
	if !r.plan.quiet {
		return nil
	}
	pid, err := r.process(ctx, r.pod, 0)
	if err != nil {
		return err
	}
	restarts, err := r.restarts(ctx, r.pod)
	switch {
	case err != nil:
		return err
	case pid != r.pid || restarts != 0:
		return fmt.Errorf("%s was restarted: process %d is now %d, %d restarts", r.pod, r.pid, pid, restarts)
	case s.downloads != 1:
		return fmt.Errorf("%s began %d downloads, want 1", r.pod, s.downloads)
	case s.votes+s.preVotes > 0:
		return fmt.Errorf("%s asked for %d votes and %d pre-votes while it installed", r.pod, s.votes, s.preVotes)
	case q.epoch != r.before.epoch || q.leader != r.before.leader:
		return fmt.Errorf("node %d leads in epoch %d, it was %d in %d", q.leader, q.epoch, r.before.leader, r.before.epoch)
	}
	return nil
}

// same compares the node with the one that sent it the snapshot, on their disks: the snapshot, which must also be what
// passed on the wire, and what both have behind it; and the configs in them with what was acknowledged.
func (r *round) same(ctx context.Context) error {
	if err := r.caughtUp(ctx, []int32{r.id}); err != nil {
		return err
	}
	s, err := r.tap.look()
	if err != nil {
		return err
	}
	volume, err := r.ClaimDir(ctx, s.last.server)
	if err != nil {
		return err
	}
	serverDir, err := findMetadata(volume)
	if err != nil {
		return err
	}
	if r.plan.churns {
		// Both have newer ones by now, of their own: sameEverywhere compares those.
		return r.sameBehind(s.last.snapshot, serverDir)
	}
	own, err := readSnapshot(r.dir, s.last.snapshot)
	if err != nil {
		return err
	}
	theirs, err := readSnapshot(serverDir, s.last.snapshot)
	if err != nil {
		return err
	}
	if !bytes.Equal(own, theirs) || !bytes.Equal(own, s.last.content) {
		return fmt.Errorf("snapshot %s: %d bytes here, %d at %s, %d on the wire, and not the same", s.last.snapshot, len(own), len(theirs), s.last.server, len(s.last.content))
	}
	r.compared += int64(len(own))
	r.Say("  the snapshot is the same %d bytes on the wire and on both disks", len(own))
	if err := r.configsOf(r.dir, s.last.snapshot); err != nil {
		return err
	}
	return r.sameBehind(s.last.snapshot, serverDir)
}

// sameBehind compares the logs of two nodes behind a snapshot.
func (r *round) sameBehind(snapshot, serverDir string) error {
	end, _, err := endOf(snapshot)
	if err != nil {
		return err
	}
	mine, err := readBatches(r.dir, end)
	if err != nil {
		return err
	}
	others, err := readBatches(serverDir, end)
	if err != nil {
		return err
	}
	if !r.plan.churns && (len(mine) == 0 || mine[0].base != end) {
		return fmt.Errorf("the log behind snapshot %s does not begin at %d", snapshot, end)
	}
	n, size, err := sameBatches(mine, others)
	if err != nil {
		return err
	}
	r.compared += size
	r.Say("  the %d batches (%d bytes) behind it are the same", n, size)
	return nil
}
