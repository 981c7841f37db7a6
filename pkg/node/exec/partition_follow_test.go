package exec

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/replication"
)

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
