//go:build kafkadecode

package kafkadecode

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// A dumped is one record as Kafka's decoder printed it.
type dumped struct {
	offset    int64
	valueSize int
	control   string // LeaderChange, SnapshotHeader, ...; empty for a metadata record
	kind      string // REGISTER_BROKER_RECORD, ...
	version   int16
	data      map[string]any
	raw       string
}

var (
	recordLine  = regexp.MustCompile(`^\| offset: (\d+) .*?valueSize: (-?\d+) .*?headerKeys: \[\] ?(.*)$`)
	controlText = regexp.MustCompile(`^(LeaderChange|SnapshotHeader|SnapshotFooter|KRaftVersion|KRaftVoters):? (\{.*\})$`)
)

func script(name string) string { return filepath.Join("..", "..", "hack", "kafka", name) }

// decode runs decode.sh over folders. It returns the exit status and all output.
func decode(t *testing.T, dirs ...string) (status int, out string) {
	t.Helper()
	raw, err := exec.Command(script("decode.sh"), dirs...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		status = exit.ExitCode()
	}
	return status, string(raw)
}

func mustDecode(t *testing.T, dirs ...string) {
	t.Helper()
	if status, out := decode(t, dirs...); status != 0 {
		t.Fatalf("Kafka's decoder complains, status %d:\n%s", status, out)
	}
}

// dumpMetadata has the decoder print a metadata log segment or a snapshot.
func dumpMetadata(t *testing.T, path string) (records []dumped) {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(script("run.sh"), "kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", path)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	for line := range bytes.Lines(out) {
		m := recordLine.FindSubmatch(bytes.TrimSpace(line))
		if m == nil {
			continue
		}
		records = append(records, parse(t, m))
	}
	return records
}

func parse(t *testing.T, m [][]byte) dumped {
	t.Helper()
	d := dumped{raw: string(m[0])}
	d.offset, _ = strconv.ParseInt(string(m[1]), 10, 64)
	d.valueSize, _ = strconv.Atoi(string(m[2]))
	if c := controlText.FindSubmatch(m[3]); c != nil {
		d.control = string(c[1])
		unmarshal(t, c[2], &d.data)
		return d
	}
	payload, ok := bytes.CutPrefix(m[3], []byte("payload: "))
	if !ok {
		t.Fatalf("what Kafka's decoder prints is new: %s", m[0])
	}
	var frame struct {
		Type    string
		Version int16
		Data    map[string]any
	}
	unmarshal(t, payload, &frame)
	d.kind, d.version, d.data = frame.Type, frame.Version, frame.Data
	return d
}

func unmarshal(t *testing.T, raw []byte, into any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber() // an int64 is more than a float64 holds
	if err := dec.Decode(into); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
}

func write(t *testing.T, path string, raw []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
}
