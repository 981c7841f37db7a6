package metadata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
)

func TestSnapshotNames(t *testing.T) {
	id := SnapshotID{EndOffset: 12345678901, Epoch: 7}
	const name = "00000000012345678901-0000000007.checkpoint"
	if got := id.FileName(); got != name {
		t.Errorf("got %s", got)
	}
	if got, ok := ParseSnapshotName(name); !ok || got != id {
		t.Errorf("parsed %v, %v", got, ok)
	}
	for _, bad := range []string{"", "bootstrap.checkpoint", name + ".part", name + ".deleted", name[1:], "0" + name,
		"-0000000012345678901-0000000007.checkpoint", "+0000000012345678901-0000000007.checkpoint",
		"99999999999999999999-0000000007.checkpoint", "00000000012345678901-9999999999.checkpoint"} {
		if got, ok := ParseSnapshotName(bad); ok {
			t.Errorf("%q parses as %v", bad, got)
		}
	}
	if id.Compare(SnapshotID{1 << 40, 1}) >= 0 || id.Compare(SnapshotID{id.EndOffset, 6}) <= 0 || id.Compare(id) != 0 {
		t.Error("order")
	}
}

func smallImage(t testing.TB, topics int) *Image {
	t.Helper()
	d := NewDelta(Empty())
	records := []Record{&FeatureLevelRecord{Name: FeatureMetadataVersion, FeatureLevel: LatestMetadataVersion}}
	for i := range topics {
		records = append(records, &TopicRecord{Name: fmt.Sprint("topic-", i), TopicID: ident.UUID{1, byte(i >> 8), byte(i)}})
	}
	for _, r := range records {
		if err := d.Replay(r); err != nil {
			t.Fatal(err)
		}
	}
	return d.Image(ident.Offset(topics), 3)
}

func TestLargeSnapshotsHaveBatchesOfBoundedSize(t *testing.T) {
	im := smallImage(t, 3000)
	raw := AppendSnapshot(nil, im, SnapshotHeader{LastContainedLogTimestamp: 5})
	n := 0
	for b, err := range ReadBatches(raw) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; len(b.Records) > maxSnapshotBatchRecords || b.Epoch != 3 || b.Timestamp != 5 {
			t.Errorf("batch %d: %d records, epoch %d, timestamp %d", n, len(b.Records), b.Epoch, b.Timestamp)
		}
	}
	if n != 5 { // header, 3001 records in three, footer
		t.Errorf("%d batches", n)
	}
	if again, _, err := ReadSnapshot(raw, im.SnapshotID()); err != nil || !again.Equal(im) {
		t.Errorf("read again: %v", err)
	}
}

func TestBootstrapSnapshotHasVotersAndThePositionOfAnEmptyLog(t *testing.T) {
	h := SnapshotHeader{KRaftVersion: 1, Voters: &batch.Voters{Voters: []batch.Voter{{ID: 3}}}}
	raw := AppendBootstrap(nil, nil, h)
	im, got, err := ReadSnapshot(raw, BootstrapID)
	if err != nil || !im.Equal(Empty()) || len(got.Voters.Voters) != 1 || got.Voters.Voters[0].ID != 3 {
		t.Fatalf("%v, %+v", err, got)
	}
	if !bytes.Equal(raw, AppendSnapshot(nil, Empty(), h)) {
		t.Error("the snapshot of the empty image is another")
	}
	raw = AppendBootstrap(nil, []Record{&FeatureLevelRecord{Name: FeatureMetadataVersion, FeatureLevel: 27}}, SnapshotHeader{})
	if im, _, err = ReadSnapshot(raw, BootstrapID); err != nil || im.Level() != 27 {
		t.Errorf("%v, level %d", err, im.Level())
	}
}

func TestSnapshotsThatAreNotWholeAreRefused(t *testing.T) {
	im := smallImage(t, 2)
	whole := AppendSnapshot(nil, im, SnapshotHeader{})
	header := func() *batch.Builder {
		return batch.NewBuilder(0, 3, 1).AppendControl(batch.SnapshotHeaderType, batch.SnapshotHeader{}.Encode())
	}
	footer := func(at ident.Offset) []byte {
		return batch.NewBuilder(at, 3, 1).AppendControl(batch.SnapshotFooterType, batch.SnapshotFooter{}.Encode()).Build()
	}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	noFooter := whole[:len(whole)-len(footer(0))]
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	leader := batch.LeaderChange{}
	for _, tc := range []struct {
		name, want string
		raw        []byte
	}{
		{"empty", ErrSnapshotFooter.Error(), nil},
		{"no footer", ErrSnapshotFooter.Error(), noFooter},
		{"cut off", batch.ErrTruncated.Error(), whole[:len(whole)-1]},
		{"flipped bit", batch.ErrCRC.Error(), flipped},
		{"no header", ErrSnapshotHeader.Error(), EncodeBatch(0, 3, 1, &NoOpRecord{})},
		{"footer first", ErrSnapshotHeader.Error(), footer(0)},
		{"two headers", "second header", header().AppendControl(batch.SnapshotHeaderType, batch.SnapshotHeader{}.Encode()).Build()},
		{"record after the footer", ErrSnapshotFooter.Error(), join(header().Build(), footer(1), EncodeBatch(2, 3, 1, &NoOpRecord{}))},
		{"control record after the footer", ErrSnapshotFooter.Error(), join(header().Build(), footer(1), footer(2))},
		{"gap", "begins at offset 2, want 1", join(header().Build(), footer(2))},
		{"leader change", "does not belong", header().AppendControl(batch.LeaderChangeType, leader.Encode()).Build()},
		{"misfit", "offset 1: " + ErrReplay.Error(), join(header().Build(), EncodeBatch(1, 3, 1, &RemoveTopicRecord{}), footer(2))},
		{"bad voters", "Voters", header().AppendControl(batch.VotersType, []byte{0}).Build()},
	} {
		_, _, err := ReadSnapshot(tc.raw, im.SnapshotID())
		if !errors.Is(err, ErrSnapshot) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
		for _, part := range []error{ErrSnapshotHeader, ErrSnapshotFooter, batch.ErrCRC, batch.ErrTruncated} {
			if strings.Contains(tc.want, part.Error()) != errors.Is(err, part) {
				t.Errorf("%s: %v is not told apart by %v", tc.name, err, part)
			}
		}
	}
	for cut := range whole {
		if _, _, err := ReadSnapshot(whole[:cut], im.SnapshotID()); err == nil {
			t.Fatalf("the first %d of %d bytes are taken", cut, len(whole))
		}
	}
	for bit := range 8 * len(whole) {
		flipped := bytes.Clone(whole)
		flipped[bit/8] ^= 1 << (bit % 8)
		if _, _, err := ReadSnapshot(flipped, im.SnapshotID()); err == nil {
			t.Fatalf("bit %d of byte %d of %d is flipped, and it is taken", bit%8, bit/8, len(whole))
		}
	}
}

