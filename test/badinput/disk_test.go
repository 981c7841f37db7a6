package badinput

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// segments lists the log files of a partition's or the metadata log's directory.
func (n *node) segments(dir string) []string {
	n.Helper()
	found, err := filepath.Glob(filepath.Join(n.path(dir), "*.log"))
	if err != nil || len(found) == 0 {
		n.Fatalf("no segments in %s: %v", dir, err)
	}
	slices.Sort(found)
	return found
}

// edit changes a file's bytes.
func (n *node) edit(file string, change func([]byte) []byte) {
	n.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		n.Fatal(err)
	}
	if err := os.WriteFile(file, change(content), 0o644); err != nil {
		n.Fatal(err)
	}
}

// What a crash tore had not been flushed, and is cut off.
func TestTruncatedSegmentIsRepairedWithALineInTheLogAndTheRestIsServed(t *testing.T) {
	n := newNode(t)
	n.start()
	n.createTopic("orders", nil)
	n.produce("orders", 0, 20)
	n.kill()
	segments := n.segments("data/orders-0")
	n.edit(segments[len(segments)-1], func(b []byte) []byte { return b[:len(b)-10] })
	n.start()
	n.says("log recovery", "topic=orders", "cut ", "from offset 19 on")
	if got := n.consume("orders"); !slices.Equal(got, numbers(19)) {
		t.Errorf("the partition holds %v, want the first 19 records", got)
	}
	n.produce("orders", 19, 25)
	if got := n.consume("orders"); !slices.Equal(got, numbers(25)) {
		t.Errorf("after more records it holds %v", got)
	}
}

// What a clean stop had flushed and is gone is damage: said, not served, and its offset is given to nobody else.
func TestSegmentTruncatedAfterACleanStopIsDamagedAndTheRestIsServed(t *testing.T) {
	n := newNode(t)
	n.start()
	n.createTopic("orders", nil)
	n.produce("orders", 0, 20)
	n.process.Signal(15)
	if code := n.ends(); code != 0 {
		t.Fatalf("a clean stop ended with %d", code)
	}
	segments := n.segments("data/orders-0")
	n.edit(segments[len(segments)-1], func(b []byte) []byte { return b[:len(b)-10] })
	n.start()
	n.says("log recovery", "topic=orders", "offsets 19 to 19 are damaged")
	if got := n.consumeFirst("orders", 19); !slices.Equal(got, numbers(19)) {
		t.Errorf("the partition holds %v, want the first 19 records", got)
	}
	n.produce("orders", 20, 25)
}

