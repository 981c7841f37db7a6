package batch

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
)

func TestLeaderChangeIsWhatKmsgReads(t *testing.T) {
	dir := ident.UUID{1, 2, 3}
	for version := range int16(2) {
		m := LeaderChange{Version: version, LeaderID: 1000, Voters: []VoterKey{{ID: 1000}, {ID: 1001}}, Granting: []VoterKey{{ID: 1001}}}
		if version >= 1 {
			m.Voters[0].DirectoryID, m.Granting[0].DirectoryID = dir, dir
		}
		var want kmsg.LeaderChangeMessage
		if err := want.ReadFrom(m.Encode()); err != nil {
			t.Fatal(err)
		}
		if want.LeaderID != 1000 || len(want.Voters) != 2 || want.Voters[0].VoterDirectoryID != [16]byte(m.Voters[0].DirectoryID) {
			t.Fatalf("version %d read as %+v", version, want)
		}
		if !bytes.Equal(want.AppendTo(nil), m.Encode()) {
			t.Fatalf("version %d: kmsg writes %x", version, want.AppendTo(nil))
		}
		got, err := DecodeLeaderChange(m.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, got); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestVotersBytesFollowTheRecordsDefinition(t *testing.T) {
	m := Voters{Voters: []Voter{{
		ID: 3000, DirectoryID: ident.UUID{15: 7}, MaxKRaftVersion: 1,
		Endpoints: []VoterEndpoint{{Name: "CONTROLLER", Host: "localhost", Port: 9093}},
	}}}
	// version 0, one voter, id 3000, directory, one endpoint, name, host, port, tags, range 0..1, its tags, tags, tags
	want := "0000" + "02" + "00000bb8" + "00000000000000000000000000000007" + "02" + "0b434f4e54524f4c4c4552" +
		"0a6c6f63616c686f7374" + "2385" + "00" + "00000001" + "00" + "00" + "00"
	if got := hex.EncodeToString(m.Encode()); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	got, err := DecodeVoters(m.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestSmallControlRecordsReadBack(t *testing.T) {
	if m, err := DecodeSnapshotHeader(SnapshotHeader{LastContainedLogTimestamp: 77}.Encode()); err != nil || m.LastContainedLogTimestamp != 77 {
		t.Fatalf("header %+v, %v", m, err)
	}
	if _, err := DecodeSnapshotFooter(SnapshotFooter{}.Encode()); err != nil {
		t.Fatal(err)
	}
	if m, err := DecodeKRaftVersion(KRaftVersion{KRaftVersion: 1}.Encode()); err != nil || m.KRaftVersion != 1 {
		t.Fatalf("kraft version %+v, %v", m, err)
	}
	if _, err := DecodeKRaftVersion([]byte{0, 9, 0, 1, 0}); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("a future version: %v", err)
	}
}

func TestControlBatchSaysItsTypeInTheKey(t *testing.T) {
	raw := NewBuilder(5, 2, 9).AppendControl(KRaftVersionType, KRaftVersion{KRaftVersion: 1}.Encode()).Build()
	h, err := ParseHeader(raw)
	if err != nil || !h.IsControl() || h.IsTransactional() || h.HasProducer() {
		t.Fatalf("header %+v, %v", h, err)
	}
	for _, r := range collect(t, raw) {
		if got, err := ParseControlType(r.Key); err != nil || got != KRaftVersionType {
			t.Fatalf("type %d, %v", got, err)
		}
	}
	if _, err := ParseControlType([]byte{0}); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("short key: %v", err)
	}
}

func FuzzControl(f *testing.F) {
	f.Add(LeaderChange{Version: 1, Voters: []VoterKey{{ID: 1}}}.Encode())
	f.Add(Voters{Voters: []Voter{{ID: 1, Endpoints: []VoterEndpoint{{Name: "a", Host: "b"}}}}}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := DecodeLeaderChange(b); err == nil {
			if again, err := DecodeLeaderChange(m.Encode()); err != nil || !cmp.Equal(m, again) {
				t.Fatalf("%+v, then %+v, %v", m, again, err)
			}
		}
		if m, err := DecodeVoters(b); err == nil {
			if again, err := DecodeVoters(m.Encode()); err != nil || !cmp.Equal(m, again) {
				t.Fatalf("%+v, then %+v, %v", m, again, err)
			}
		}
		_, _ = DecodeSnapshotHeader(b)
		_, _ = DecodeSnapshotFooter(b)
		_, _ = DecodeKRaftVersion(b)
	})
}
