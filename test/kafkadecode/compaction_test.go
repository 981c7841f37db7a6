//go:build kafkadecode

package kafkadecode

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/vfs"
)

var keyedLine = regexp.MustCompile(`^\| offset: (\d+) CreateTime: (\d+) .*key: (\S+)(?: payload: (.*))?$`)

// Batches that compaction has rewritten are whole to Kafka, in every codec: offsets, timestamps, what was removed, what
// was emptied, the delete horizon, and the indexes beside them.
func TestKafkaReadsOurCompactedSegments(t *testing.T) {
	const horizon = 1_700_000_100_000
	dir := filepath.Join(t.TempDir(), "table-0")
	l, _, err := log.Open(vfs.OS(), dir, log.Config{Settings: log.Settings{
		SegmentBytes: 6000, IndexIntervalBytes: 300, Compaction: log.Compaction{Enabled: true, DeleteRetentionMs: 100_000},
	}})
	if err != nil {
		t.Fatal(err)
	}
	written, last := map[int64]string{}, map[string]int64{}
	var keep batch.Rewriter // has the coders
	for i := range 120 {
		b := batch.NewBuilder(0, 0, 1_699_999_000_000+int64(i)*1000).Producer(int64(i%3), 0, int32(i/3*6))
		for j := range 6 {
			offset := int64(i*6 + j)
			key, value := fmt.Sprintf("key-%d", (i*7+j*3)%40), []byte(fmt.Sprintf("value-%d-%s", offset, strings.Repeat("x", j*9)))
			written[offset] = fmt.Sprintf("%d %s %s", 1_699_999_000_000+int64(i)*1000+int64(j), key, value)
			if j == 4 {
				value, written[offset] = nil, fmt.Sprintf("%d %s ", 1_699_999_000_000+int64(i)*1000+int64(j), key)
			}
			last[key] = offset
			b.AppendAt(1_699_999_000_000+int64(i)*1000+int64(j), []byte(key), value)
		}
		packed, err := keep.Compress(b.Build(), batch.Compression(i%5))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.AppendAsLeader(packed, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Roll(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	c, err := l.BeginClean(horizon-100_000, l.EndOffset(), log.CleanOptions{Map: log.NewOffsetMap(1 << 20)})
	if err != nil {
		t.Fatal(err)
	}
	if done, err := l.EndClean(c, c.Run()); err != nil || !done {
		t.Fatalf("done %v, %v", done, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(dir + "/*.log")
	if err != nil || len(segments) < 2 {
		t.Fatalf("segments %v, %v", segments, err)
	}
	// Its script takes gaps for a complaint; here they are what is wanted.
	_, complaints := decode(t, dir)
	for line := range strings.Lines(complaints) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "decode: ") && !strings.Contains(line, "Non-consecutive offsets") && !strings.HasPrefix(line, "(") {
			t.Errorf("Kafka: %s", line)
		}
	}
	out, err := exec.Command(script("run.sh"), "kafka.tools.DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", strings.Join(segments, ",")).Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), fmt.Sprintf("deleteHorizonMs: OptionalLong[%d]", horizon)) || !strings.Contains(string(out), "count: 0 ") {
		t.Error("Kafka sees no delete horizon, or no emptied batch")
	}
	seen := 0
	for line := range strings.Lines(string(out)) {
		m := keyedLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		seen++
		var offset int64
		if _, err := fmt.Sscan(m[1], &offset); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%s %s %s", m[2], m[3], m[4]); got != written[offset] || last[m[3]] != offset {
			t.Errorf("offset %d: Kafka sees %q, written was %q, the last of its key is at %d", offset, got, written[offset], last[m[3]])
		}
	}
	if seen != len(last) {
		t.Errorf("Kafka sees %d records, there are %d keys", seen, len(last))
	}
}
