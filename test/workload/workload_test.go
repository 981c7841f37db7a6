package workload

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// written is a producer that began five records, of which all but number 3 were acknowledged at the offset of their
// number.
func written() *Producer {
	return &Producer{acked: []bool{true, true, true, false, true}, offsets: map[uint64]int64{0: 0, 1: 1, 2: 2, 4: 4}, count: 4}
}

// at makes records of numbers at the offsets 0, 1, ...
func at(numbers ...uint64) (records []*kgo.Record) {
	for offset, number := range numbers {
		records = append(records, &kgo.Record{Offset: int64(offset), Value: value(number)})
	}
	return records
}

func TestWhatIsWrongWithAReadIsFound(t *testing.T) {
	for name, test := range map[string]struct {
		records []*kgo.Record
		want    string
	}{
		"all there":                       {at(0, 1, 2, 3, 4), "acked=4 read=5 lost=0 duplicated=0 disordered=0 misplaced=0"},
		"the last acknowledged is lost":   {at(0, 1, 2, 3), "acked=4 read=4 lost=1 duplicated=0 disordered=0 misplaced=0"},
		"one in the middle is lost":       {at(0, 2, 3, 4), "acked=4 read=4 lost=1 duplicated=0 disordered=0 misplaced=2"},
		"an unacknowledged one is absent": {at(0, 1, 2, 4), "acked=4 read=4 lost=0 duplicated=0 disordered=0 misplaced=1"},
		"one twice":                       {at(0, 1, 2, 3, 4, 1), "acked=4 read=6 lost=0 duplicated=1 disordered=0 misplaced=0"},
		"two in the wrong order":          {at(0, 2, 1, 3, 4), "acked=4 read=5 lost=0 duplicated=0 disordered=1 misplaced=2"},
		"nothing":                         {nil, "acked=4 read=0 lost=4 duplicated=0 disordered=0 misplaced=0"},
	} {
		t.Run(name, func(t *testing.T) {
			p := written()
			report, err := p.compare(Report{Acked: p.count}, test.records)
			if err != nil {
				t.Fatal(err)
			}
			if report.String() != test.want {
				t.Errorf("got %s, want %s", report, test.want)
			}
			if wrong := name != "all there"; (report.Err() != nil) != wrong {
				t.Errorf("error %v, want one: %v", report.Err(), wrong)
			}
		})
	}
}

func TestRecordsThatNobodyWroteAreAnError(t *testing.T) {
	for name, records := range map[string][]*kgo.Record{
		"an unknown number": at(7),
		"another content":   {{Value: []byte("x")}},
	} {
		p := written()
		if report, err := p.compare(Report{}, records); err == nil {
			t.Errorf("%s: %s", name, report)
		}
	}
}

func TestWhatWasReadAndIsGoneIsFound(t *testing.T) {
	read := [][]byte{value(0), value(1), value(2)}
	for name, test := range map[string]struct {
		now  []*kgo.Record
		gone bool
	}{
		"more came":         {at(0, 1, 2, 3), false},
		"the last is gone":  {at(0, 1), true},
		"another one there": {at(0, 7, 2), true},
	} {
		if err := retracted(read, test.now); (err != nil) != test.gone {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := &Consumer{}
	for _, r := range append(at(0, 1, 2), at(0, 1)...) {
		c.note(r)
	}
	if c.err != nil || len(c.values) != 3 {
		t.Errorf("a second reading of the same: %v, %d values", c.err, len(c.values))
	}
	for _, r := range []*kgo.Record{{Offset: 1, Value: value(9)}, {Offset: 5, Value: value(5)}} {
		before := c.err
		c.note(r)
		if c.err == before { //nolint:errorlint // whether anything was added is asked, and it wraps what was there
			t.Errorf("offset %d with %x was taken after %x", r.Offset, r.Value, c.values)
		}
	}
}
