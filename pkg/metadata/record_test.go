package metadata

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/highwater-io/highwater/pkg/ident"
)

// randomRecord draws a record of any type and version with any field values that the version has room for.
func randomRecord(t *rapid.T) Record {
	types := []int16{}
	for i := range schemas {
		if schemas[i].make != nil {
			types = append(types, int16(i))
		}
	}
	recordType := rapid.SampledFrom(types).Draw(t, "type")
	r := schemas[recordType].make()
	r.setVersion(rapid.Int16Range(0, schemas[recordType].maxVersion).Draw(t, "version"))
	fill(t, reflect.ValueOf(r).Elem())
	clearWhatTheVersionLacks(r)
	return r
}

func fill(t *rapid.T, v reflect.Value) {
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		switch name {
		case "Version":
			continue
		case "UnknownTags":
			next := uint32(50)
			for range rapid.IntRange(0, 2).Draw(t, "tags") {
				next += rapid.Uint32Range(1, 1<<20).Draw(t, "tag")
				value := rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "value")
				f.Set(reflect.Append(f, reflect.ValueOf(Tag{next, append([]byte{}, value...)})))
			}
			continue
		}
		fillValue(t, f, name)
	}
}

func fillValue(t *rapid.T, f reflect.Value, name string) {
	switch f.Kind() {
	case reflect.Bool:
		f.SetBool(rapid.Bool().Draw(t, name))
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		shift := 64 - f.Type().Bits()
		f.SetInt(rapid.Int64().Draw(t, name) >> shift)
	case reflect.Uint8, reflect.Uint16:
		f.SetUint(rapid.Uint64().Draw(t, name) >> (64 - f.Type().Bits()))
	case reflect.Float64:
		f.SetFloat(rapid.Float64().Draw(t, name))
	case reflect.String:
		f.SetString(rapid.StringN(0, 8, 20).Draw(t, name))
	case reflect.Pointer:
		if rapid.Bool().Draw(t, name+" set") {
			f.Set(reflect.New(f.Type().Elem()))
			fillValue(t, f.Elem(), name)
		}
	case reflect.Array:
		for i := range f.Len() {
			fillValue(t, f.Index(i), name)
		}
	case reflect.Struct:
		fill(t, f)
	case reflect.Slice:
		n := rapid.IntRange(-1, 3).Draw(t, name+" length")
		if n < 0 {
			return
		}
		f.Set(reflect.MakeSlice(f.Type(), n, n))
		for i := range n {
			fillValue(t, f.Index(i), name)
		}
	}
}

func clearWhatTheVersionLacks(r Record) {
	switch r := r.(type) {
	case *RegisterBrokerRecord:
		if r.Version < 1 {
			r.InControlledShutdown = false
		}
		if r.Version < 2 {
			r.IsMigratingZkBroker = false
		}
		if r.Version < 3 {
			r.LogDirs = nil
		}
	case *PartitionRecord:
		if r.Version < 1 {
			r.Directories = nil
		}
		if r.Version < 2 {
			r.EligibleLeaderReplicas, r.LastKnownELR = nil, nil
		}
	case *PartitionChangeRecord:
		if r.Version < 1 {
			r.Directories = nil
		}
		if r.Version < 2 {
			r.EligibleLeaderReplicas, r.LastKnownELR = nil, nil
		}
	case *BrokerRegistrationChangeRecord:
		if r.Version < 1 {
			r.InControlledShutdown = 0
		}
		if r.Version < 2 {
			r.LogDirs = nil
		}
	}
}

// nullable names the lists for which nil and empty differ on disk.
func nullable(p cmp.Path) bool {
	for i := len(p) - 1; i >= 0; i-- {
		if f, ok := p[i].(cmp.StructField); ok {
			owner := p[i-1].Type().Name()
			if owner == "PartitionChangeRecord" {
				return true
			}
			return owner == "PartitionRecord" && (f.Name() == "EligibleLeaderReplicas" || f.Name() == "LastKnownELR")
		}
	}
	return false
}

