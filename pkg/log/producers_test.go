package log

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

func idempotent(id int64, epoch int16, sequence int32, n int) []byte {
	b := batch.NewBuilder(0, -1, 1000+int64(sequence)).Producer(id, epoch, sequence)
	for range n {
		b.Append(nil, []byte("v"))
	}
	return b.Build()
}

func produce(t *testing.T, l *Log, id int64, epoch int16, sequence int32, n int) AppendInfo {
	t.Helper()
	info, err := l.AppendAsLeader(idempotent(id, epoch, sequence, n), 0)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestRepeatedBatchIsAnsweredWithItsFirstOffsets(t *testing.T) {
	l, _ := newLog(t, Config{})
	for i := range int32(7) {
		produce(t, l, 9, 0, 2*i, 2)
	}
	for i := int32(2); i < 7; i++ { // the last five
		info := produce(t, l, 9, 0, 2*i, 2)
		want := AppendInfo{First: ident.Offset(2 * i), Last: ident.Offset(2*i + 1), MaxTimestamp: 1000 + int64(2*i), LogAppendTime: -1, Duplicate: true}
		if diff := cmp.Diff(want, info); diff != "" {
			t.Fatal(diff)
		}
	}
	if l.EndOffset() != 14 {
		t.Fatalf("a duplicate was appended: end %d", l.EndOffset())
	}
	if _, err := l.AppendAsLeader(idempotent(9, 0, 2, 2), 0); !errors.Is(err, ErrOutOfOrderSequence) {
		t.Fatalf("a repeat that is forgotten: %v", err)
	}
}

func TestProducerRules(t *testing.T) {
	for _, c := range []struct {
		name     string
		epoch    int16
		sequence int32
		want     error
	}{
		{"next", 3, 2, nil},
		{"gap", 3, 3, ErrOutOfOrderSequence},
		{"back", 3, 1, ErrOutOfOrderSequence},
		{"old epoch", 2, 2, ErrProducerFenced},
		{"new epoch from zero", 4, 0, nil},
		{"new epoch from elsewhere", 4, 2, ErrOutOfOrderSequence},
	} {
		l, _ := newLog(t, Config{})
		produce(t, l, 9, 3, 0, 2)
		_, err := l.AppendAsLeader(idempotent(9, c.epoch, c.sequence, 1), 0)
		if !errors.Is(err, c.want) || (err == nil) != (l.EndOffset() == 3) {
			t.Errorf("%s: %v, end %d", c.name, err, l.EndOffset())
		}
	}
	l, _ := newLog(t, Config{})
	produce(t, l, 5, 1, 77, 1) // an unknown producer may have been forgotten
	produce(t, l, 5, 1, 78, 1)
	produce(t, l, 6, 0, 1<<31-1, 1)
	produce(t, l, 6, 0, 0, 1) // sequence numbers wrap
}

func TestBatchesOfOneAppendAreCheckedInOrder(t *testing.T) {
	l, _ := newLog(t, Config{})
	good := append(append(idempotent(1, 0, 0, 2), idempotent(2, 0, 0, 1)...), idempotent(1, 0, 2, 1)...)
	if _, err := l.AppendAsLeader(good, 0); err != nil {
		t.Fatal(err)
	}
	bad := append(idempotent(1, 0, 3, 1), idempotent(1, 0, 5, 1)...)
	if _, err := l.AppendAsLeader(bad, 0); !errors.Is(err, ErrOutOfOrderSequence) {
		t.Fatalf("a gap within one append: %v", err)
	}
	if l.EndOffset() != 4 {
		t.Fatalf("end %d", l.EndOffset())
	}
	produce(t, l, 1, 0, 3, 1) // what was refused left no trace
}

func TestProducersSurviveRestartFollowAndTruncate(t *testing.T) {
	cfg := Config{Settings: Settings{SegmentBytes: 500}}
	l, m := newLog(t, cfg)
	for i := range int32(12) {
		produce(t, l, 1, 0, i, 1)
		produce(t, l, int64(100+i), 0, 0, 1)
	}
	want := l.Producers().encode()
	for name, reopen := range map[string]func() *Log{
		"killed": func() *Log { l, _ := mustOpen(t, m.CrashClone(nil, 100), cfg); return l },
		"killed, without snapshots": func() *Log {
			c := m.CrashClone(nil, 100)
			for _, o := range l.producers.snapshots {
				if err := c.Remove(l.producers.path(o)); err != nil {
					t.Fatal(err)
				}
			}
			l, _ := mustOpen(t, c, cfg)
			return l
		},
		"killed, with a damaged snapshot": func() *Log {
			c := m.CrashClone(nil, 100)
			newest := l.producers.snapshots[len(l.producers.snapshots)-1]
			patch(t, c, fileName(newest, snapshotSuffix), flipAt(-1))
			l, rec := mustOpen(t, c, cfg)
			if !rec.Repaired() {
				t.Error("not reported")
			}
			return l
		},
		"followed": func() *Log {
			f, _ := newLog(t, Config{})
			if _, err := f.AppendAsFollower(readAll(t, l, 1<<20)); err != nil {
				t.Fatal(err)
			}
			return f
		},
		"closed": func() *Log {
			c := m.CrashClone(nil, 100)
			l, _ := mustOpen(t, c, cfg)
			mustClose(t, l)
			clean := cfg
			clean.CleanShutdown = true
			l, rec := mustOpen(t, c, clean)
			if rec.Repaired() {
				t.Errorf("%v", rec.Repairs)
			}
			return l
		},
	} {
		got := reopen()
		if diff := cmp.Diff(want, got.Producers().encode()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if info := produce(t, got, 1, 0, 11, 1); !info.Duplicate || info.First != 22 {
			t.Errorf("%s: %+v", name, info)
		}
		mustTruncate(t, got, 9)
		if n := got.Producers().Len(); n != 5 {
			t.Errorf("%s, truncated: %d producers", name, n)
		}
		if info := produce(t, got, 1, 0, 5, 1); info.Duplicate {
			t.Errorf("%s, truncated: %+v", name, info)
		}
	}
}

func TestSnapshotBytesAreKafkas(t *testing.T) {
	p := newProducers(nil, "")
	h, err := batch.ParseHeader(idempotent(5, 2, 10, 3))
	if err != nil {
		t.Fatal(err)
	}
	h.BaseOffset = 100
	if err := p.update(h, nil); err != nil {
		t.Fatal(err)
	}
	be := binary.BigEndian
	want := []byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 1}
	want = be.AppendUint64(want, 5)
	want = be.AppendUint16(want, 2)
	want = be.AppendUint32(want, 12)         // last sequence
	want = be.AppendUint64(want, 102)        // last offset
	want = be.AppendUint32(want, 2)          // offset delta
	want = be.AppendUint64(want, 1010)       // timestamp
	want = be.AppendUint32(want, 0xffffffff) // coordinator epoch
	want = be.AppendUint64(want, 1<<64-1)    // no open transaction
	be.PutUint32(want[2:], crc32.Checksum(want[6:], crc32.MakeTable(crc32.Castagnoli)))
	if diff := cmp.Diff(want, p.encode()); diff != "" {
		t.Fatal(diff)
	}
}

func TestTransactionMarkerEndsTheTransactionAndRaisesTheEpoch(t *testing.T) {
	l, _ := newLog(t, Config{})
	raw := batch.NewBuilder(0, -1, 1000).Producer(7, 1, 0).Transactional().Append(nil, []byte("v")).Build()
	if _, err := l.AppendAsLeader(raw, 0); err != nil {
		t.Fatal(err)
	}
	if l.ExpireProducers(1<<50) != 0 {
		t.Fatal("a producer with an open transaction was forgotten")
	}
	marker := batch.NewBuilder(0, -1, 2000).Producer(7, 2, -1).Transactional().AppendControl(batch.Commit, []byte{0, 0, 0, 0, 0, 3}).Build()
	if _, err := l.AppendAsLeader(marker, 0); err != nil {
		t.Fatal(err)
	}
	s := l.producers.byID[7]
	if s.epoch != 2 || s.txnFirst != -1 || s.coordinatorEpoch != 3 || s.n != 0 {
		t.Fatalf("%+v", s)
	}
	if _, err := l.AppendAsLeader(idempotent(7, 1, 1, 1), 0); !errors.Is(err, ErrProducerFenced) {
		t.Fatalf("the old epoch: %v", err)
	}
}

func TestProducersOutliveTheirRecords(t *testing.T) {
	l, _ := newLog(t, Config{})
	produce(t, l, 9, 0, 0, 2)
	last := produce(t, l, 9, 0, 2, 2)
	// Retention and DeleteRecords take records, not what is known of their producers (KIP-360).
	if err := l.SetStartOffset(l.EndOffset()); err != nil {
		t.Fatal(err)
	}
	if again := produce(t, l, 9, 0, 2, 2); !again.Duplicate || again.First != last.First {
		t.Fatalf("%+v", again)
	}
	if _, err := l.AppendAsLeader(idempotent(9, 0, 7, 1), 0); !errors.Is(err, ErrOutOfOrderSequence) {
		t.Fatalf("a gap in the sequence: %v", err)
	}
	// A log that begins anew knows nothing of them.
	if err := l.TruncateFully(100); err != nil {
		t.Fatal(err)
	}
	if info := produce(t, l, 9, 0, 7, 1); info.Duplicate || info.First != 100 || l.Producers().Len() != 1 {
		t.Fatalf("%+v", info)
	}
}

func TestProducerOfOldRecordsIsRememberedWhileItWrites(t *testing.T) {
	const day = 24 * 60 * 60 * 1000
	wall := int64(400 * day)
	l, _ := newLog(t, Config{WallMillis: func() int64 { return wall }})
	produce(t, l, 9, 0, 0, 2) // of times around 1000
	if n := l.ExpireProducers(wall + day - 1); n != 0 {
		t.Fatalf("%d producers forgotten", n)
	}
	if n := l.ExpireProducers(wall + day); n != 1 {
		t.Fatalf("%d producers forgotten after a day", n)
	}
}

func TestIdleProducersAreForgotten(t *testing.T) {
	l, _ := newLog(t, Config{ProducerExpirationMs: 100})
	produce(t, l, 1, 0, 0, 1)  // at 1000
	produce(t, l, 2, 0, 50, 1) // at 1050
	if n := l.ExpireProducers(1100); n != 1 || l.Producers().Len() != 1 {
		t.Fatalf("%d forgotten, %d left", n, l.Producers().Len())
	}
}

func FuzzProducerSnapshot(f *testing.F) {
	p := newProducers(nil, "")
	h, _ := batch.ParseHeader(idempotent(5, 2, 10, 3))
	_ = p.update(h, nil)
	f.Add(p.encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) >= producerSnapshotHeader { // a right checksum leads deeper
			binary.BigEndian.PutUint32(data[2:], crc32.Checksum(data[6:], castagnoli))
		}
		p := newProducers(vfs.NewMem(), "/")
		if p.decode(data) != nil {
			return
		}
		again := newProducers(vfs.NewMem(), "/")
		if err := again.decode(p.encode()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p.encode(), again.encode()); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestProducerStateFromBeforeBatchesThatAreGoneIsNotUsed(t *testing.T) {
	l, m := newLog(t, Config{})
	add := func(sequence int32) {
		t.Helper()
		b := batch.NewBuilder(0, -1, 1000).Producer(7, 0, sequence).Append(nil, value(1, l.EndOffset(), 20)).Build()
		if _, err := l.AppendAsLeader(b, 1); err != nil {
			t.Fatal(err)
		}
	}
	for sequence := range int32(3) {
		add(sequence)
		if err := l.Roll(); err != nil {
			t.Fatal(err)
		}
	}
	mustFlush(t, l)
	if err := l.SetStartOffset(3); err != nil {
		t.Fatal(err)
	}
	for _, o := range []ident.Offset{2, 3} { // as a crash may leave it: all but the first snapshot lost
		if err := removeIfThere(m, "/data/t-0/"+fileName(o, snapshotSuffix)); err != nil {
			t.Fatal(err)
		}
	}
	if err := vfs.WriteFile(m, "/data/t-0/"+fileName(1, snapshotSuffix), stateAfter(7, 0), true); err != nil {
		t.Fatal(err)
	}
	l, _ = mustOpen(t, m.CrashClone(nil, 100), Config{})
	add(3)
}

// stateAfter is the snapshot of a producer that has written one record.
func stateAfter(id int64, sequence int32) []byte {
	p := newProducers(nil, "")
	s := newProducer(batch.Header{ProducerID: id})
	s.add(batch.Header{ProducerID: id, BaseSequence: sequence})
	p.byID[id] = s
	return p.encode()
}

func TestLeaderGivesRecordsItsTimeWhereTheTopicSaysSo(t *testing.T) {
	wall := int64(50_000)
	cfg := Config{Settings: Settings{LogAppendTime: true}, WallMillis: func() int64 { return wall }}
	l, m := newLog(t, cfg)
	first := produce(t, l, 9, 0, 0, 2)
	wall = 60_000
	produce(t, l, 9, 0, 2, 2)
	again := produce(t, l, 9, 0, 0, 2)
	if first.LogAppendTime != 50_000 || first.MaxTimestamp != 50_000 || !again.Duplicate || again.LogAppendTime != 50_000 {
		t.Fatalf("first %+v, repeated %+v", first, again)
	}
	found, ok, err := l.OffsetForTimestamp(50_001)
	if err != nil || !ok || found.Offset != 2 || found.Timestamp != 60_000 {
		t.Fatalf("%+v, %v, %v", found, ok, err)
	}
	// Recovery, which checks the checksums, and followers take what the leader wrote.
	follower, _ := newLog(t, Config{})
	if _, err := follower.AppendAsFollower(readAll(t, l, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if _, rec := mustOpen(t, m, cfg); rec.Repaired() || rec.Scanned == 0 {
		t.Fatalf("%+v", rec)
	}
	// From then on records keep the producer's time, whatever bit the producer sets.
	if err := l.SetSettings(Settings{}); err != nil {
		t.Fatal(err)
	}
	raw := idempotent(9, 0, 4, 1)
	h, err := batch.ParseHeader(raw)
	if err != nil {
		t.Fatal(err)
	}
	batch.SetLogAppendTime(raw, &h, 70_000)
	info, err := l.AppendAsLeader(raw, 0)
	if err != nil || info.LogAppendTime != -1 {
		t.Fatalf("%+v, %v", info, err)
	}
	tail := readAll(t, l, 1<<20)
	for len(tail) > 0 {
		_, tail, h, err = batch.Next(tail)
		if err != nil {
			t.Fatal(err)
		}
	}
	if h.IsLogAppendTime() || h.BaseOffset != 4 {
		t.Fatalf("%+v", h)
	}
}