func TestLostIndexesAreMadeAgain(t *testing.T) {
	n := newNode(t)
	n.start()
	small := "1048576"
	n.createTopic("orders", map[string]*string{"segment.bytes": &small})
	n.produce("orders", 0, 20)
	n.kill()
	for _, pattern := range []string{"*.index", "*.timeindex", "*.snapshot", "leader-epoch-checkpoint"} {
		files, err := filepath.Glob(filepath.Join(n.path("data/orders-0"), pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	n.start()
	if got := n.consume("orders"); !slices.Equal(got, numbers(20)) {
		t.Errorf("the partition holds %v", got)
	}
}

// The metadata log is the truth about the cluster: nothing may be cut off from its middle.
func TestCorruptMiddleOfTheMetadataLogStopsTheNodeWithAClearMessage(t *testing.T) {
	n := newNode(t)
	n.start()
	n.createTopic("orders", nil)
	n.kill()
	segment := n.segments("metadata/__cluster_metadata-0")[0]
	var size int
	n.edit(segment, func(b []byte) []byte {
		size = len(b)
		b[len(b)/2] ^= 0xff
		return b
	})
	n.run()
	if code := n.ends(); code == 0 {
		t.Errorf("the node ended with %d", code)
	}
	n.says("open the metadata log", "__cluster_metadata-0", "could lose committed records", "restore the disk or replace this replica")
	if info, err := os.Stat(segment); err != nil || info.Size() != int64(size) {
		t.Errorf("the segment was touched: %v, %v, was %d bytes", info, err, size)
	}
}

func TestTornEndOfTheMetadataLogIsCutOffWithALineInTheLog(t *testing.T) {
	n := newNode(t)
	n.start()
	n.createTopic("orders", nil)
	n.produce("orders", 0, 5)
	n.kill()
	segments := n.segments("metadata/__cluster_metadata-0")
	n.edit(segments[len(segments)-1], func(b []byte) []byte { return append(b, make([]byte, 40)...) })
	n.start()
	n.says("metadata log recovery", "a write torn by a crash")
	if got := n.consume("orders"); !slices.Equal(got, numbers(5)) {
		t.Errorf("the partition holds %v", got)
	}
}

func TestUnreadableVoteStopsTheNode(t *testing.T) {
	n := newNode(t)
	n.start()
	n.kill()
	n.edit(n.path("metadata/__cluster_metadata-0/quorum-state"), func(b []byte) []byte { return b[:len(b)/2] })
	n.run()
	if code := n.ends(); code == 0 {
		t.Errorf("the node ended with %d: it may have forgotten whom it voted for", code)
	}
	n.says("quorum-state")
}

// A partition whose records rotted on the disk is not served as if nothing were: reading gives an error.
func TestRottenRecordsOfAPartitionAreNotSilentlySkipped(t *testing.T) {
	n := newNode(t)
	n.start()
	n.createTopic("orders", nil)
	n.produce("orders", 0, 20)
	n.kill()
	segments := n.segments("data/orders-0")
	var size int
	n.edit(segments[0], func(b []byte) []byte {
		size = len(b)
		pos := 0
		for range 10 {
			pos += 12 + int(binary.BigEndian.Uint32(b[pos+8:]))
		}
		b[pos+12+int(binary.BigEndian.Uint32(b[pos+8:]))-1] ^= 0xff // the last byte of the record at offset 10
		return b
	})
	n.start()
	n.says("log recovery", "offsets 10 to 10 are damaged", "topic=orders")
	// What is whole before it and behind it is served, and writing goes on; nothing stands in for what is lost.
	if got := n.consumeFirst("orders", 10); !slices.Equal(got, numbers(10)) {
		t.Errorf("before the damage the partition holds %v", got)
	}
	n.produce("orders", 20, 25)
	client := n.kgo(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"orders": {0: kgo.NewOffset().At(11)}}))
	var behind []string
	for len(behind) < 14 {
		fetches := client.PollFetches(n.context())
		if err := fetches.Err0(); err != nil {
			t.Fatalf("after %v: %v", behind, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { behind = append(behind, string(r.Value)) })
	}
	if !slices.Equal(behind, numbers(25)[11:]) {
		t.Errorf("behind the damage the partition holds %v", behind)
	}
	n.eventually("the damage is counted", func() error {
		if got := n.metric("highwater_log_damaged_replicas"); got != 1 {
			return fmt.Errorf("%v damaged replicas", got)
		}
		return nil
	})
	if info, err := os.Stat(segments[0]); err != nil || info.Size() < int64(size) {
		t.Errorf("the segment was cut: %v, %v, had %d bytes", info, err, size)
	}
}

// A version that is started on what a later one wrote says so and cuts nothing off.
func TestRecordsOfALaterFormatStayAndAreNamed(t *testing.T) {
	n := newNode(t)
	n.start()
	n.createTopic("orders", nil)
	n.produce("orders", 0, 20)
	n.kill()
	segment := n.segments("data/orders-0")[0]
	var size int
	n.edit(segment, func(b []byte) []byte {
		size = len(b)
		last := 0
		for next := 0; next+12 < size; next += 12 + int(binary.BigEndian.Uint32(b[next+8:])) {
			last = next
		}
		b[last+16] = 3 // the magic
		return b
	})
	n.start()
	n.says("not magic 2 but 3: a later version wrote it, or it is damaged", "topic=orders")
	if got := n.consumeFirst("orders", 19); !slices.Equal(got, numbers(19)) {
		t.Errorf("the partition holds %v, want the records before those of the later format", got)
	}
	if info, err := os.Stat(segment); err != nil || info.Size() < int64(size) {
		t.Errorf("the segment has %d bytes, %v; it had %d", info.Size(), err, size)
	}
}

func TestPartitionDirectoryOfALaterVersionIsRefusedAndNotTouched(t *testing.T) {
	n := newNode(t)
	n.start()
	n.createTopic("orders", nil)
	n.produce("orders", 0, 5)
	n.kill()
	n.edit(n.path("data/orders-0/partition.metadata"), func(b []byte) []byte {
		return bytes.Replace(b, []byte("version: 0"), []byte("version: 1"), 1)
	})
	n.run()
	n.unready("is offline (Unreadable)", "partition.metadata", "run the version that wrote it, or a newer one")
	n.kill()
	n.edit(n.path("data/orders-0/partition.metadata"), func(b []byte) []byte {
		return bytes.Replace(b, []byte("version: 1"), []byte("version: 0"), 1)
	})
	n.start()
	if got := n.consume("orders"); !slices.Equal(got, numbers(5)) {
		t.Errorf("the partition holds %v", got)
	}
}
