package wire

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// drawFetch draws a result and the same as kmsg's message. Records lie in file, partly in memory.
func drawFetch(t *rapid.T, file *os.File, content []byte) (*FetchResult, *kmsg.FetchResponse) {
	i16 := rapid.Int16()
	i32 := rapid.Int32()
	i64 := rapid.Int64()
	orUnset32 := rapid.OneOf(rapid.Just(int32(-1)), i32)
	orUnset64 := rapid.OneOf(rapid.Just(int64(-1)), i64)
	id := rapid.SliceOfN(rapid.Byte(), 16, 16)

	r := &FetchResult{ThrottleMillis: i32.Draw(t, "throttle"), ErrorCode: i16.Draw(t, "error"), SessionID: i32.Draw(t, "session")}
	k := kmsg.NewPtrFetchResponse()
	k.ThrottleMillis, k.ErrorCode, k.SessionID = r.ThrottleMillis, r.ErrorCode, r.SessionID
	for range rapid.IntRange(0, 3).Draw(t, "topics") {
		topic := FetchTopic{Topic: rapid.StringMatching(`[a-z._-]{0,200}`).Draw(t, "topic"), TopicID: [16]byte(id.Draw(t, "id"))}
		kt := kmsg.NewFetchResponseTopic()
		kt.Topic, kt.TopicID = topic.Topic, topic.TopicID
		for range rapid.IntRange(0, 4).Draw(t, "partitions") {
			p := NewFetchPartition(i32.Draw(t, "partition"))
			kp := kmsg.NewFetchResponseTopicPartition()
			p.ErrorCode = i16.Draw(t, "error")
			p.HighWatermark, p.LastStableOffset, p.LogStartOffset = i64.Draw(t, "hw"), i64.Draw(t, "lso"), i64.Draw(t, "start")
			p.PreferredReadReplica = i32.Draw(t, "preferred")
			p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = orUnset32.Draw(t, "dEpoch"), orUnset64.Draw(t, "dEnd")
			p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = orUnset32.Draw(t, "leader"), orUnset32.Draw(t, "epoch")
			p.SnapshotID.EndOffset, p.SnapshotID.Epoch = orUnset64.Draw(t, "sEnd"), orUnset32.Draw(t, "sEpoch")
			if rapid.Bool().Draw(t, "committed") {
				p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
				for range rapid.IntRange(0, 2).Draw(t, "aborted") {
					a := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
					a.ProducerID, a.FirstOffset = i64.Draw(t, "producer"), i64.Draw(t, "first")
					p.AbortedTransactions = append(p.AbortedTransactions, a)
				}
			}
			kp.RecordBatches = []byte{}
			for range rapid.IntRange(0, 3).Draw(t, "segments") {
				from := rapid.IntRange(0, len(content)).Draw(t, "from")
				to := rapid.IntRange(from, len(content)).Draw(t, "to")
				kp.RecordBatches = append(kp.RecordBatches, content[from:to]...)
				if rapid.Bool().Draw(t, "inFile") {
					p.Records = append(p.Records, Segment{File: file, Offset: int64(from), Length: int64(to - from)})
				} else {
					p.Records = append(p.Records, Segment{Bytes: content[from:to]})
				}
			}
			kp.Partition, kp.ErrorCode, kp.HighWatermark, kp.LastStableOffset = p.Partition, p.ErrorCode, p.HighWatermark, p.LastStableOffset
			kp.LogStartOffset, kp.PreferredReadReplica, kp.AbortedTransactions = p.LogStartOffset, p.PreferredReadReplica, p.AbortedTransactions
			kp.DivergingEpoch, kp.CurrentLeader, kp.SnapshotID = p.DivergingEpoch, p.CurrentLeader, p.SnapshotID
			topic.Partitions = append(topic.Partitions, p)
			kt.Partitions = append(kt.Partitions, kp)
		}
		r.Topics = append(r.Topics, topic)
		k.Topics = append(k.Topics, kt)
	}
	for range rapid.IntRange(0, 3).Draw(t, "brokers") {
		b := kmsg.NewFetchResponseBroker()
		b.NodeID, b.Host, b.Port = i32.Draw(t, "node"), rapid.StringN(0, 40, 160).Draw(t, "host"), i32.Draw(t, "port")
		if rapid.Bool().Draw(t, "racked") {
			b.Rack = kmsg.StringPtr(rapid.StringN(0, 10, 40).Draw(t, "rack"))
		}
		r.Brokers = append(r.Brokers, b)
		k.Brokers = append(k.Brokers, b)
	}
	return r, k
}

// contentFile makes a file of n bytes that differ from their neighbours.
func contentFile(t testing.TB, n int) (*os.File, []byte) {
	t.Helper()
	content := make([]byte, n)
	for i := range content {
		content[i] = byte(i*7 + i>>8)
	}
	name := filepath.Join(t.TempDir(), "segment.log")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file, content
}

func TestFetchEncoderWritesWhatKmsgWrites(t *testing.T) {
	file, content := contentFile(t, 5000)
	rapid.Check(t, func(t *rapid.T) {
		r, k := drawFetch(t, file, content)
		version := rapid.Int16Range(4, 18).Draw(t, "version")
		k.SetVersion(version)
		resp := EncodeFetch(version, r)
		got, err := resp.AppendTo(nil)
		if err != nil {
			t.Fatal(err)
		}
		if want := k.AppendTo(nil); !bytes.Equal(got, want) {
			t.Fatalf("version %d:\n got %x\nwant %x", version, got, want)
		}
		if resp.Size() != int64(len(got)) {
			t.Fatalf("Size() = %d, encoded %d bytes", resp.Size(), len(got))
		}
	})
}

func TestFetchResponseReleasesEachPartitionOnce(t *testing.T) {
	released := map[int32]int{}
	result := &FetchResult{Topics: []FetchTopic{{Topic: "t"}}}
	for i := range int32(3) {
		p := NewFetchPartition(i)
		if i != 1 {
			p.Release = func() { released[i]++ }
		}
		result.Topics[0].Partitions = append(result.Topics[0].Partitions, p)
	}
	EncodeFetch(12, result).Release()
	if len(released) != 2 || released[0] != 1 || released[2] != 1 {
		t.Fatalf("released %v, want partitions 0 and 2 once each", released)
	}
}
