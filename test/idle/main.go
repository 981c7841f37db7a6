// Command idle shows that the operator writes nothing while nothing changes: it reads the API server's audit log over
// some minutes of quiet, while records may be produced. Leases are renewed, and are the only exception.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/highwater-io/highwater/test/devcluster"
	"github.com/highwater-io/highwater/test/workload"
)

func main() {
	minutes := flag.Float64("minutes", 2, "how long nothing may be written")
	load := flag.Bool("load", false, "produce records meanwhile: offsets move, but nothing that a status shows does")
	p := &devcluster.Proof{Name: "e2e-idle", Options: devcluster.Options{AuditLog: "audit.log"}}
	p.Run = func(ctx context.Context, p *devcluster.Proof) error {
		return idle(ctx, p, time.Duration(*minutes*float64(time.Minute)), *load)
	}
	p.Main()
}

// settle is what may follow readiness: the permit to format is withdrawn, the last events are written.
const settle = 20 * time.Second

func idle(ctx context.Context, p *devcluster.Proof, quiet time.Duration, load bool) error {
	if load {
		seeds, err := p.Bootstrap(ctx, devcluster.SampleReplicaSet)
		if err != nil {
			return err
		}
		producer, err := workload.Start(seeds, devcluster.SamplePartition, 20*time.Millisecond)
		if err != nil {
			return err
		}
		defer func() { _ = producer.Stop(ctx) }()
	}
	p.Say("settling for %v", settle)
	if err := wait(ctx, settle); err != nil {
		return err
	}
	// What this program itself asks marks the ends of the time in the log, and shows that the log is alive.
	from, err := mark(ctx, p, "begin")
	if err != nil {
		return err
	}
	p.Say("watching the audit log for %v", quiet)
	for left := quiet; left > 0; left -= 15 * time.Second {
		if err := wait(ctx, min(left, 15*time.Second)); err != nil {
			return err
		}
		if err := p.Healthy(ctx); err != nil {
			return fmt.Errorf("it is not quiet: %w", err)
		}
		p.Say("  %v to go", max(0, left-15*time.Second).Round(time.Second))
	}
	to, err := mark(ctx, p, "end")
	if err != nil {
		return err
	}
	var t tally
	err = p.Eventually(ctx, 30*time.Second, func(context.Context) (err error) {
		t, err = read(p.Options.AuditLog, from, to)
		return err
	})
	if err != nil {
		return err
	}
	t.print()
	return t.verdict()
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// mark asks for an object that isn't there, whose name is then found in the audit log.
func mark(ctx context.Context, p *devcluster.Proof, name string) (string, error) {
	name = fmt.Sprintf("idle-%s-%d", name, time.Now().UnixNano())
	_, err := p.Kubectl(ctx, "get", "configmap", name, "--ignore-not-found")
	return name, err
}
