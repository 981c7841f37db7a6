package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/internal/localkube"
	"github.com/highwater-io/highwater/pkg/nodefact"
	"github.com/highwater-io/highwater/test/devcluster"
)

// full fills the volume but for so many bytes; the node keeps a twentieth of it free.
func (p *proof) full(ctx context.Context, v *victim, free int64) error {
	if err := v.moveIn(ctx, volumeBytes); err != nil {
		return err
	}
	file, err := v.fill(free)
	if err != nil {
		return err
	}
	if err := p.offline(ctx, v, nodefact.DiskFull); err != nil {
		return err
	}
	if err := os.Remove(file); err != nil {
		return err
	}
	return p.backByItself(ctx, v)
}

// nearlyFull leaves less than the node keeps free.
func (p *proof) nearlyFull(ctx context.Context, v *victim) error {
	return p.full(ctx, v, volumeBytes/40)
}

func (p *proof) toTheLastByte(ctx context.Context, v *victim) error { return p.full(ctx, v, 0) }

func (p *proof) readOnly(ctx context.Context, v *victim) error {
	if err := v.moveIn(ctx, volumeBytes); err != nil {
		return err
	}
	if err := v.fault(); err != nil {
		return fmt.Errorf("%w: the kernel's switch for errors of ext4: %w", devcluster.ErrNotRun, err)
	}
	// A sync that the kernel refuses counts as one that failed: then nobody knows what the disk has.
	if err := p.offline(ctx, v, nodefact.ReadOnly, nodefact.IOError); err != nil {
		return err
	}
	// The node, which has its metadata there too, has closed everything: the volume can be unmounted under it.
	if err := p.Eventually(ctx, 60*time.Second, v.repair); err != nil {
		return err
	}
	p.Say("  the volume is checked and mounted again")
	if reason, err := p.reason(ctx, v); err != nil || reason == nodefact.IOError {
		p.Say("  it was a sync that failed: somebody has to restart the node")
		if err := v.restart(ctx); err != nil {
			return err
		}
		return p.whole(ctx, v)
	}
	return p.backByItself(ctx, v)
}

// thinBytes is what there is below a thin volume.
const thinBytes = 48 << 20

func (p *proof) failing(ctx context.Context, v *victim) error {
	if err := v.thin(ctx, thinBytes); err != nil {
		return err
	}
	// Without a journal the file system goes on, as the most dangerous ones do: only the sync tells.
	if err := v.moveIn(ctx, volumeBytes, "-O", "^has_journal"); err != nil {
		return err
	}
	// Somebody uses up what is below the volume.
	ballast, err := (&volume{at: v.backing}).fill(0)
	if err != nil {
		return err
	}
	if err := p.offline(ctx, v, nodefact.IOError); err != nil {
		return err
	}
	if err := os.Remove(ballast); err != nil {
		return err
	}
	if err := v.grow(ctx, 2*volumeBytes); err != nil {
		return err
	}
	// Now every write would succeed, and a second sync too. The node must not believe it.
	if err := p.staysOffline(ctx, v, 40*time.Second); err != nil {
		return err
	}
	p.Say("  it does not come back by itself; the volume is checked and the node restarted by hand")
	if err := p.Eventually(ctx, 60*time.Second, func(ctx context.Context) error {
		_, _ = localkube.Signal(v.Dir, v.pod, localkube.Kill) // none may run just now
		return v.repair(ctx)
	}); err != nil {
		return err
	}
	if err := v.restart(ctx); err != nil {
		return err
	}
	return p.whole(ctx, v)
}

