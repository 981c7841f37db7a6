// Command disk takes a node's disk away in the ways in which disks go, on a real file system below real processes: it
// fills up, becomes read-only, fails to write what it had taken. Each time the node must say so and serve no more, its
// leaders must move, and writes with acks=all must go on; when the disk is well again the node must be in the ISR, by
// itself where that is safe. In the end each acknowledged record must be there once and in order.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/internal/localkube"
	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/test/devcluster"
	"github.com/highwater-io/highwater/test/workload"
)

func main() {
	p := &devcluster.Proof{Name: "e2e-disk", Ready: usable}
	p.Run = func(ctx context.Context, p *devcluster.Proof) error {
		return (&proof{Proof: p, offlines: map[int32]int{}}).run(ctx)
	}
	p.Main()
}

type proof struct {
	*devcluster.Proof
	producer *workload.Producer
	offlines map[int32]int // how often the directory of each node went
}

// volumeBytes is the size of the node's volume.
const volumeBytes = 160 << 20

func (p *proof) run(ctx context.Context) (err error) {
	seeds, err := p.Bootstrap(ctx, devcluster.SampleReplicaSet)
	if err != nil {
		return err
	}
	if p.producer, err = workload.Start(seeds, devcluster.SamplePartition, 5*time.Millisecond); err != nil {
		return err
	}
	for _, part := range []struct {
		name string
		run  func(context.Context, *victim) error
	}{
		{"the volume is nearly full: the node keeps what is left for its metadata", p.nearlyFull},
		{"the volume is full to the last byte", p.toTheLastByte},
		{"the kernel makes the volume read-only", p.readOnly},
		{"the disk fails to write what it had taken (a thin volume that has nothing below it)", p.failing},
	} {
		p.Say("%s", part.name)
		if err := p.part(ctx, part.run); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", part.name, err), p.producer.Stop(ctx))
		}
	}
	return p.verify(ctx, seeds)
}

// part plays one part on the node that leads at its beginning, on a volume of its own.
func (p *proof) part(ctx context.Context, play func(context.Context, *victim) error) (err error) {
	dir, err := os.MkdirTemp("", "highwater-disk-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	v, err := p.choose(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.giveBack(ctx)) }()
	if err := play(ctx, v); err != nil {
		return err
	}
	return p.whole(ctx, v)
}

// victim is the node whose disk goes.
type victim struct {
	*proof
	*volume
	id    int32
	pod   string
	claim string // directory of its PersistentVolume
	ran   []int  // its processes
}

// choose picks the partition's leader.
func (p *proof) choose(ctx context.Context, dir string) (*victim, error) {
	partition, err := p.Partition(ctx, devcluster.SamplePartition)
	if err != nil {
		return nil, err
	}
	if partition.Status.Leader == nil || *partition.Status.Leader < 0 {
		return nil, errors.New("the partition has no leader")
	}
	v := &victim{proof: p, id: *partition.Status.Leader}
	v.pod = devcluster.SamplePod(v.id)
	if v.claim, err = p.ClaimDir(ctx, v.pod); err != nil {
		return nil, err
	}
	v.volume = &volume{dir: dir, at: v.claim}
	return v, nil
}

// moveIn has the node's data on the volume from now on: while the process is stopped, its files are copied and the
// volume is mounted in their place. Then the process is killed, and the kubelet starts the next one.
func (v *victim) moveIn(ctx context.Context, bytes int64, mkfs ...string) error {
	if _, err := localkube.Signal(v.Dir, v.pod, localkube.Pause); err != nil {
		return err
	}
	v.at = filepath.Join(v.dir, "mnt")
	if err := os.MkdirAll(v.at, 0o755); err != nil {
		return err
	}
	if err := v.create(ctx, bytes, mkfs...); err != nil {
		return err
	}
	if _, err := run(ctx, "cp", "-a", v.claim+"/.", v.at); err != nil {
		return err
	}
	if err := v.unmount(ctx); err != nil {
		return err
	}
	// Whoever starts while the volume is not mounted must find nothing rather than an old copy.
	if _, err := run(ctx, "find", v.claim, "-mindepth", "1", "-delete"); err != nil {
		return err
	}
	v.at = v.claim
	if err := v.mount(ctx); err != nil {
		return err
	}
	if err := v.restart(ctx); err != nil {
		return err
	}
	return v.whole(ctx, v)
}

// restart kills the node's process and waits for the next one.
func (v *victim) restart(ctx context.Context) (err error) {
	before, _ := localkube.Signal(v.Dir, v.pod, localkube.Kill) // none may run just now
	return v.Eventually(ctx, 60*time.Second, func(context.Context) error {
		pids, err := localkube.Signal(v.Dir, v.pod, 0)
		if err == nil && (len(pids) == 0 || slices.ContainsFunc(pids, func(pid int) bool { return slices.Contains(before, pid) })) {
			err = fmt.Errorf("processes %v of %s, %v were killed", pids, v.pod, before)
		}
		v.ran = pids
		return err
	})
}

// giveBack copies the node's files to the volume that it had, and takes the other one away.
func (v *victim) giveBack(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if !v.mounted || v.at != v.claim {
		return v.remove(ctx)
	}
	_, err := localkube.Signal(v.Dir, v.pod, localkube.Pause)
	keep := filepath.Join(v.dir, "keep")
	err = errors.Join(err, os.MkdirAll(keep, 0o755))
	_, copyErr := run(ctx, "cp", "-a", v.at+"/.", keep)
	err = errors.Join(err, copyErr, v.remove(ctx))
	if copyErr == nil {
		_, backErr := run(ctx, "cp", "-a", keep+"/.", v.claim)
		err = errors.Join(err, backErr)
	}
	if err != nil {
		return err
	}
	if err := v.restart(ctx); err != nil {
		return err
	}
	return v.whole(ctx, v)
}

// verify reads everything back.
func (p *proof) verify(ctx context.Context, seeds []string) error {
	p.Say("stop writing and read everything back")
	ctx, cancel := context.WithTimeout(ctx, testscale.Duration(2*time.Minute))
	defer cancel()
	if err := p.producer.Stop(ctx); err != nil {
		return err
	}
	report, err := p.producer.Verify(ctx, seeds)
	if err != nil {
		return err
	}
	fmt.Printf("\n  %s\n", report)
	if report.Acked == 0 {
		return errors.New("nothing was acknowledged")
	}
	return errors.Join(report.Err(), report.Failed)
}

// node is what the ReplicaSet's status says of one node.
func (p *proof) node(ctx context.Context, id int32) (hwv1alpha1.NodeStatus, error) {
	rs, err := p.ReplicaSet(ctx, devcluster.SampleReplicaSet)
	if err != nil {
		return hwv1alpha1.NodeStatus{}, err
	}
	i := slices.IndexFunc(rs.Status.Nodes, func(n hwv1alpha1.NodeStatus) bool { return n.ID == id })
	if i < 0 {
		return hwv1alpha1.NodeStatus{}, fmt.Errorf("the ReplicaSet's status has no node %d", id)
	}
	return rs.Status.Nodes[i], nil
}
