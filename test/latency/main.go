// Command latency measures from outside how fast a Partition's status follows what happens to its in-sync replica
// set. One follower after the other is cut from the leader while its heartbeats go on, and healed again. Measured are
// the time from the commit of each ISR change to the status that shows it, and the time from the last fetch of the cut
// follower to InSync=False. The commits come from a reader of the metadata log that asks the voters with Kafka's
// Fetch, the status from a plain watch of the API, the last fetch from the proxy on the link that is cut.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/highwater-io/highwater/internal/localkube"
	"github.com/highwater-io/highwater/test/devcluster"
	"github.com/highwater-io/highwater/test/workload"
)

func main() {
	changes := flag.Int("changes", 24, "how many ISR changes are measured, at least 20")
	p := &devcluster.Proof{Name: "verify-latency"}
	p.Run = func(ctx context.Context, p *devcluster.Proof) error {
		if *changes < 20 {
			return fmt.Errorf("-changes=%d: want at least 20", *changes)
		}
		return verify(ctx, p, *changes)
	}
	p.Main()
}

// commitLimit bounds commit -> status. The rest of the limits depend on replicaLagTimeMax.
const commitLimit = time.Second

const internal = "INTERNAL"

type measurement struct {
	*devcluster.Proof
	remote  *localkube.Remote
	watcher *watcher
	log     *metadataLog
	history *history
	lagMax  time.Duration
	limit   time.Duration // last fetch -> InSync=False

	shown   []time.Duration // commit -> status
	strict  []time.Duration // append -> status
	noticed []time.Duration // last fetch -> InSync=False
}

func verify(ctx context.Context, p *devcluster.Proof, changes int) error {
	m := &measurement{Proof: p, remote: localkube.Connect(p.Dir), history: &history{topic: devcluster.SamplePartition}}
	rs, err := p.ReplicaSet(ctx, devcluster.SampleReplicaSet)
	if err != nil {
		return err
	}
	if m.lagMax, err = rs.Spec.Defaults.ReplicaLagTimeMax.Parse(); err != nil {
		return err
	}
	m.limit = m.lagMax*3/2 + time.Second
	var voters []string
	for _, id := range rs.Status.Quorum.Voters {
		address, err := m.remote.PodAddress(ctx, devcluster.Namespace, devcluster.SamplePod(id), "controller")
		if err != nil {
			return err
		}
		voters = append(voters, address)
	}
	if m.log, err = openMetadataLog(voters, m.history.add); err != nil {
		return err
	}
	own, err := p.NewClient()
	if err != nil {
		return err
	}
	m.watcher = &watcher{client: own, name: devcluster.SamplePartition}
	running, stop := context.WithCancel(ctx)
	defer stop()
	go m.log.run(running)
	go m.watcher.run(running)

	seeds, err := p.Bootstrap(ctx, devcluster.SampleReplicaSet)
	if err != nil {
		return err
	}
	producer, err := workload.Start(seeds, devcluster.SamplePartition, 20*time.Millisecond)
	if err != nil {
		return err
	}
	defer func() { _ = producer.Stop(ctx) }()
	if err := m.waitFor(ctx, 30*time.Second, func() error {
		if m.history.latest() < 0 {
			return fmt.Errorf("the reader of the metadata log has not found the partition: %w", m.log.lastErr())
		}
		return nil
	}); err != nil {
		return err
	}
	p.Say("replicaLagTimeMax %v; %d ISR changes, reading the metadata log from %s", m.lagMax, changes, strings.Join(voters, ", "))
	began := time.Now()
	for round := 0; len(m.shown) < changes; round++ {
		if err := m.round(ctx, round); err != nil {
			return err
		}
	}
	return m.report(began)
}

