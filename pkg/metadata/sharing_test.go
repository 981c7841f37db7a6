package metadata_test

import (
	"runtime"
	"testing"

	"github.com/highwater-io/highwater/internal/bigcluster"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

func imageOf(t testing.TB, s bigcluster.Shape) *metadata.Image {
	t.Helper()
	im, err := s.Image()
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// shrink takes the last replica of one partition of the topic out of the ISR.
func shrink(t testing.TB, im *metadata.Image, topic int) *metadata.Image {
	d := metadata.NewDelta(im)
	r := metadata.NewPartitionChange(1)
	r.TopicID, r.PartitionID, r.ISR = bigcluster.TopicID(topic), 7, []ident.NodeID{bigcluster.BrokerID(0), bigcluster.BrokerID(1)}
	if err := d.Replay(r); err != nil {
		t.Fatal(err)
	}
	offset, epoch := im.Position()
	return d.Image(offset+1, epoch)
}

// live is how much of the heap is in use once garbage is gone.
func live() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestAllocationsOfOnePartitionsChangeGrowWithTheLogarithm(t *testing.T) {
	change := func(s bigcluster.Shape) (allocs, bytes float64) {
		im := imageOf(t, s)
		topic := 0
		return bigcluster.Spent(500, func() {
			im = shrink(t, im, topic%s.Topics)
			topic += 7
		})
	}
	for _, large := range bigcluster.Shapes {
		small := large
		small.Topics /= 100
		a1, b1 := change(small)
		a2, b2 := change(large)
		t.Logf("%s: %.1f allocations of %.0f bytes; %s: %.1f of %.0f", small, a1, b1, large, a2, b2)
		// A hundred times as much is a level or two more of at most 33 entries.
		if a2 > a1+6 || b2 > 2*b1 {
			t.Errorf("%s: a change costs %.1f allocations of %.0f bytes, %s: %.1f of %.0f", small, a1, b1, large, a2, b2)
		}
	}
}

func TestAllocationsOfWritingASnapshotDoNotGrowWithThePartitions(t *testing.T) {
	for _, s := range bigcluster.Shapes {
		im := imageOf(t, s)
		allocs, bytes := bigcluster.Spent(1, func() {
			if err := metadata.WriteSnapshot(discard{}, im, metadata.SnapshotHeader{}); err != nil {
				t.Fatal(err)
			}
		})
		t.Logf("%s: %.0f allocations of %.0f bytes", s, allocs, bytes)
		// What is left are the iterators over each topic's partitions and configs.
		if allocs > float64(6*s.Topics) || bytes > 64<<20 {
			t.Errorf("%s: a snapshot takes %.0f allocations of %.0f bytes", s, allocs, bytes)
		}
	}
}

// A load may take for each partition what the image keeps of it and the record that told of it.
func TestAllocationsOfLoadingASnapshotAreTheImagesOwn(t *testing.T) {
	for _, s := range bigcluster.Shapes {
		im := imageOf(t, s)
		id := im.SnapshotID()
		raw := metadata.AppendSnapshot(nil, im, metadata.SnapshotHeader{})
		before := live()
		allocs, bytes := bigcluster.Spent(1, func() {
			var err error
			if im, _, err = metadata.ReadSnapshot(raw, id); err != nil {
				t.Fatal(err)
			}
		})
		image := float64(live() - before)
		runtime.KeepAlive(raw)
		partitions, topics := float64(s.Topics*s.Partitions), float64(s.Topics)
		t.Logf("%s: %.1f allocations a partition, %.1f times the image's %.0f bytes", s, allocs/partitions, bytes/image, image)
		// A partition is itself, three lists and its record; a topic its map, name and configs.
		if allocs > 6*partitions+80*topics || bytes > 2.5*image {
			t.Errorf("%s: a load takes %.1f allocations a partition and %.1f times the %.0f bytes of the image", s, allocs/partitions, bytes/image, image)
		}
		if got := im.NumTopics(); got != s.Topics {
			t.Errorf("%d topics", got)
		}
	}
}

func TestUntouchedPartsAreShared(t *testing.T) {
	s := bigcluster.Shape{Topics: 10, Partitions: 10, Brokers: 3}
	before := imageOf(t, s)
	after := shrink(t, before, 5)
	for topic := range before.Topics() {
		now, _ := after.TopicByID(topic.ID)
		if changed := topic.ID == bigcluster.TopicID(5); (now != topic) != changed {
			t.Errorf("topic %s is another: %v, want %v", topic.Name, now != topic, changed)
		}
	}
}

func TestCompareSkipsWhatIsShared(t *testing.T) {
	before := imageOf(t, bigcluster.Shape{Topics: 10, Partitions: 10, Brokers: 3})
	after := shrink(t, before, 5)
	d := metadata.Compare(before, after)
	if got := d.ChangedPartitions(); len(got) != 1 || got[0] != (ident.TopicPartition{Topic: bigcluster.TopicID(5), Index: 7}) {
		t.Errorf("changed partitions: %v", got)
	}
	if metadata.Compare(after, after).Changed() {
		t.Error("an image differs from itself")
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

func BenchmarkOnePartitionsChange(b *testing.B) {
	for _, s := range []bigcluster.Shape{{Topics: 10, Partitions: 100, Brokers: 12}, bigcluster.Shapes[0], {Topics: 100, Partitions: 10, Brokers: 12}, bigcluster.Shapes[1]} {
		b.Run(s.String(), func(b *testing.B) {
			im := imageOf(b, s)
			b.ReportAllocs()
			for b.Loop() {
				im = shrink(b, im, 5)
			}
		})
	}
}

func BenchmarkDecodePartitionChange(b *testing.B) {
	r := metadata.NewPartitionChange(2)
	r.ISR = []ident.NodeID{1, 2}
	raw := metadata.Encode(nil, r)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := metadata.Decode(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSnapshot(b *testing.B) {
	for _, s := range bigcluster.Shapes {
		im := imageOf(b, s)
		raw := metadata.AppendSnapshot(nil, im, metadata.SnapshotHeader{})
		b.Run("Write/"+s.String(), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if err := metadata.WriteSnapshot(discard{}, im, metadata.SnapshotHeader{}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("Load/"+s.String(), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := metadata.ReadSnapshot(raw, im.SnapshotID()); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("Compare/"+s.String(), func(b *testing.B) {
			other, _, err := metadata.ReadSnapshot(raw, im.SnapshotID())
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if metadata.Compare(im, other).Changed() {
					b.Fatal("the same state differs")
				}
			}
		})
	}
}

// BenchmarkReplay loads the log that a cluster began with, as a voter does at its start when there is no snapshot.
func BenchmarkReplay(b *testing.B) {
	for _, s := range bigcluster.Shapes {
		var log []byte
		var records []metadata.Record
		next := ident.Offset(0)
		for r := range s.Records() {
			if records = append(records, r); len(records) == 1000 {
				log = append(log, metadata.EncodeBatch(next, 1, 0, records...)...)
				next += 1000
				records = records[:0]
			}
		}
		b.Run(s.String(), func(b *testing.B) {
			b.SetBytes(int64(len(log)))
			b.ReportAllocs()
			for b.Loop() {
				l := metadata.NewLoader(metadata.Empty(), -1)
				for batch, err := range metadata.ReadBatches(log) {
					if err == nil {
						err = l.Load(batch)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				l.Publish()
			}
		})
	}
}
