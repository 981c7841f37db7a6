package ident

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestUUIDReadsBackWhatItPrints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var u UUID
		copy(u[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid"))
		got, err := ParseUUID(u.String())
		if err != nil || got != u {
			t.Fatalf("ParseUUID(%q) = %v, %v", u.String(), got, err)
		}
	})
}

func TestParseUUIDRefusesAnythingElse(t *testing.T) {
	for _, s := range []string{"", "short", "AAAAAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAA+/"} {
		if u, err := ParseUUID(s); err == nil {
			t.Errorf("ParseUUID(%q) = %v, want an error", s, u)
		}
	}
}

func TestMetadataTopicIDIsKafkas(t *testing.T) {
	if got := MetadataTopicID.String(); got != "AAAAAAAAAAAAAAAAAAAAAQ" {
		t.Fatalf("MetadataTopicID = %s", got)
	}
	if !MetadataTopicID.IsReserved() || (UUID{0: 1}).IsReserved() || (UUID{15: 100}).IsReserved() {
		t.Fatal("IsReserved must hold for the first hundred ids only")
	}
}

func TestInstantAddStopsAtNever(t *testing.T) {
	if got := Instant(math.MaxInt64 - 5).Add(time.Second); got != Never {
		t.Fatalf("near the end: %d", got)
	}
	if got := Never.Add(-time.Second); got != Never {
		t.Fatalf("Never moved to %d", got)
	}
	if got := Instant(10).Add(5); got != 15 {
		t.Fatalf("10+5 = %d", got)
	}
}
