package exec

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/vfs"
)

type anyBroker struct{}

func (anyBroker) Broker(id ident.NodeID) (replication.Broker, bool) {
	return replication.Broker{Epoch: 100 + int64(id)}, true
}

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

func TestFollowerHoldsTheLeadersBytes(t *testing.T) {
	for _, flush := range []bool{false, true} {
		l, f := newRig(t, 1, flush), newRig(t, 2, flush)
		l.role(1, 3, 1, 2)
		f.role(1, 3, 1, 2)
		for i := range 5 {
			if p := l.produce(1, records(fmt.Sprint(i), "x").Build()); p.Code != 0 || p.Base != ident.Offset(2*i) {
				t.Fatalf("produced %+v", p)
			}
		}
		for range 3 {
			pull(f, l)
		}
		if !bytes.Equal(l.bytes(0), f.bytes(0)) || l.HighWatermark() != 10 || f.HighWatermark() != 10 {
			t.Fatalf("flush %v: high watermarks %d and %d, want 10 and the same bytes", flush, l.HighWatermark(), f.HighWatermark())
		}
		if flush && f.Log().FlushedOffset() != 10 {
			t.Fatalf("flushed to %d", f.Log().FlushedOffset())
		}
	}
}

func TestAcksAllIsAnsweredByTheFollowersFetch(t *testing.T) {
	l, f := newRig(t, 1, false), newRig(t, 2, false)
	l.role(1, 3, 1, 2)
	f.role(1, 3, 1, 2)
	l.Produce(l.now, replication.Produce{Token: 5, Acks: -1, Timeout: time.Second}, records("a").Build())
	if out := l.drain(); len(out.Completed) != 0 {
		t.Fatalf("completed %+v", out.Completed)
	}
	pull(f, l)
	pull(f, l)
	if c := l.out.Completed; len(c) != 1 || c[0] != (Produced{Token: 5, LogAppendTime: -1}) {
		t.Fatalf("completed %+v", c)
	}
}

// withByte is b with one byte changed.
func withByte(b []byte, at int, value byte) []byte {
	b = slices.Clone(b)
	b[at] = value
	return b
}

func TestProduceOfBadRecordsIsRefusedWithKafkasCode(t *testing.T) {
	r := newRig(t, 1, false)
	r.role(1, 3, 1)
	good := records("a").Build()
	flipped := slices.Clone(good)
	flipped[len(flipped)-1] ^= 1
	for name, c := range map[string]struct {
		data []byte
		want replication.Code
	}{
		"empty":               {nil, InvalidRecord},
		"cut":                 {good[:len(good)-1], InvalidRecord},
		"old magic":           {withByte(good, 16, 1), InvalidRecord},
		"future magic":        {withByte(good, 16, 3), CorruptMessage},
		"checksum":            {flipped, CorruptMessage},
		"two batches":         {append(slices.Clone(good), good...), InvalidRecord},
		"control batch":       {batch.NewBuilder(0, 0, 1).AppendControl(batch.Abort, nil).Build(), InvalidRecord},
		"too large":           {records(string(make([]byte, 10_000))).Build(), MessageTooLarge},
		"out of order":        {records("a").Producer(9, 0, 5).Build(), replication.None}, // the first of a producer may be any
		"base offset given":   {batch.NewBuilder(5, 0, 1).Append(nil, nil).Build(), InvalidRecord},
		"no records":          {batch.NewBuilder(0, 0, 1).Build(), InvalidRecord},
		"negative sequence":   {records("a").Producer(9, 0, -1).Build(), InvalidRecord},
		"transaction, no pid": {records("a").Transactional().Build(), InvalidRecord},
	} {
		end := r.Log().EndOffset()
		p := r.produce(-1, c.data)
		if p.Code != c.want || (c.want != 0 && (r.Log().EndOffset() != end || p.Message == "")) {
			t.Errorf("%s: %+v, want code %d, nothing appended and a message", name, p, c.want)
		}
	}
	if r.Core().Role() != replication.Leader {
		t.Fatal("bad input must not end the replica")
	}
}

