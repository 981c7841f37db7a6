package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/test/devcluster"
)

// sameEverywhere has every node take a snapshot of its own, from what it has in memory. Each must be, byte for byte, what
// the leader's disk tells of that position; and each node's disk must tell the configs that were acknowledged.
func (p *proof) sameEverywhere(ctx context.Context) error {
	q, err := p.describe(ctx)
	if err != nil {
		return err
	}
	nodes := slices.Concat(p.voterIDs, p.observerIDs)
	dirs := map[int32]string{}
	for _, id := range nodes {
		volume, err := p.ClaimDir(ctx, devcluster.SamplePod(id))
		if err != nil {
			return err
		}
		if dirs[id], err = findMetadata(volume); err != nil {
			return err
		}
	}
	newest := map[int32]string{}
	err = p.Eventually(ctx, 60*time.Second, func(ctx context.Context) error {
		for _, id := range nodes {
			names, err := snapshotFiles(dirs[id])
			if err != nil {
				return err
			}
			if len(names) > 0 {
				newest[id] = names[len(names)-1]
			}
			if end, _, _ := endOf(newest[id]); end <= q.highWatermark {
				return errors.Join(p.churn.step(ctx), fmt.Errorf("the latest snapshot of node %d is %s, committed were %d", id, newest[id], q.highWatermark))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := p.caughtUp(ctx, nodes); err != nil {
		return err
	}
	for _, id := range nodes {
		own, err := readSnapshot(dirs[id], newest[id])
		if err != nil {
			return err
		}
		want, err := replayTo(dirs[q.leader], newest[id])
		if err != nil {
			return fmt.Errorf("replay the leader's log to %s: %w", newest[id], err)
		}
		if !bytes.Equal(own, want) {
			return fmt.Errorf("snapshot %s of node %d, %d bytes, is not what the leader's log tells, %d bytes", newest[id], id, len(own), len(want))
		}
		if err := p.configsOf(dirs[id], newest[id]); err != nil {
			return fmt.Errorf("node %d: %w", id, err)
		}
		p.compared += int64(len(own))
	}
	p.Say("  %d nodes took a snapshot each, from %s to %s: the same bytes as the leader's log tells; the configs are those that were acknowledged",
		len(nodes), slices.Min(values(newest)), slices.Max(values(newest)))
	return nil
}

func values(m map[int32]string) (out []string) {
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// caughtUp waits until everybody has what is committed now.
func (p *proof) caughtUp(ctx context.Context, nodes []int32) error {
	now, err := p.describe(ctx)
	if err != nil {
		return err
	}
	return p.Eventually(ctx, 30*time.Second, func(ctx context.Context) error {
		q, err := p.describe(ctx)
		for _, id := range nodes {
			if err == nil && q.ends[id] < now.highWatermark {
				err = fmt.Errorf("the log of node %d ends at %d, committed are %d", id, q.ends[id], now.highWatermark)
			}
		}
		return err
	})
}

// configsOf compares what a node's disk tells with what was acknowledged.
func (p *proof) configsOf(dir, snapshot string) error {
	raw, err := readSnapshot(dir, snapshot)
	if err != nil {
		return err
	}
	end, _, err := endOf(snapshot)
	if err != nil {
		return err
	}
	log, err := readBatches(dir, end)
	if err != nil {
		return err
	}
	state := newConfigs()
	if err := state.replayBatches(raw); err != nil {
		return fmt.Errorf("snapshot %s: %w", snapshot, err)
	}
	for _, b := range log {
		if err := state.replay(b); err != nil {
			return fmt.Errorf("log at offset %d: %w", b.base, err)
		}
	}
	return state.differ(p.churn.want)
}

// replayTo makes the snapshot of a name from the older ones in a directory and the log behind them.
func replayTo(dir, name string) ([]byte, error) {
	want, ok := metadata.ParseSnapshotName(name + metadata.SnapshotSuffix)
	if !ok {
		return nil, fmt.Errorf("%q names no snapshot", name)
	}
	names, err := snapshotFiles(dir)
	if err != nil {
		return nil, err
	}
	base := ""
	for _, n := range names {
		if n < name {
			base = n
		}
	}
	if base == "" {
		return nil, fmt.Errorf("there are %v, none is before it", names)
	}
	raw, err := readSnapshot(dir, base)
	if err != nil {
		return nil, err
	}
	id, _ := metadata.ParseSnapshotName(base + metadata.SnapshotSuffix)
	image, header, err := metadata.ReadSnapshot(raw, id)
	if err != nil {
		return nil, err
	}
	log, err := readBatches(dir, int64(id.EndOffset))
	if err != nil {
		return nil, err
	}
	loader := metadata.NewLoader(image, header.LastContainedLogTimestamp)
	for _, b := range log {
		if b.base >= int64(want.EndOffset) {
			break
		}
		for decoded, err := range metadata.ReadBatches(b.raw) {
			if err == nil {
				err = loader.Load(decoded)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	_, image = loader.Publish()
	if image.SnapshotID() != want {
		return nil, fmt.Errorf("from snapshot %s the log leads to %s", base, image.SnapshotID())
	}
	header.LastContainedLogTimestamp = loader.Timestamp()
	return metadata.AppendSnapshot(nil, image, header), nil
}
