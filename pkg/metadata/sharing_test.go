package metadata

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/highwater-io/highwater/pkg/ident"
)

// bigImage has that many topics, with ten partitions each.
func bigImage(t testing.TB, topics int) *Image {
	t.Helper()
	d := NewDelta(smallImage(t, topics))
	for topic := range d.Base().Topics() {
		for i := range int32(10) {
			r := &PartitionRecord{Version: 2, PartitionID: i, TopicID: topic.ID, Replicas: []ident.NodeID{1, 2, 3}, ISR: []ident.NodeID{1, 2, 3}, Leader: 1,
				Directories: make([]ident.UUID, 3)}
			if err := d.Replay(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	return d.Image(1<<20, 1)
}

func shrink(t testing.TB, im *Image, id ident.UUID) *Image {
	t.Helper()
	d := NewDelta(im)
	r := NewPartitionChange(2)
	r.TopicID, r.PartitionID, r.ISR = id, 7, []ident.NodeID{1, 2}
	if err := d.Replay(r); err != nil {
		t.Fatal(err)
	}
	offset, epoch := im.Position()
	return d.Image(offset+1, epoch)
}

func TestOnePartitionsChangeDoesNotCopyTheImage(t *testing.T) {
	bytesPerChange := func(topics int) uint64 {
		im := bigImage(t, topics)
		id := ident.UUID{1, 0, 5}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const changes = 200
		for range changes {
			im = shrink(t, im, id)
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / changes
	}
	small, large := bytesPerChange(10), bytesPerChange(2000)
	t.Logf("a change costs %d bytes with 100 partitions, %d with 20000", small, large)
	if large > 3*small+4096 {
		t.Errorf("a change costs %d bytes with 100 partitions, %d with 20000", small, large)
	}
}

func TestUntouchedPartsAreShared(t *testing.T) {
	before := bigImage(t, 10)
	after := shrink(t, before, ident.UUID{1, 0, 5})
	for topic := range before.Topics() {
		now, _ := after.TopicByID(topic.ID)
		if changed := topic.ID == (ident.UUID{1, 0, 5}); (now != topic) != changed {
			t.Errorf("topic %s is another: %v, want %v", topic.Name, now != topic, changed)
		}
	}
}

func BenchmarkOnePartitionsChange(b *testing.B) {
	for _, topics := range []int{10, 10000} {
		b.Run(fmt.Sprint(topics*10, " partitions"), func(b *testing.B) {
			im := bigImage(b, topics)
			b.ReportAllocs()
			for b.Loop() {
				im = shrink(b, im, ident.UUID{1, 0, 5})
			}
		})
	}
}

func BenchmarkDecodePartitionChange(b *testing.B) {
	r := NewPartitionChange(2)
	r.ISR = []ident.NodeID{1, 2}
	raw := Encode(nil, r)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSnapshot(b *testing.B) {
	im := bigImage(b, 1000)
	b.ReportAllocs()
	raw := AppendSnapshot(nil, im, SnapshotHeader{})
	b.SetBytes(int64(len(raw)))
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			raw = AppendSnapshot(raw[:0], im, SnapshotHeader{})
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := ReadSnapshot(raw, im.SnapshotID()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