func TestIdempotentProducerOverRestartAndLeaderChange(t *testing.T) {
	l, f := newRig(t, 1, false), newRig(t, 2, false)
	l.role(1, 3, 1, 2)
	f.role(1, 3, 1, 2)
	l.produce(1, records("a", "b").Producer(9, 0, 0).Build())
	l.produce(1, records("c").Producer(9, 0, 2).Build())
	for range 3 {
		pull(f, l)
	}
	check := func(r *rig, who string) {
		t.Helper()
		end := r.Log().EndOffset()
		if p := r.produce(1, records("c").Producer(9, 0, 2).Build()); p.Code != 0 || p.Base != 2 || r.Log().EndOffset() != end {
			t.Errorf("%s: repeated batch: %+v, end %d", who, p, r.Log().EndOffset())
		}
		if p := r.produce(1, records("z").Producer(9, 0, 4).Build()); p.Code != OutOfOrderSequenceNumber || p.Base != -1 {
			t.Errorf("%s: gap in the sequence: %+v", who, p)
		}
	}
	check(l, "leader")
	f.role(2, 4, 2)
	check(f, "new leader")
	f.open() // killed: the state comes from the batches
	f.role(2, 5, 2)
	check(f, "restarted leader")
	if p := f.produce(1, records("d").Producer(9, 1, 0).Build()); p.Code != 0 {
		t.Fatalf("next producer epoch: %+v", p)
	}
	if p := f.produce(1, records("e").Producer(9, 0, 3).Build()); p.Code != InvalidProducerEpoch {
		t.Fatalf("fenced producer: %+v", p)
	}
}

func TestDivergedFollowerTruncatesAndAgrees(t *testing.T) {
	a, b := newRig(t, 1, false), newRig(t, 2, false)
	var told []ident.Offset
	a.cfg.Log.LowerCheckpoints = func(to, start ident.Offset) error {
		if a.Log().EndOffset() != 4 {
			t.Errorf("told after the truncation, which left %d", a.Log().EndOffset())
		}
		told = append(told, to)
		if start != 0 {
			t.Errorf("told of a log start at %d", start)
		}
		return nil
	}
	a.open()
	a.role(1, 3, 1, 2)
	b.role(1, 3, 1, 2)
	a.produce(1, records("0", "1").Build())
	pull(b, a)
	a.produce(1, records("lost", "lost").Build()) // never fetched
	b.role(2, 4, 2)
	b.produce(1, records("2").Build())
	a.role(2, 4, 2)
	defer func() {
		if len(told) != 1 || told[0] != 2 {
			t.Errorf("truncations told of: %v", told)
		}
	}()
	for range 4 {
		asked, ok := a.NextFetch()
		if !ok {
			t.Fatal("asks nothing")
		}
		res := b.Fetch(b.now, Fetch{MaxBytes: 1 << 20, MinOne: true, Fetch: replication.Fetch{
			Replica: 1, BrokerEpoch: 101, LeaderEpoch: asked.LeaderEpoch, Offset: asked.Offset, LastFetchedEpoch: asked.LastFetchedEpoch,
		}})
		data, _ := res.Records.AppendTo(nil)
		res.Records.Release()
		a.HandleFetchResponse(a.now, FetchResponse{Asked: asked, Code: res.Code, HighWatermark: res.HighWatermark, LeaderLogStart: res.LogStart, Diverging: res.Diverging, Records: data})
		a.drain()
	}
	if !bytes.Equal(a.bytes(0), b.bytes(0)) || a.Log().EndOffset() != 3 {
		t.Fatalf("ends %d and %d", a.Log().EndOffset(), b.Log().EndOffset())
	}
}

