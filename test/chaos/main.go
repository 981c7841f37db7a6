// Command chaos kills processes of a cluster (voters, data nodes, the operator) with SIGKILL at random moments, one at
// a time and without waiting for health in between, while a producer writes with acks=all. Then everything must become
// ready by itself, each acknowledged record must be there once, in order, where the acknowledgement said, and what a
// consumer read meanwhile must still be there.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/highwater-io/highwater/internal/localkube"
	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/test/devcluster"
	"github.com/highwater-io/highwater/test/workload"
)

func main() {
	var c chaos
	flag.IntVar(&c.kills, "kills", 20, "how many processes are killed")
	flag.Uint64Var(&c.seed, "seed", 0, "of the random choices; 0 draws one")
	flag.DurationVar(&c.pause, "pause", 3*time.Second, "mean time between kills")
	flag.DurationVar(&c.interval, "interval", 5*time.Millisecond, "one record is produced every so often")
	p := &devcluster.Proof{Name: "chaos-smoke"}
	p.Run = func(ctx context.Context, p *devcluster.Proof) error {
		c.Proof = p
		return c.run(ctx)
	}
	p.Main()
}

type chaos struct {
	*devcluster.Proof
	kills           int
	seed            uint64
	pause, interval time.Duration
	random          *rand.Rand
	killed          map[string]map[int]bool // name -> pids that were killed
}

// operator is the operator's name among the local cluster's processes.
const operator = "operator"

func (c *chaos) run(ctx context.Context) error {
	if c.seed == 0 {
		c.seed = uint64(time.Now().UnixNano())
	}
	c.random, c.killed = rand.New(rand.NewPCG(c.seed, 0)), map[string]map[int]bool{}
	victims, err := c.victims(ctx)
	if err != nil {
		return err
	}
	seeds, err := c.Bootstrap(ctx, devcluster.SampleReplicaSet)
	if err != nil {
		return err
	}
	c.Say("SEED=%d: %d kills among %v; a record every %v, acks=all, idempotent", c.seed, c.kills, victims, c.interval)
	producer, err := workload.Start(seeds, devcluster.SamplePartition, c.interval)
	if err != nil {
		return err
	}
	consumer, err := workload.StartConsumer(seeds, devcluster.SamplePartition)
	if err != nil {
		return err
	}
	err = c.killAll(ctx, victims, producer)
	if err == nil {
		err = c.recovers(ctx)
	}
	return errors.Join(err, c.verify(ctx, producer, consumer, seeds))
}

// victims are all pods and the operator.
func (c *chaos) victims(ctx context.Context) ([]string, error) {
	rs, err := c.ReplicaSet(ctx, devcluster.SampleReplicaSet)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, n := range rs.Status.Nodes {
		names = append(names, n.Pod)
	}
	if want := int(rs.Spec.Replicas) + len(rs.Status.Quorum.Voters); len(names) != want {
		return nil, fmt.Errorf("the ReplicaSet's status names pods %v, want %d", names, want)
	}
	return append(names, operator), nil
}

func (c *chaos) killAll(ctx context.Context, victims []string, producer *workload.Producer) error {
	for kill := 1; kill <= c.kills; {
		pause := min(time.Duration(c.random.ExpFloat64()*float64(c.pause)), 5*c.pause)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-c.Done():
			return errors.New("the local cluster ended by itself")
		case <-timer.C:
		}
		victim := victims[c.random.IntN(len(victims))]
		pids, err := localkube.Signal(c.Dir, victim, localkube.Kill)
		if err != nil || len(pids) == 0 {
			// It was killed just now and waits to be started again: another one, at another moment.
			continue
		}
		if c.killed[victim] == nil {
			c.killed[victim] = map[int]bool{}
		}
		for _, pid := range pids {
			c.killed[victim][pid] = true
		}
		acked, last := producer.Acked()
		c.Say("  kill %2d of %d: %s (process %d); %d records acknowledged, the last %v ago",
			kill, c.kills, victim, pids[0], acked, time.Since(last).Round(time.Millisecond))
		kill++
	}
	return nil
}

// recovers waits until everything is healthy by itself.
func (c *chaos) recovers(ctx context.Context) error {
	if err := c.Eventually(ctx, 180*time.Second, func(context.Context) error { return c.restarted() }); err != nil {
		return err
	}
	c.Say("every killed process runs again")
	// Until an operator leads, the status is what it was before the kills.
	mark := time.Now()
	if err := c.Eventually(ctx, 90*time.Second, func(ctx context.Context) error { return c.operatorLeads(ctx, mark) }); err != nil {
		return err
	}
	c.Say("an operator leads")
	var since time.Time
	err := c.Eventually(ctx, 180*time.Second, func(ctx context.Context) error {
		if err := c.Healthy(ctx); err != nil {
			since = time.Time{}
			return err
		}
		if since.IsZero() {
			since = time.Now()
		}
		if steady := time.Since(since); steady < steadyFor {
			return fmt.Errorf("everything is healthy, but only since %v", steady)
		}
		return nil
	})
	if err == nil {
		c.Say("everything is Ready and in sync, and was so for %v", steadyFor)
	}
	return err
}

// steadyFor is how long everything must stay healthy: an operator that just began to lead writes its first status
// after it has caught up with the metadata log.
const steadyFor = 10 * time.Second

// restarted checks that the killed processes are gone and that others run in their place: else nothing was shown.
func (c *chaos) restarted() error {
	for _, victim := range slices.Sorted(maps.Keys(c.killed)) {
		pids, err := localkube.Signal(c.Dir, victim, 0)
		if err != nil {
			return fmt.Errorf("%s was killed and does not run again: %w", victim, err)
		}
		for _, pid := range pids {
			if c.killed[victim][pid] {
				return fmt.Errorf("process %d of %s survived SIGKILL", pid, victim)
			}
		}
	}
	return nil
}

// operatorLeads checks that the operator's Lease was renewed after a time.
func (c *chaos) operatorLeads(ctx context.Context, after time.Time) error {
	var leases coordinationv1.LeaseList
	if err := c.Client.List(ctx, &leases, client.InNamespace("highwater-system")); err != nil {
		return err
	}
	for _, lease := range leases.Items {
		if lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(after) {
			return nil
		}
	}
	return errors.New("no operator has renewed its Lease")
}

func (c *chaos) verify(ctx context.Context, producer *workload.Producer, consumer *workload.Consumer, seeds []string) error {
	c.Say("stop writing and read everything back")
	ctx, cancel := context.WithTimeout(ctx, testscale.Duration(2*time.Minute))
	defer cancel()
	if err := producer.Stop(ctx); err != nil {
		return err
	}
	report, err := producer.Verify(ctx, seeds)
	if err != nil {
		return err
	}
	followed, retracted := consumer.Stop(report.Records)
	fmt.Printf("\n  SEED=%d %s; a consumer read %d meanwhile\n", c.seed, report, followed)
	if report.Acked == 0 {
		return errors.New("nothing was acknowledged")
	}
	if followed == 0 {
		return errors.New("the consumer read nothing")
	}
	return errors.Join(report.Err(), report.Failed, retracted)
}
