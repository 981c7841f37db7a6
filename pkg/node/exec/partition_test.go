package exec

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/vfs"
)

func (anyBroker) Broker(id ident.NodeID) (replication.Broker, bool) {
	return replication.Broker{Epoch: 100 + int64(id)}, true
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