func TestFollowerBehindTheLogStartIsReset(t *testing.T) {
	l, f := newRig(t, 1, false), newRig(t, 2, false)
	l.role(1, 3, 1)
	for i := range 4 {
		l.produce(1, records(fmt.Sprint(i)).Build())
	}
	if err := l.Log().SetStartOffset(3); err != nil {
		t.Fatal(err)
	}
	f.role(1, 3, 1)
	pull(f, l)
	if !slices.ContainsFunc(f.out.Facts, func(x replication.Fact) bool { return x.Kind == replication.ReplicaReset && x.From == 0 && x.To == 3 }) {
		t.Fatalf("facts %+v", f.out.Facts)
	}
	pull(f, l)
	pull(f, l)
	if f.Log().StartOffset() != 3 || f.Log().EndOffset() != 4 || f.HighWatermark() != 4 {
		t.Fatalf("start %d, end %d, high watermark %d", f.Log().StartOffset(), f.Log().EndOffset(), f.HighWatermark())
	}
	if f.role(2, 4, 2); f.produce(-1, records("x").Build()).Code != 0 { // KAFKA-9491
		t.Fatal("can't lead after a reset")
	}
}

func TestFollowerOfAnotherBranchBelowTheLogStartBeginsAnew(t *testing.T) {
	l, f := newRig(t, 1, false), newRig(t, 2, false)
	l.role(2, 3, 1, 2)
	f.role(2, 3, 2)
	f.produce(1, records("a", "b").Build())
	for range 3 {
		f.produce(1, records("lost").Build())
	}
	l.role(1, 4, 1) // knows nothing of epoch 3
	l.produce(1, records("A", "B", "C").Build())
	l.produce(1, records("D").Build())
	if err := l.Log().SetStartOffset(3); err != nil {
		t.Fatal(err)
	}
	f.role(1, 4, 1)
	for range 4 {
		pull(f, l)
	}
	f.open() // a crash must not bring them back
	if f.Log().StartOffset() != 3 || f.Log().EndOffset() != 4 || !bytes.Equal(f.bytes(3), l.bytes(3)) {
		t.Fatalf("start %d, end %d, high watermark %d", f.Log().StartOffset(), f.Log().EndOffset(), f.HighWatermark())
	}
}

func TestDamagedResponseIsRefusedAndTheLogStays(t *testing.T) {
	f := newRig(t, 2, false)
	f.role(1, 3, 1, 2)
	damaged := records("a").Build()
	damaged[len(damaged)-1] ^= 1
	for name, data := range map[string][]byte{
		"checksum":       damaged,
		"not contiguous": append(batch.NewBuilder(0, 3, 1).Append(nil, nil).Append(nil, nil).Build(), batch.NewBuilder(1, 3, 1).Append(nil, nil).Build()...),
	} {
		asked, ok := f.NextFetch()
		if !ok {
			t.Fatal("asks nothing")
		}
		f.HandleFetchResponse(f.now, FetchResponse{Asked: asked, HighWatermark: 5, Diverging: replication.NoEpochEnd, Records: data})
		if out := f.drain(); out.Refused == nil || out.Failed != nil || f.Log().EndOffset() != 0 || f.HighWatermark() != 0 {
			t.Errorf("%s: refused %v, failed %v, end %d", name, out.Refused, out.Failed, f.Log().EndOffset())
		}
		if _, ok := f.NextFetch(); ok {
			t.Errorf("%s: asks again at once", name)
		}
		f.now = f.NextDeadline()
		f.Tick(f.now)
		f.drain()
	}
}