// recordOptions compare records; where a list can't be null, nil and empty are the same.
var recordOptions = cmp.Options{
	cmp.FilterPath(func(p cmp.Path) bool { return !nullable(p) && p.Last().Type().Kind() == reflect.Slice },
		cmp.FilterValues(func(x, y any) bool { return reflect.ValueOf(x).Len() == 0 && reflect.ValueOf(y).Len() == 0 },
			cmp.Comparer(func(_, _ any) bool { return true }))),
	cmp.Comparer(func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) }),
}

func TestRecordsSurviveEncodingAndDecoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := randomRecord(t)
		raw := Encode([]byte("before"), want)
		if !bytes.HasPrefix(raw, []byte("before")) {
			t.Fatalf("what stood in dst is gone: %x", raw)
		}
		raw = raw[len("before"):]
		got, err := Decode(raw)
		if err != nil {
			t.Fatalf("decode %x: %v", raw, err)
		}
		if d := cmp.Diff(want, got, recordOptions); d != "" {
			t.Fatalf("%T (-want +got):\n%s", want, d)
		}
		if again := Encode(nil, got); !bytes.Equal(raw, again) {
			t.Fatalf("encoded again\n%x, was\n%x", again, raw)
		}
		for cut := range raw {
			if _, err := Decode(raw[:cut]); err == nil {
				t.Fatalf("the first %d of %d bytes decode", cut, len(raw))
			}
		}
		if _, err := Decode(append(raw, 0)); !errors.Is(err, ErrMalformed) {
			t.Fatalf("a byte too many: %v", err)
		}
	})
}

func TestRecordLayout(t *testing.T) {
	rack := "r1"
	topic := ident.UUID{0: 0xaa, 15: 0xbb}
	const topicHex = "aa0000000000000000000000000000bb"
	change := NewPartitionChange(1)
	change.PartitionID, change.TopicID, change.ISR, change.Leader = 2, topic, []ident.NodeID{3, 1}, ident.NoNode
	change.Directories = []ident.UUID{ident.UnassignedDirectory}
	for _, tc := range []struct {
		name string
		r    Record
		hex  string
	}{
		{"topic", &TopicRecord{Name: "foo", TopicID: topic}, "010200" + "04666f6f" + topicHex + "00"},
		{"removed config", &ConfigRecord{ResourceType: ResourceTopic, ResourceName: "a", Name: "b"}, "010400" + "02" + "0261" + "0262" + "00" + "00"},
		{"partition", &PartitionRecord{Version: 1, PartitionID: 1, TopicID: topic, Replicas: []ident.NodeID{1}, ISR: []ident.NodeID{1},
			Leader: 1, LeaderEpoch: 5, PartitionEpoch: 6, LeaderRecoveryState: Recovering, Directories: []ident.UUID{topic}},
			"010301" + "00000001" + topicHex + "0200000001" + "0200000001" + "01" + "01" + "00000001" + "00000005" + "00000006" +
				"02" + topicHex + "01" + "000101"},
		{"partition change", change, "010501" + "00000002" + topicHex + "03" + "0009030000000300000001" + "0104ffffffff" +
			"081102" + "00000000000000000000000000000001"},
		{"broker", &RegisterBrokerRecord{Version: 3, BrokerID: 7, IncarnationID: topic, BrokerEpoch: 9,
			EndPoints: []Endpoint{{Name: "A", Host: "h", Port: 65535}}, Features: []SupportedFeature{{Name: "f", MaxSupportedVersion: 2}},
			Rack: &rack, Fenced: true, LogDirs: []ident.UUID{topic}},
			"010003" + "00000007" + "00" + topicHex + "0000000000000009" + "02" + "0241" + "0268" + "ffff" + "0000" + "00" +
				"02" + "0266" + "0000" + "0002" + "00" + "037231" + "01" + "00" + "01" + "0011" + "02" + topicHex},
		{"no-op", &NoOpRecord{}, "01140000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := hex.EncodeToString(Encode(nil, tc.r)); got != tc.hex {
				t.Errorf("got  %s\nwant %s", got, tc.hex)
			}
		})
	}
}