// offline waits until everybody says that the node's disk is gone and others lead, and sees that writes go on.
func (p *proof) offline(ctx context.Context, v *victim, reasons ...string) error {
	from := time.Now()
	var reason string
	err := p.Eventually(ctx, 60*time.Second, func(ctx context.Context) (err error) {
		if reason, err = p.reason(ctx, v); err == nil && !slices.Contains(reasons, reason) {
			err = fmt.Errorf("reason %q, want %v", reason, reasons)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("the node's metrics: %w", err)
	}
	p.Say("  %s says that its data directory is offline: %s, after %v", v.pod, reason, time.Since(from).Round(100*time.Millisecond))
	err = p.Eventually(ctx, 60*time.Second, func(ctx context.Context) error {
		partition, err := p.Partition(ctx, devcluster.SamplePartition)
		if err != nil {
			return err
		}
		if s := partition.Status; s.Leader == nil || *s.Leader < 0 || *s.Leader == v.id || slices.Contains(s.ISR, v.id) {
			return fmt.Errorf("the partition has the leader %v and the ISR %v", s.Leader, s.ISR)
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.Say("  another node leads, after %v", time.Since(from).Round(100*time.Millisecond))
	acked, _ := p.producer.Acked()
	err = p.Eventually(ctx, 60*time.Second, func(context.Context) error {
		if now, _ := p.producer.Acked(); now < acked+100 {
			return fmt.Errorf("%d records were acknowledged since, want 100", now-acked)
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.Say("  writes go on, after %v", time.Since(from).Round(100*time.Millisecond))
	err = p.Eventually(ctx, 60*time.Second, func(ctx context.Context) error {
		node, err := p.node(ctx, v.id)
		if err == nil && (node.LogDir != hwv1alpha1.LogDirOffline || node.LogDirReason != reason) {
			err = fmt.Errorf("the ReplicaSet's status has %q %q of node %d", node.LogDir, node.LogDirReason, v.id)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := p.toldOffline(ctx, v, reason); err != nil {
		return err
	}
	p.Say("  the ReplicaSet says so too, after %v", time.Since(from).Round(100*time.Millisecond))
	return p.alive(v)
}

// alive checks that nobody has restarted the node, which would change nothing.
func (p *proof) alive(v *victim) error {
	pids, err := localkube.Signal(v.Dir, v.pod, 0)
	if err == nil && !slices.Equal(pids, v.ran) {
		err = fmt.Errorf("processes %v of %s are now %v: it was restarted", v.ran, v.pod, pids)
	}
	return err
}

func (p *proof) staysOffline(ctx context.Context, v *victim, long time.Duration) error {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	if reason, err := p.reason(ctx, v); err != nil || reason == "" {
		return fmt.Errorf("the node came back: %q, %w", reason, err)
	}
	return p.alive(v)
}

func (p *proof) backByItself(ctx context.Context, v *victim) error {
	if err := p.whole(ctx, v); err != nil {
		return err
	}
	return p.alive(v)
}

// whole waits until the node serves from its directory and is in the ISR again, and everything is healthy.
func (p *proof) whole(ctx context.Context, v *victim) error {
	from := time.Now()
	err := p.Eventually(ctx, 120*time.Second, func(ctx context.Context) error {
		if reason, err := p.reason(ctx, v); err != nil || reason != "" {
			return fmt.Errorf("the directory of %s is offline: %s, %w", v.pod, reason, err)
		}
		if node, err := p.node(ctx, v.id); err != nil || node.LogDir != hwv1alpha1.LogDirOnline {
			return fmt.Errorf("the ReplicaSet's status has %q of node %d, %w", node.LogDir, v.id, err)
		}
		return p.Healthy(ctx)
	})
	if err == nil {
		err = p.toldOnline(ctx, v)
	}
	if err == nil {
		p.Say("  %s is in the ISR, after %v", v.pod, time.Since(from).Round(100*time.Millisecond))
	}
	return err
}

// reason asks the node itself what its data directory is offline for; "" when it is not.
func (p *proof) reason(ctx context.Context, v *victim) (string, error) {
	body, err := p.Metrics(ctx, v.pod)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), `highwater_log_dir_offline_reason{reason="`); ok && strings.HasSuffix(rest, `"} 1`) {
			return strings.TrimSuffix(rest, `"} 1`), nil
		}
	}
	if !strings.Contains(body, "\nhighwater_log_dir_offline 0\n") {
		return "", fmt.Errorf("the metrics of %s say nothing of the data directory", v.pod)
	}
	return "", nil
}
