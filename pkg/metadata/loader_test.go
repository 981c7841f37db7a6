package metadata

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
)

func readOne(t interface{ Fatal(...any) }, raw []byte) Batch {
	b, err := ReadBatch(raw)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTransactionsCountAsAWholeOrNotAtAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records, images := drawLog(t, rapid.IntRange(1, 40).Draw(t, "records"))
		var log []Record
		applied := 0 // how many of records count
		for applied < len(records) {
			n := rapid.IntRange(1, len(records)-applied).Draw(t, "stretch")
			stretch := records[applied : applied+n]
			switch rapid.IntRange(0, 2).Draw(t, "how") {
			case 0:
				log = append(log, stretch...)
			case 1:
				log = append(append(append(log, &BeginTransactionRecord{}), stretch...), &EndTransactionRecord{})
			case 2: // aborted, then written again
				log = append(append(append(log, &BeginTransactionRecord{}), stretch...), &AbortTransactionRecord{})
				continue
			}
			applied += n
		}
		l := NewLoader(Empty(), -1)
		for base := 0; base < len(log); {
			n := rapid.IntRange(1, len(log)-base).Draw(t, "batch")
			if err := l.Load(readOne(t, EncodeBatch(ident.Offset(base), 3, 77, log[base:base+n]...))); err != nil {
				t.Fatal(err)
			}
			base += n
			if rapid.Bool().Draw(t, "publish") {
				before := l.Image()
				if d, im := l.Publish(); d.Base() != before || l.Image() != im {
					t.Fatal("deltas don't lead from one published image to the next")
				}
			}
		}
		if l.InTransaction() || l.NextOffset() != ident.Offset(len(log)) || l.Timestamp() != 77 {
			t.Fatalf("in transaction %v, next %d, timestamp %d", l.InTransaction(), l.NextOffset(), l.Timestamp())
		}
		_, im := l.Publish()
		if offset, epoch := im.Position(); offset != ident.Offset(len(log)-1) || epoch != 3 {
			t.Fatalf("position %d, %d", offset, epoch)
		}
		if !im.SameState(images[len(images)-1]) {
			t.Fatal("the loaded image is another")
		}
	})
}

func TestAnOpenTransactionIsNotPublished(t *testing.T) {
	l := NewLoader(Empty(), -1)
	topic := func(name string, b byte) Record { return &TopicRecord{Name: name, TopicID: ident.UUID{b}} }
	if err := l.Load(readOne(t, EncodeBatch(0, 1, 10, topic("a", 1), &BeginTransactionRecord{}, topic("b", 2)))); err != nil {
		t.Fatal(err)
	}
	_, im := l.Publish()
	if offset, _ := im.Position(); offset != 0 || im.NumTopics() != 1 || !l.InTransaction() {
		t.Errorf("offset %d, %d topics, in transaction %v", offset, im.NumTopics(), l.InTransaction())
	}
	if err := l.Load(readOne(t, EncodeBatch(3, 2, 20, &NoOpRecord{}))); err != nil {
		t.Fatal(err)
	}
	if _, im = l.Publish(); im.NumTopics() != 1 {
		t.Error("the transaction's topic is visible before its end")
	}
	if offset, epoch := im.Position(); offset != 0 || epoch != 1 || l.Timestamp() != 10 {
		t.Errorf("position %d, %d, timestamp %d", offset, epoch, l.Timestamp())
	}
	if err := l.Load(readOne(t, EncodeBatch(4, 2, 30, &EndTransactionRecord{}))); err != nil {
		t.Fatal(err)
	}
	d, im := l.Publish()
	if offset, epoch := im.Position(); offset != 4 || epoch != 2 || im.NumTopics() != 2 || len(d.ChangedTopics()) != 1 {
		t.Errorf("position %d, %d, %d topics, changed %v", offset, epoch, im.NumTopics(), d.ChangedTopics())
	}
}

func TestControlBatchesMoveThePosition(t *testing.T) {
	l := NewLoader(Empty(), -1)
	leader := batch.LeaderChange{LeaderID: 1}
	raw := batch.NewBuilder(0, 4, 5).AppendControl(batch.LeaderChangeType, leader.Encode()).Build()
	if err := l.Load(readOne(t, raw)); err != nil {
		t.Fatal(err)
	}
	d, im := l.Publish()
	if offset, epoch := im.Position(); offset != 0 || epoch != 4 || d.Changed() {
		t.Errorf("position %d, %d, changed %v", offset, epoch, d.Changed())
	}
}

func TestLoaderRefusesABrokenLog(t *testing.T) {
	for _, tc := range []struct {
		name string
		base ident.Offset
		log  []Record
		want string
	}{
		{"gap", 1, []Record{&NoOpRecord{}}, "begins at offset 1, want 0"},
		{"end without begin", 0, []Record{&EndTransactionRecord{}}, "offset 0, END_TRANSACTION_RECORD"},
		{"abort without begin", 0, []Record{&NoOpRecord{}, &AbortTransactionRecord{}}, "offset 1, ABORT_TRANSACTION_RECORD"},
		{"begin twice", 0, []Record{&BeginTransactionRecord{}, &BeginTransactionRecord{}}, "inside the one that began at offset 0"},
		{"misfit in a transaction", 0, []Record{&BeginTransactionRecord{}, &NoOpRecord{}, &RemoveTopicRecord{}, &EndTransactionRecord{}},
			"record of the transaction at offset 2"},
	} {
		err := NewLoader(Empty(), -1).Load(readOne(t, EncodeBatch(tc.base, 1, 1, tc.log...)))
		if !errors.Is(err, ErrReplay) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestReadBatchesSaysWhereItEnds(t *testing.T) {
	one := EncodeBatch(0, 1, 1, &NoOpRecord{}, &NoOpRecord{})
	two := EncodeBatch(2, 1, 1, &NoOpRecord{})
	log := append(bytes.Clone(one), two...)
	read := func(raw []byte) (n int, err error) {
		for b, e := range ReadBatches(raw) {
			if err = e; e == nil {
				n += len(b.Records)
			}
		}
		return n, err
	}
	if n, err := read(log); n != 3 || err != nil {
		t.Errorf("whole: %d, %v", n, err)
	}
	if n, err := read(log[:len(log)-1]); n != 2 || !errors.Is(err, batch.ErrTruncated) {
		t.Errorf("cut off: %d, %v", n, err)
	}
	flipped := bytes.Clone(log)
	flipped[len(one)-1] ^= 1
	if n, err := read(flipped); n != 0 || !errors.Is(err, batch.ErrCorrupt) {
		t.Errorf("flipped bit: %d, %v", n, err)
	}
	var unsupported *UnsupportedError
	unknown := batch.NewBuilder(5, 1, 1).Append(nil, []byte{1, 29, 0, 0}).Build()
	if _, err := read(unknown); !errors.As(err, &unsupported) || !strings.Contains(err.Error(), "offset 5") {
		t.Errorf("unknown record: %v", err)
	}
	for _, raw := range [][]byte{
		batch.NewBuilder(0, 1, 1).Append([]byte("key"), Encode(nil, &NoOpRecord{})).Build(),
		batch.NewBuilder(0, 1, 1).Append(nil, nil).Build(),
	} {
		if _, err := read(raw); !errors.Is(err, ErrMalformed) {
			t.Errorf("key or no value: %v", err)
		}
	}
}