func TestFailedWriteEndsTheReplica(t *testing.T) {
	broken := errors.New("input/output error")
	for _, op := range []string{vfs.OpWrite, vfs.OpSync} {
		r := newRig(t, 1, true)
		r.role(1, 3, 1)
		r.produce(1, records("a").Build())
		r.Park(r.now, Fetch{Fetch: replication.Fetch{Token: 3, Replica: -1, LeaderEpoch: -1, Offset: 1}}, 1, ident.Never)
		r.fault = func(o, _ string) error {
			if o == op {
				return broken
			}
			return nil
		}
		if p := r.produce(1, records("b").Build()); p.Code != replication.KafkaStorageError {
			t.Fatalf("%s: %+v", op, p)
		}
		if out := &r.out; !errors.Is(out.Failed, broken) || !slices.Equal(out.Wake, []replication.Token{3}) {
			t.Fatalf("%s: failed %v, woken %v", op, out.Failed, out.Wake)
		}
		r.fault = nil // and it is not tried again: what is on the disk is not known any more
		if p := r.produce(1, records("c").Build()); p.Code != replication.KafkaStorageError || r.out.Failed != nil {
			t.Fatalf("%s: then %+v, failed again %v", op, p, r.out.Failed)
		}
		res := r.Fetch(r.now, Fetch{MaxBytes: 100, Fetch: replication.Fetch{Replica: -1, LeaderEpoch: -1}})
		if res.Code != replication.KafkaStorageError {
			t.Fatalf("%s: fetch: code %d", op, res.Code)
		}
	}
}

func TestFlushAlwaysAnswersAfterTheFlush(t *testing.T) {
	r := newRig(t, 1, true)
	r.role(1, 3, 1)
	for i := range replication.Token(3) {
		r.Produce(r.now, replication.Produce{Token: i, Acks: -1, Timeout: time.Second}, records("a").Build())
	}
	syncs := 0
	r.fault = func(op, _ string) error {
		if op == vfs.OpSync {
			syncs++
		}
		return nil
	}
	if out := r.drain(); len(out.Completed) != 3 || syncs == 0 || syncs > 2 || r.Log().FlushedOffset() != 3 {
		t.Fatalf("%d completed by %d syncs, flushed to %d; want all by one flush of log and epochs", len(out.Completed), syncs, r.Log().FlushedOffset())
	}
}

func TestFlushApartCoversWhatCameBeforeIt(t *testing.T) {
	r := newRig(t, 1, true)
	r.cfg.FlushApart = true
	r.open()
	r.role(1, 3, 1)
	put := func(token replication.Token) {
		r.Produce(r.now, replication.Produce{Token: token, Acks: -1, Timeout: time.Second}, records("a").Build())
	}
	put(1)
	put(2)
	if out := r.drain(); !out.Flush || len(out.Completed) != 0 {
		t.Fatalf("flush wanted %v, completed %+v", out.Flush, out.Completed)
	}
	f, ok := r.BeginFlush(r.now)
	if !ok {
		t.Fatal("no flush begins")
	}
	put(3)
	if _, again := r.BeginFlush(r.now); again || r.drain().Flush {
		t.Fatal("a second flush beside the first")
	}
	r.EndFlush(r.now, f, f.Sync())
	if out := r.drain(); len(out.Completed) != 2 || !out.Flush {
		t.Fatalf("completed %+v, flush wanted %v; want 1 and 2, and a flush for 3", out.Completed, out.Flush)
	}
	f, _ = r.BeginFlush(r.now)
	r.EndFlush(r.now, f, errors.New("input/output error"))
	if out := r.drain(); out.Failed == nil || len(out.Completed) != 1 || out.Completed[0].Code != replication.KafkaStorageError {
		t.Fatalf("failed %v, completed %+v", out.Failed, out.Completed)
	}
}

