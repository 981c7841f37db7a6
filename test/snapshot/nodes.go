package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/highwater-io/highwater/internal/localkube"
	"github.com/highwater-io/highwater/test/devcluster"
	"github.com/highwater-io/highwater/test/nodes"
)

// The node's metrics that are asked for.
const (
	metricLogStart      = "highwater_metadata_log_start_offset"
	metricSnapshotBytes = "highwater_metadata_snapshot_bytes"
	metricInstalling    = "highwater_metadata_snapshot_installing"
	metricInstalled     = "highwater_metadata_snapshots_installed_total"
)

// quorumState is what the quorum's leader says of it.
type quorumState struct {
	leader        int32
	epoch         int32
	highWatermark int64
	ends          map[int32]int64 // log end offsets of voters and observers
}

// describe asks the voters with Kafka's DescribeQuorum until the leader answers.
func (p *proof) describe(ctx context.Context) (q quorumState, err error) {
	err = p.Eventually(ctx, 30*time.Second, func(ctx context.Context) error {
		var errs []error
		for _, voter := range p.voters {
			if q, err = p.ask(ctx, voter); err == nil {
				return nil
			}
			errs = append(errs, fmt.Errorf("%s: %w", voter, err))
		}
		return errors.Join(errs...)
	})
	return q, err
}

func (p *proof) ask(ctx context.Context, voter string) (quorumState, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	address, err := p.remote.PodAddress(ctx, devcluster.Namespace, voter, "controller")
	if err != nil {
		return quorumState{}, err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.DialTimeout(time.Second), kgo.RequestRetries(0))
	if err != nil {
		return quorumState{}, err
	}
	defer cl.Close()
	_, d, err := nodes.DescribeQuorum(ctx, cl.SeedBrokers()[0])
	if err != nil {
		return quorumState{}, err
	}
	q := quorumState{d.LeaderID, d.LeaderEpoch, d.HighWatermark, map[int32]int64{}}
	for _, v := range d.CurrentVoters {
		q.ends[v.ReplicaID] = v.LogEndOffset
	}
	for _, o := range d.Observers {
		q.ends[o.ReplicaID] = o.LogEndOffset
	}
	return q, nil
}

// clientAddresses are where the data nodes that run now serve clients.
func (p *proof) clientAddresses(ctx context.Context) (addresses []string, err error) {
	for _, id := range p.observerIDs {
		address, podErr := p.remote.PodAddress(ctx, devcluster.Namespace, devcluster.SamplePod(id), "external")
		if podErr != nil {
			err = podErr
			continue
		}
		addresses = append(addresses, address)
	}
	if len(addresses) > 0 {
		return addresses, nil
	}
	return nil, err
}

// cordon keeps new pods from starting, or lets them.
func (p *proof) cordon(ctx context.Context, closed bool) error {
	var nodes corev1.NodeList
	if err := p.Client.List(ctx, &nodes); err != nil {
		return err
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		patch := client.MergeFrom(n.DeepCopy())
		n.Spec.Unschedulable = closed
		if err := p.Client.Patch(ctx, n, patch); err != nil {
			return err
		}
	}
	return nil
}

// stop stops a node in order and keeps it from starting again until start.
func (p *proof) stop(ctx context.Context, pod string) error {
	if err := p.cordon(ctx, true); err != nil {
		return err
	}
	old, err := p.Pod(ctx, pod)
	if err != nil {
		return err
	}
	if err := p.Client.Delete(ctx, old, client.Preconditions{UID: &old.UID}); err != nil {
		return err
	}
	return p.Eventually(ctx, 60*time.Second, func(ctx context.Context) error {
		if pids, err := localkube.Signal(p.Dir, pod, 0); err == nil {
			return fmt.Errorf("processes %v of %s still run", pids, pod)
		}
		next, err := p.Pod(ctx, pod)
		if err == nil && next.UID == old.UID {
			err = fmt.Errorf("pod %s is still there", pod)
		}
		return err
	})
}

// start lets a stopped node start and returns its process.
func (p *proof) start(ctx context.Context, pod string) (pid int, err error) {
	if err := p.cordon(ctx, false); err != nil {
		return 0, err
	}
	return p.process(ctx, pod, 0)
}

// process waits for a node's process, another one than before.
func (p *proof) process(ctx context.Context, pod string, before int) (pid int, err error) {
	err = p.Eventually(ctx, 60*time.Second, func(context.Context) error {
		pids, err := localkube.Signal(p.Dir, pod, 0)
		if err == nil && (len(pids) != 1 || pids[0] == before) {
			err = fmt.Errorf("processes %v of %s, it was %d", pids, pod, before)
		}
		if err == nil {
			pid = pids[0]
		}
		return err
	})
	return pid, err
}

// restarts is how often the containers of a pod were started again.
func (p *proof) restarts(ctx context.Context, pod string) (n int32, err error) {
	got, err := p.Pod(ctx, pod)
	if err != nil {
		return 0, err
	}
	for _, c := range got.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n, nil
}

// choose draws a node that does not lead: a voter, or a data node, which observes.
func (p *proof) choose(ctx context.Context, voter bool) (id int32, err error) {
	q, err := p.describe(ctx)
	if err != nil {
		return 0, err
	}
	among := p.observerIDs
	if voter {
		among = slices.DeleteFunc(slices.Clone(p.voterIDs), func(id int32) bool { return id == q.leader })
	}
	return among[p.random.IntN(len(among))], nil
}
