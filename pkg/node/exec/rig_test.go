package exec

import (
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/vfs"
)

type anyBroker struct{}

// rig is a partition on a disk that a test can break.
type rig struct {
	*Partition
	t     testing.TB
	mem   *vfs.Mem
	cfg   PartitionConfig
	fault func(op, path string) error
	now   ident.Instant
	out   Output
}

func newRig(t testing.TB, self ident.NodeID, flushAlways bool) *rig {
	r := &rig{t: t, mem: vfs.NewMem(), now: 1}
	r.cfg = PartitionConfig{
		FS: vfs.Inject(r.mem, func(op, path string) error {
			if r.fault != nil {
				return r.fault(op, path)
			}
			return nil
		}),
		Dir: "/data/t-0", Topic: "t", Cluster: anyBroker{}, MaxMessageBytes: 10_000,
		Replication: replication.Config{Self: self}, Flush: FlushPolicy{Always: flushAlways},
	}
	r.open()
	return r
}

func (r *rig) open() {
	r.t.Helper()
	var err error
	if r.Partition, _, err = OpenPartition(r.cfg); err != nil {
		r.t.Fatal(err)
	}
}

// role makes the given node lead, of replicas 1 and 2.
func (r *rig) role(leader ident.NodeID, epoch ident.Epoch, isr ...ident.NodeID) {
	r.ApplyMetadata(r.now, replication.MetadataChanged{
		Leader: leader, LeaderEpoch: epoch, PartitionEpoch: int32(epoch), Replicas: []ident.NodeID{1, 2}, ISR: isr, MinISR: 1,
	})
	r.drain()
}

func (r *rig) drain() *Output {
	r.Drain(r.now, &r.out)
	return &r.out
}

func records(values ...string) *batch.Builder {
	b := batch.NewBuilder(0, 0, 1)
	for _, v := range values {
		b.Append(nil, []byte(v))
	}
	return b
}

// produce returns the answer, which must come at once.
func (r *rig) produce(acks int16, data []byte) Produced {
	r.t.Helper()
	r.Produce(r.now, replication.Produce{Token: 7, Acks: acks, Timeout: time.Second}, data)
	out := r.drain()
	if len(out.Completed) != 1 || out.Completed[0].Token != 7 {
		r.t.Fatalf("completed %+v, want one of token 7", out.Completed)
	}
	return out.Completed[0]
}

func (r *rig) bytes(from ident.Offset) []byte {
	r.t.Helper()
	chunk, err := r.Log().Read(from, 1<<20, r.Log().EndOffset(), true)
	if err != nil {
		r.t.Fatal(err)
	}
	defer chunk.Release()
	data, err := chunk.AppendTo(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return data
}

// pull plays one round between a follower and its leader.
func pull(follower, leader *rig) (FetchResult, bool) {
	follower.t.Helper()
	asked, ok := follower.NextFetch()
	if !ok {
		return FetchResult{}, false
	}
	res := leader.Fetch(leader.now, Fetch{MaxBytes: 1 << 20, MinOne: true, Fetch: replication.Fetch{
		Token: 1, Replica: 2, BrokerEpoch: 102, LeaderEpoch: asked.LeaderEpoch, Offset: asked.Offset, LastFetchedEpoch: asked.LastFetchedEpoch,
	}})
	data, err := res.Records.AppendTo(nil)
	if err != nil {
		follower.t.Fatal(err)
	}
	res.Records.Release()
	leader.drain()
	follower.HandleFetchResponse(follower.now, FetchResponse{
		Asked: asked, Code: res.Code, HighWatermark: res.HighWatermark, LeaderLogStart: res.LogStart, Diverging: res.Diverging, Records: data,
	})
	follower.drain()
	return res, true
}