// round cuts one follower and heals it.
func (m *measurement) round(ctx context.Context, round int) error {
	p, err := m.Partition(ctx, devcluster.SamplePartition)
	if err != nil {
		return err
	}
	leader := *p.Status.Leader
	followers := slices.DeleteFunc(slices.Sorted(slices.Values(p.Status.Assignment)), func(id int32) bool { return id == leader })
	follower := followers[round%len(followers)]
	from, to := devcluster.SamplePod(follower), devcluster.SamplePod(leader)
	fault := func(action string) error {
		return m.remote.Fault(ctx, localkube.FaultRequest{Action: action, From: from, To: to, Listener: internal})
	}
	// Where in the leader's period of lagMax/2 the cut falls must not depend on the round before.
	pause := time.NewTimer(rand.N(m.lagMax / 2))
	select {
	case <-ctx.Done():
		pause.Stop()
		return ctx.Err()
	case <-pause.C:
	}
	before := m.history.latest()
	cut := time.Now()
	if err := fault("cut"); err != nil {
		return err
	}
	var status seen
	if err := m.waitFor(ctx, 6*m.limit, func() (err error) {
		var ok bool
		if status, ok = m.watcher.first(cut, func(s seen) bool { return s.inSync == metav1.ConditionFalse }); !ok {
			return errors.New("the status does not say InSync=False")
		}
		return nil
	}); err != nil {
		return err
	}
	fetched, err := m.remote.LastPassed(ctx, from, to, internal)
	if err != nil {
		return err
	}
	if fetched.IsZero() || fetched.After(status.at) {
		return fmt.Errorf("the proxy says that node %d last fetched at %v, though it was cut at %v", follower, fetched, cut)
	}
	noticed := status.at.Sub(fetched)
	m.noticed = append(m.noticed, noticed)
	shrunk, err := m.match(ctx, before, func(isr []int32) bool { return !slices.Contains(isr, follower) })
	if err != nil {
		return err
	}
	healed := time.Now()
	if err := fault("heal"); err != nil {
		return err
	}
	grown, err := m.match(ctx, shrunk.epoch, func(isr []int32) bool { return slices.Contains(isr, follower) })
	if err != nil {
		return err
	}
	m.Say("  follower %d cut: last fetch -> InSync=False %s; commit of the shrink -> status %s; healed: commit of the growth after %s, -> status %s",
		follower, millis(noticed), millis(shrunk.took), millis(grown.change.at.Sub(healed)), millis(grown.took))
	return m.waitFor(ctx, 60*time.Second, func() error { return m.Healthy(ctx) })
}

// matched is an ISR change with the status that showed it.
type matched struct {
	epoch  int32
	change isrChange
	took   time.Duration
}

// match waits for the next ISR change after an epoch, which must be as expected, and for the status that shows it.
// Every change is measured, also one that was not meant.
func (m *measurement) match(ctx context.Context, after int32, expected func(isr []int32) bool) (matched, error) {
	var out matched
	for {
		err := m.waitFor(ctx, 6*m.limit, func() error {
			change, ok := m.history.next(after)
			if !ok {
				return fmt.Errorf("no ISR change after partition epoch %d in the metadata log: %w", after, m.log.lastErr())
			}
			status, ok := m.watcher.first(time.Time{}, func(s seen) bool { return s.epoch >= change.epoch })
			if !ok {
				return fmt.Errorf("the status does not show partition epoch %d", change.epoch)
			}
			if status.epoch == change.epoch && !slices.Equal(status.isr, change.isr) {
				return fmt.Errorf("the status shows ISR %v for partition epoch %d, committed is %v", status.isr, change.epoch, change.isr)
			}
			out = matched{change.epoch, change, max(0, status.at.Sub(change.at))}
			m.shown = append(m.shown, out.took)
			m.strict = append(m.strict, status.at.Sub(change.appended))
			return nil
		})
		if err != nil || expected(out.change.isr) {
			return out, err
		}
		m.Say("  another ISR change: %v in partition epoch %d, -> status %s", out.change.isr, out.epoch, millis(out.took))
		after = out.epoch
	}
}

// waitFor waits for a condition, which is asked often: it decides about nothing that is measured.
func (m *measurement) waitFor(ctx context.Context, within time.Duration, check func() error) error {
	return m.Eventually(ctx, within, func(context.Context) error {
		if err := m.watcher.failed(); err != nil {
			return fmt.Errorf("the watch broke: %w", err)
		}
		return check()
	})
}

func (m *measurement) report(began time.Time) error {
	fmt.Printf("\n  %-46s %5s %9s %9s %9s %9s\n", "", "n", "p50", "p99", "max", "limit")
	row := func(what string, times []time.Duration, limit string) {
		slices.Sort(times)
		fmt.Printf("  %-46s %5d %9s %9s %9s %9s\n", what, len(times), millis(quantile(times, 50)), millis(quantile(times, 99)), millis(times[len(times)-1]), limit)
	}
	row("commit of an ISR change -> status", m.shown, millis(commitLimit))
	row("  counted from its append to the leader's log", m.strict, "")
	row("last fetch of the cut follower -> InSync=False", m.noticed, millis(m.limit))
	fenced := m.history.fencedSince(began)
	fmt.Printf("  nodes fenced meanwhile: %v\n", fenced)
	var errs []error
	if slowest := m.shown[len(m.shown)-1]; slowest >= commitLimit {
		errs = append(errs, fmt.Errorf("a status came %v after the commit, the limit is %v", slowest, commitLimit))
	}
	if slowest := m.noticed[len(m.noticed)-1]; slowest > m.limit {
		errs = append(errs, fmt.Errorf("InSync=False came %v after the last fetch, the limit is %v", slowest, m.limit))
	}
	if len(fenced) > 0 {
		errs = append(errs, fmt.Errorf("nodes %v were fenced: it was not only the link that was cut", fenced))
	}
	return errors.Join(errs...)
}

// quantile is the smallest of sorted times that at least percent of them do not exceed.
func quantile(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)*percent+99)/100-1]
}

func millis(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
