package exec

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/replication"
)

// rot flips a bit in a file of the partition's directory.
func (r *rig) rot(name string, at int64) {
	r.t.Helper()
	f, err := r.mem.OpenFile(r.cfg.Dir+"/"+name, os.O_RDWR, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err = f.ReadAt(b, at); err == nil {
		b[0] ^= 4
		_, err = f.WriteAt(b, at)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// scrub checks the whole log as the node does in the course of a day.
func (r *rig) scrub() *Output {
	r.t.Helper()
	for s := r.BeginScrub(100); s != nil; s = r.BeginScrub(100) {
		r.EndScrub(r.now, s, s.Run())
	}
	return r.drain()
}

// consume reads one partition's fetch at an offset.
func (r *rig) consume(o ident.Offset) (replication.Code, int) {
	res := r.Fetch(r.now, Fetch{MaxBytes: 1 << 20, MinOne: true, Fetch: replication.Fetch{Replica: -1, LeaderEpoch: -1, LastFetchedEpoch: -1, Offset: o}})
	defer res.Records.Release()
	return res.Code, res.Records.Bytes
}

func newRotRigs(t *testing.T) (leader, follower *rig, segments []ident.Offset) {
	leader, follower = newRig(t, 1, false), newRig(t, 2, false)
	for _, r := range []*rig{leader, follower} {
		r.cfg.Log.SegmentBytes = 300
		r.open()
		r.role(1, 3, 1, 2)
	}
	for i := range 20 {
		leader.produce(1, records(fmt.Sprintf("record %d", i)).Build())
		pull(follower, leader)
	}
	for leader.HighWatermark() < 20 || follower.HighWatermark() < 20 {
		pull(follower, leader)
	}
	segments = follower.Log().Segments()
	if len(segments) < 4 {
		t.Fatalf("segments %v", segments)
	}
	return leader, follower, segments
}

func TestRottenFollowerIsQuarantinedAndRefilled(t *testing.T) {
	leader, follower, segments := newRotRigs(t)
	follower.rot(fmt.Sprintf("%020d.log", segments[1]), 70)
	out := follower.scrub()
	if len(out.Damage) != 1 || out.Damage[0].From != segments[1] || !out.Directory || out.Failed != nil || out.Quarantined != nil {
		t.Fatalf("%+v", out)
	}
	if follower.Core().DirectoryWish() != replication.WishLost || follower.Log().EndOffset() != 20 {
		t.Fatalf("wish %s, ends at %d", follower.Core().DirectoryWish(), follower.Log().EndOffset())
	}
	follower.cfg.Log.RecoveryPoint = 20
	follower.open() // a restart knows of it
	follower.meta(3, 4, []ident.NodeID{1}, 2)
	if q := follower.out.Quarantined; q == nil || q.From != segments[1] || q.To != 20 || follower.Log().EndOffset() != segments[1] {
		t.Fatalf("quarantined %+v, ends at %d", q, follower.Log().EndOffset())
	}
	follower.open() // and that it lacks what it had
	follower.meta(3, 4, []ident.NodeID{1}, 2)
	if follower.Core().DirectoryWish() != replication.NoWish {
		t.Fatalf("wish %s before it is refilled", follower.Core().DirectoryWish())
	}
	var refilled *Refilled
	for range 30 {
		pull(follower, leader)
		if follower.out.Refilled != nil {
			refilled = follower.out.Refilled
		}
	}
	if refilled == nil || refilled.Bytes == 0 || follower.Core().DirectoryWish() != replication.WishOnline || follower.Log().Damaged() {
		t.Fatalf("refilled %+v, wish %s", refilled, follower.Core().DirectoryWish())
	}
	if !bytes.Equal(leader.bytes(0), follower.bytes(0)) {
		t.Fatal("the logs differ")
	}
}

// meta is a commit with node 1 as leader.
func (r *rig) meta(leaderEpoch ident.Epoch, partitionEpoch int32, isr []ident.NodeID, lost ...ident.NodeID) {
	r.ApplyMetadata(r.now, replication.MetadataChanged{
		Leader: 1, LeaderEpoch: leaderEpoch, PartitionEpoch: partitionEpoch, Replicas: []ident.NodeID{1, 2}, ISR: isr, Lost: lost, MinISR: 1,
	})
	r.drain()
}

func TestRottenLeaderServesWhatIsWholeAndNothingElse(t *testing.T) {
	leader, _, segments := newRotRigs(t)
	// A header that can't be right is met by a read; the segment is checked at once.
	leader.rot(fmt.Sprintf("%020d.log", segments[1]), 16)
	code, _ := leader.consume(segments[1])
	if out := leader.drain(); code != replication.KafkaStorageError || len(out.Damage) != 1 || out.Failed != nil {
		t.Fatalf("code %d, %+v", code, out)
	}
	d := leader.Log().Damage()[0]
	if d.From != segments[1] || d.To != segments[1]+1 {
		t.Fatal(d)
	}
	for o := ident.Offset(0); o < 20; o++ {
		code, n := leader.consume(o)
		if inside := o >= d.From && o < d.To; inside != (code == replication.KafkaStorageError) || inside != (n == 0) {
			t.Errorf("offset %d: code %d, %d bytes", o, code, n)
		}
	}
	leader.meta(3, 4, []ident.NodeID{1}, 1)
	if p := leader.produce(1, records("still").Build()); p.Code != replication.None || leader.Core().Role() != replication.Leader {
		t.Fatalf("produce %+v as %s", p, leader.Core().Role())
	}
	if _, _, err := leader.DeleteOldSegments(leader.now, 1<<40, log.Limits{Ms: 1, Bytes: -1}); err != nil {
		t.Fatal(err)
	}
	if leader.drain(); leader.Log().Damaged() || leader.Core().DirectoryWish() != replication.WishOnline {
		t.Fatalf("damage that retention has passed: %v, wish %s", leader.Log().Damage(), leader.Core().DirectoryWish())
	}
}