func TestFetchBoundsAndParking(t *testing.T) {
	r := newRig(t, 1, false)
	r.role(1, 3, 1)
	one := records("a").Build()
	r.produce(1, slices.Clone(one))
	r.produce(1, slices.Clone(one))
	read := func(f Fetch) int {
		f.Replica, f.LeaderEpoch, f.LastFetchedEpoch = -1, -1, -1
		res := r.Fetch(r.now, f)
		defer res.Records.Release()
		return res.Records.Bytes
	}
	if n := read(Fetch{MaxBytes: len(one) - 1}); n != 0 {
		t.Errorf("below one batch: %d bytes", n)
	}
	if n := read(Fetch{MaxBytes: len(one) - 1, MinOne: true}); n != len(one) {
		t.Errorf("below one batch, at least one: %d bytes", n)
	}
	if n := read(Fetch{MaxBytes: 1 << 20}); n != 2*len(one) {
		t.Errorf("all: %d bytes", n)
	}
	f := Fetch{MaxBytes: 1 << 20, Fetch: replication.Fetch{Token: 4, Replica: -1, LeaderEpoch: -1, LastFetchedEpoch: -1, Offset: 2}}
	res := r.Fetch(r.now, f)
	r.Park(r.now, f, res.Below, ident.Never)
	if out := r.drain(); len(out.Wake) != 0 {
		t.Fatalf("woken %v", out.Wake)
	}
	if r.produce(1, slices.Clone(one)); !slices.Equal(r.out.Wake, []replication.Token{4}) {
		t.Fatalf("woken %v", r.out.Wake)
	}
	if end, code := r.EpochEnd(3, 3); end.End != 3 || code != 0 {
		t.Errorf("epoch end %v, code %d", end, code)
	}
}

func TestCloseAnswersEverybodyAndOpensAgain(t *testing.T) {
	r := newRig(t, 1, false)
	r.role(1, 3, 1, 2)
	r.Produce(r.now, replication.Produce{Token: 1, Acks: -1, Timeout: time.Second}, records("a").Build())
	r.drain()
	if err := r.Close(r.now); err != nil {
		t.Fatal(err)
	}
	if out := r.drain(); len(out.Completed) != 1 || out.Completed[0].Code != replication.NotLeaderOrFollower {
		t.Fatalf("completed %+v", out.Completed)
	}
	r.cfg.Replication.HighWatermark = 50 // KAFKA-3978: clamped
	r.open()
	if r.Log().EndOffset() != 1 || r.HighWatermark() != 1 {
		t.Fatalf("end %d, high watermark %d", r.Log().EndOffset(), r.HighWatermark())
	}
}

// BenchmarkProduceAndFollow appends one small batch with acks=all and has a follower read it, all in memory.
func BenchmarkProduceAndFollow(b *testing.B) {
	l, f := newRig(b, 1, false), newRig(b, 2, false)
	l.role(1, 3, 1, 2)
	f.role(1, 3, 1, 2)
	data := records("0123456789").Build()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		batch.SetBaseOffset(data, 0)
		l.Produce(l.now, replication.Produce{Token: replication.Token(i), Acks: -1, Timeout: time.Second}, data)
		l.drain()
		pull(f, l)
		pull(f, l)
	}
}