func TestSnapshotReaderTakesPiecesCutAnywhere(t *testing.T) {
	im := smallImage(t, 40)
	raw := AppendSnapshot(nil, im, SnapshotHeader{LastContainedLogTimestamp: 5, KRaftVersion: 1, Voters: &batch.Voters{Voters: []batch.Voter{{ID: 3}}}})
	for size := 1; size < len(raw); size += 1 + size/3 {
		r := NewSnapshotReader(im.SnapshotID())
		for rest := raw; len(rest) > 0; {
			n := min(size, len(rest))
			piece := bytes.Clone(rest[:n])
			if err := r.Append(piece); err != nil {
				t.Fatalf("pieces of %d bytes: %v", size, err)
			}
			clear(piece) // it is the caller's again
			rest = rest[n:]
		}
		got, h, err := r.Finish()
		if err != nil || !got.Equal(im) || h.LastContainedLogTimestamp != 5 || len(h.Voters.Voters) != 1 {
			t.Fatalf("pieces of %d bytes: %v, %+v", size, err, h)
		}
	}
	r := NewSnapshotReader(im.SnapshotID())
	if err := r.Append(raw[:len(raw)-1]); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Finish(); !errors.Is(err, ErrSnapshot) || !errors.Is(err, batch.ErrTruncated) {
		t.Fatalf("cut off: %v", err)
	}
	if err := r.Append(raw[len(raw)-1:]); !errors.Is(err, ErrSnapshot) {
		t.Fatalf("goes on after an error: %v", err)
	}
}

type failingWriter struct{ left int }

func (w *failingWriter) Write(b []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, errors.New("disk full")
	}
	return len(b), nil
}

func TestWriteSnapshotReportsEveryFailedWrite(t *testing.T) {
	im := smallImage(t, 3000)
	for n := range 5 {
		if err := WriteSnapshot(&failingWriter{n}, im, SnapshotHeader{}); err == nil || err.Error() != "disk full" {
			t.Errorf("after %d writes: %v", n, err)
		}
	}
	if err := WriteSnapshot(&failingWriter{5}, im, SnapshotHeader{}); err != nil {
		t.Error(err)
	}
}

func FuzzReadSnapshot(f *testing.F) {
	f.Add(AppendSnapshot(nil, smallImage(f, 3), SnapshotHeader{KRaftVersion: 1, Voters: &batch.Voters{}}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		id := SnapshotID{EndOffset: 9, Epoch: 1}
		fixChecksums(raw)
		im, h, err := ReadSnapshot(raw, id)
		if err != nil {
			return
		}
		again, _, err := ReadSnapshot(AppendSnapshot(nil, im, h), id)
		if err != nil || !again.Equal(im) {
			t.Fatalf("the snapshot of what was read: %v", err)
		}
	})
}

// fixChecksums puts the right CRC into every batch, so that a fuzzer gets behind it.
func fixChecksums(raw []byte) {
	for {
		one, rest, _, err := batch.Next(raw)
		if err != nil {
			return
		}
		binary.BigEndian.PutUint32(one[17:], crc32.Checksum(one[21:], crc32.MakeTable(crc32.Castagnoli)))
		raw = rest
	}
}

// A snapshot's records are loaded in place, by the code that replays them one by one; in whatever order they come, the
// image must be the same, and be as immutable.
func TestLoadingInPlaceGivesTheSameImage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, filled := NewDelta(Empty()), loading()
		n := rapid.IntRange(0, 60).Draw(t, "records")
		for range n {
			r := drawFitting(t, d.Image(1, 1))
			again, err := Decode(Encode(nil, r)) // what is loaded in place becomes the image's
			if err != nil {
				t.Fatal(err)
			}
			if err1, err2 := d.Replay(r), filled.Replay(again); (err1 == nil) != (err2 == nil) {
				t.Fatalf("%T: replayed %v, loaded %v", r, err1, err2)
			}
		}
		want, got := d.Image(ident.Offset(n), 1), filled.Image(ident.Offset(n), 1)
		if !got.Equal(want) {
			t.Fatalf("loaded in place it is another image:\n%v\n%v", slices.Collect(got.Records()), slices.Collect(want.Records()))
		}
		before := encodeSeq(got.Records())
		next := NewDelta(got)
		for range 5 {
			if err := next.Replay(drawFitting(t, next.Image(1, 1))); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(before, encodeSeq(got.Records())) {
			t.Fatal("a later delta has written into the image")
		}
	})
}