func TestUnknownRecordsAreRefusedWithTheReason(t *testing.T) {
	for _, tc := range []struct {
		hex, want string
	}{
		{"021400", "frame version 2"},
		{"010600", "unknown type 6 (version 0)"},
		{"011d00", "unknown type 29"},
		{"01ffffff7f00", "unknown type 268435455"},
		{"010303", "PARTITION_RECORD (type 3) version 3, this build reads versions 0 to 2"},
	} {
		raw, _ := hex.DecodeString(tc.hex)
		_, err := Decode(raw)
		var unsupported *UnsupportedError
		if !errors.As(err, &unsupported) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want an UnsupportedError with %q", tc.hex, err, tc.want)
		}
	}
}

func TestFieldsThatTheVersionLacksAreNotDropped(t *testing.T) {
	long := strings.Repeat("x", maxString+1)
	for _, tc := range []struct {
		r    Record
		want string
	}{
		{&PartitionRecord{Directories: []ident.UUID{{}}}, "Directories is set, but version 0"},
		{&PartitionRecord{Version: 1, LastKnownELR: []ident.NodeID{1}}, "LastKnownELR is set, but version 1"},
		{&BrokerRegistrationChangeRecord{InControlledShutdown: 1}, "InControlledShutdown is set"},
		{&TopicRecord{Version: 1}, "this build writes versions 0 to 0"},
		{&ConfigRecord{Value: &long}, "string of 32768 bytes"},
	} {
		out, err := TryEncode([]byte("dst"), tc.r)
		if err == nil || !strings.Contains(err.Error(), tc.want) || string(out) != "dst" {
			t.Errorf("%T: %q, %v; want %q", tc.r, out, err, tc.want)
		}
	}
}

func TestClaimedLengthsAreChecked(t *testing.T) {
	for _, raw := range []string{
		"010200" + "ffffffff0f" + "61",                                            // a topic name of 4 GiB
		"010300" + "00000001" + "aa0000000000000000000000000000bb" + "ffffffff0f", // replicas
		"011400" + "01" + "00" + "ffffffff0f",                                     // a tagged field
		"011400" + "ffffffff0f",                                                   // tagged fields
		"011400" + "ffffffff1f",                                                   // more than 32 bits
		"010002" + "00000007" + "00" + "aa0000000000000000000000000000bb" + "0000000000000009" + "ffffff7f", // endpoints
	} {
		b, err := hex.DecodeString(raw)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestLevelChoosesVersions(t *testing.T) {
	for _, tc := range []struct {
		level                             Level
		register, partition, brokerChange int16
	}{
		{Pinned, 3, 2, 2},
		{23, 3, 2, 2},
		{22, 3, 1, 2},
		{16, 2, 0, 1},
		{7, 1, 0, 1},
	} {
		if got := tc.level.VersionOf(TypeRegisterBroker); got != tc.register {
			t.Errorf("%d: RegisterBroker %d", tc.level, got)
		}
		change := NewPartitionChange(0)
		if tc.level.Stamp(change); change.Version != tc.partition || tc.level.VersionOf(TypePartition) != tc.partition {
			t.Errorf("%d: PartitionChange %d", tc.level, change.Version)
		}
		shutdown := &BrokerRegistrationChangeRecord{Version: 2, InControlledShutdown: ControlledShutdown}
		fence := &BrokerRegistrationChangeRecord{Version: 2, Fenced: Fence}
		dirs := &BrokerRegistrationChangeRecord{LogDirs: []ident.UUID{{1}}}
		if tc.level.Stamp(shutdown, fence, dirs); shutdown.Version != 1 || fence.Version != 0 || dirs.Version != 2 {
			t.Errorf("%d: versions %d, %d, %d", tc.level, shutdown.Version, fence.Version, dirs.Version)
		}
		if got := tc.level.VersionOf(TypeBrokerRegistrationChange); got != tc.brokerChange {
			t.Errorf("%d: BrokerRegistrationChange %d", tc.level, got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for i := range schemas {
		if schemas[i].make != nil {
			f.Add(Encode(nil, schemas[i].make()))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := Decode(raw)
		if err != nil {
			return
		}
		again, err := Decode(Encode(nil, r))
		if err != nil {
			t.Fatalf("%x decodes, its encoding does not: %v", raw, err)
		}
		if d := cmp.Diff(r, again, recordOptions); d != "" {
			t.Fatal(d)
		}
	})
}