func TestFlushPolicySwitchedOnCountsOnlyWhatIsFlushed(t *testing.T) {
	l, f := newRig(t, 1, false), newRig(t, 2, false)
	for _, r := range []*rig{l, f} {
		r.cfg.FlushApart = true
		r.open()
		r.role(1, 3, 1, 2)
	}
	put := func(token replication.Token, acks int16) {
		l.Produce(l.now, replication.Produce{Token: token, Acks: acks, Timeout: time.Second}, records("a").Build())
		l.drain()
	}
	put(1, 1)
	if len(l.out.Completed) != 1 || l.out.Flush {
		t.Fatalf("page cache: completed %+v, flush wanted %v", l.out.Completed, l.out.Flush)
	}
	for range 2 {
		pull(f, l)
	}
	if l.HighWatermark() != 1 {
		t.Fatalf("high watermark %d", l.HighWatermark())
	}
	flush := func(r *rig) {
		t.Helper()
		pending, ok := r.BeginFlush(r.now)
		if !ok {
			t.Fatal("no flush is wanted")
		}
		r.EndFlush(r.now, pending, pending.Sync())
		r.drain()
	}
	for _, r := range []*rig{l, f} {
		r.SetFlushPolicy(r.now, FlushPolicy{Always: true})
		if out := r.drain(); !out.Flush || r.HighWatermark() != 1 {
			t.Fatalf("switched on: flush wanted %v, high watermark %d; want the flush of what there is, and nothing taken back", out.Flush, r.HighWatermark())
		}
	}
	put(2, 1)
	put(3, -1)
	if _, asks := f.NextFetch(); asks || len(l.out.Completed) != 0 {
		t.Fatalf("asks %v, completed %+v before a flush", asks, l.out.Completed)
	}
	flush(f)
	if asked, asks := f.NextFetch(); !asks || asked.Offset != f.Log().FlushedOffset() {
		t.Fatalf("asks %+v, flushed to %d", asked, f.Log().FlushedOffset())
	}
	pull(f, l) // brings 2 and 3
	if _, asks := f.NextFetch(); asks {
		t.Fatal("asks on before its flush")
	}
	flush(l)
	if c := l.out.Completed; len(c) != 1 || c[0].Token != 2 || l.HighWatermark() != 1 {
		t.Fatalf("after the leader's flush: %+v, high watermark %d; want acks=1 answered", c, l.HighWatermark())
	}
	flush(f)
	pull(f, l)
	if c := l.out.Completed; len(c) != 1 || c[0].Token != 3 || l.HighWatermark() != 3 {
		t.Fatalf("after the follower's flush: %+v, high watermark %d", c, l.HighWatermark())
	}

	put(4, 1)
	if len(l.out.Completed) != 0 {
		t.Fatalf("completed %+v", l.out.Completed)
	}
	l.SetFlushPolicy(l.now, FlushPolicy{})
	if out := l.drain(); len(out.Completed) != 1 {
		t.Fatalf("switched off: completed %+v", out.Completed)
	}
}

func TestFlushInTheBackgroundByRecordsAndByTime(t *testing.T) {
	r := newRig(t, 1, false)
	r.cfg.FlushApart, r.cfg.Flush = true, FlushPolicy{Records: 3, After: 50 * time.Millisecond}
	r.open()
	r.role(1, 3, 1)
	put := func() {
		t.Helper()
		if c := r.produce(-1, records("a").Build()); c.Code != 0 { // nobody waits for it
			t.Fatalf("%+v", c)
		}
	}
	put()
	if r.out.Flush || r.NextDeadline() != r.now.Add(50*time.Millisecond) {
		t.Fatalf("one record: flush wanted %v, deadline %v", r.out.Flush, r.NextDeadline())
	}
	r.now = r.now.Add(20 * time.Millisecond)
	put()
	if r.out.Flush || r.NextDeadline() != r.now.Add(30*time.Millisecond) {
		t.Fatalf("two records: flush wanted %v, deadline %v; the older record counts", r.out.Flush, r.NextDeadline())
	}
	put()
	if !r.out.Flush || r.NextDeadline() < r.now.Add(time.Second) {
		t.Fatalf("three records: flush wanted %v, deadline %v", r.out.Flush, r.NextDeadline())
	}
	f, ok := r.BeginFlush(r.now)
	if !ok || f.Records() != 3 || f.Bytes() != 3*int64(len(records("a").Build())) {
		t.Fatalf("begun %v", f)
	}
	put() // for the next one
	if r.out.Flush || r.NextDeadline() != r.now.Add(50*time.Millisecond) {
		t.Fatalf("beside a flush: wanted %v, deadline %v", r.out.Flush, r.NextDeadline())
	}
	r.EndFlush(r.now, f, f.Sync())
	r.now = r.NextDeadline()
	r.Tick(r.now)
	if out := r.drain(); !out.Flush || r.Log().FlushedOffset() != 3 {
		t.Fatalf("when the time is over: flush wanted %v, flushed to %d", out.Flush, r.Log().FlushedOffset())
	}
	f, _ = r.BeginFlush(r.now)
	r.EndFlush(r.now, f, f.Sync())
	if r.drain(); r.NextDeadline() < r.now.Add(time.Second) || r.Log().FlushedOffset() != 4 {
		t.Fatalf("all flushed to %d: deadline %v", r.Log().FlushedOffset(), r.NextDeadline())
	}
}
