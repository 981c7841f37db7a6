package observer

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// modelLog is a leader's log: batches, and how far it is committed.
type modelLog struct {
	epoch   ident.Epoch
	batches []modelBatch
	high    int // batches below the high watermark
}

type modelBatch struct {
	base, end ident.Offset
	epoch     ident.Epoch
	raw       []byte
}

func (l *modelLog) end() ident.Offset {
	if len(l.batches) == 0 {
		return 0
	}
	return l.batches[len(l.batches)-1].end
}

func (l *modelLog) highWatermark() ident.Offset {
	if l.high == 0 {
		return 0
	}
	return l.batches[l.high-1].end
}

func (l *modelLog) append(records ...metadata.Record) {
	base := l.end()
	raw := metadata.EncodeBatch(base, l.epoch, 1000+int64(base), records...)
	l.batches = append(l.batches, modelBatch{base, base + ident.Offset(len(records)), l.epoch, raw})
}

// divergence is what a leader answers to a position that is not a prefix of its log (KIP-595).
func (l *modelLog) divergence(offset ident.Offset, lastEpoch ident.Epoch) (ident.Epoch, ident.Offset, bool) {
	epoch, end := ident.Epoch(0), ident.Offset(0)
	for _, b := range l.batches {
		if b.epoch <= lastEpoch {
			epoch, end = b.epoch, b.end
		}
	}
	return epoch, end, offset > 0 && (epoch != lastEpoch || end < offset)
}

// answer is the leader's answer to a fetch, of at most maxBatches.
func (l *modelLog) answer(p position, maxBatches int) answer {
	a := answer{leader: 1, epoch: l.epoch, highWatermark: l.highWatermark()}
	if epoch, end, diverging := l.divergence(p.offset, p.lastEpoch); diverging {
		a.diverging, a.divergingEpoch, a.divergingEnd = true, epoch, end
		return a
	}
	for _, b := range l.batches {
		if b.base >= p.offset && maxBatches > 0 {
			a.records = append(a.records, b.raw...)
			maxBatches--
		}
	}
	return a
}

func topicRecord(n int) metadata.Record {
	return &metadata.TopicRecord{Name: fmt.Sprintf("t%d", n), TopicID: ident.UUID{0: 1, 8: byte(n >> 8), 9: byte(n), 15: 200}}
}

// TestPublishedStepsAreExactlyTheCommittedLog: whatever leaders come, whatever they append and lose, what is
// published is a prefix of the committed log, in steps without gap, and all of it in the end.
func TestPublishedStepsAreExactlyTheCommittedLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := &modelLog{epoch: 1}
		image := metadata.Empty()
		f := newFollower(func(s Step) {
			if s.Old != image {
				t.Fatal("a step doesn't begin where the last one ended")
			}
			before, _ := s.Old.Position()
			after, epoch := s.New.Position()
			if after <= before || after >= log.highWatermark() {
				t.Fatalf("step from %d to %d with high watermark %d", before, after, log.highWatermark())
			}
			for _, b := range log.batches {
				if b.base <= after && after < b.end && b.epoch != epoch {
					t.Fatalf("offset %d has epoch %d, want %d", after, epoch, b.epoch)
				}
			}
			image = s.New
		})
		made := 0
		check := func() {
			end, _ := image.Position()
			want := metadata.NewLoader(metadata.Empty(), -1)
			for _, b := range log.batches {
				if b.end <= end+1 {
					for decoded, err := range metadata.ReadBatches(b.raw) {
						if err != nil {
							t.Fatal(err)
						}
						if err := want.Load(decoded); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			if _, im := want.Publish(); !im.SameState(image) {
				t.Fatalf("the image at %d is not that of the committed log", end)
			}
		}
		fetch := func(most int) {
			f.heard(log.epoch)
			if err := f.take(log.answer(f.position(), most)); err != nil {
				t.Fatal(err)
			}
			check()
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				var records []metadata.Record
				for range rapid.IntRange(1, 3).Draw(t, "records") {
					records = append(records, topicRecord(made))
					made++
				}
				log.append(records...)
			},
			"commit": func(t *rapid.T) { log.high = rapid.IntRange(log.high, len(log.batches)).Draw(t, "high") },
			"newLeader": func(t *rapid.T) {
				log.epoch++
				log.batches = log.batches[:rapid.IntRange(log.high, len(log.batches)).Draw(t, "kept")]
			},
			"fetch": func(t *rapid.T) { fetch(rapid.IntRange(0, 4).Draw(t, "batches")) },
		})
		log.high = len(log.batches)
		for range 2*len(log.batches) + 3 {
			fetch(2)
		}
		if end, _ := image.Position(); end != log.end()-1 {
			t.Fatalf("published up to %d of %d", end, log.end()-1)
		}
	})
}

func TestTransactionIsPublishedAsAWhole(t *testing.T) {
	log := &modelLog{epoch: 1}
	var steps []Step
	f := newFollower(func(s Step) { steps = append(steps, s) })
	f.heard(1)
	commitAndTake := func() {
		t.Helper()
		log.high = len(log.batches)
		if err := f.take(log.answer(f.position(), 100)); err != nil {
			t.Fatal(err)
		}
	}
	log.append(topicRecord(1))
	log.append(&metadata.BeginTransactionRecord{Name: kmsgString("x")}, topicRecord(2))
	commitAndTake()
	if len(steps) != 1 || steps[0].New.NumTopics() != 1 {
		t.Fatalf("%d steps with an open transaction", len(steps))
	}
	log.append(topicRecord(3))
	commitAndTake()
	if len(steps) != 1 {
		t.Fatal("a step was published inside of a transaction")
	}
	log.append(&metadata.EndTransactionRecord{})
	commitAndTake()
	if len(steps) != 2 || steps[1].New.NumTopics() != 3 || len(steps[1].Delta.ChangedTopics()) != 2 {
		t.Fatalf("%d steps, the last with %d topics", len(steps), steps[len(steps)-1].New.NumTopics())
	}
	if steps[1].Timestamp != 1004 || steps[1].HighWatermark != 5 {
		t.Fatalf("step %+v", steps[1])
	}
}

func kmsgString(s string) *string { return &s }

func TestDivergenceBelowWhatWasAppliedIsFatal(t *testing.T) {
	log := &modelLog{epoch: 3}
	f := newFollower(func(Step) {})
	f.heard(3)
	log.append(topicRecord(1))
	log.high = 1
	if err := f.take(log.answer(f.position(), 1)); err != nil {
		t.Fatal(err)
	}
	other := &modelLog{epoch: 2}
	other.append(topicRecord(2))
	var fatal *fatalError
	if err := f.take(other.answer(f.position(), 1)); !errors.As(err, &fatal) {
		t.Fatalf("got %v", err)
	}
}

func TestRecordsOutOfPlaceAreRefused(t *testing.T) {
	log := &modelLog{epoch: 2}
	log.append(topicRecord(1))
	log.append(topicRecord(2))
	whole := append(append([]byte{}, log.batches[0].raw...), log.batches[1].raw...)
	corrupt := append([]byte{}, log.batches[0].raw...)
	corrupt[len(corrupt)-1] ^= 1
	for name, test := range map[string]struct {
		records []byte
		epoch   ident.Epoch
		kept    ident.Offset
		fails   bool
	}{
		"whole":          {whole, 2, 2, false},
		"cut off":        {whole[:len(whole)-1], 2, 1, false},
		"gap":            {log.batches[1].raw, 2, 0, true},
		"twice":          {append(append([]byte{}, log.batches[0].raw...), log.batches[0].raw...), 2, 1, true},
		"future epoch":   {whole, 1, 0, true},
		"corrupt":        {corrupt, 2, 0, true},
		"not even magic": {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n" + string(make([]byte, 100))), 2, 0, true},
	} {
		f := newFollower(func(Step) { t.Error("published") })
		f.heard(test.epoch)
		err := f.take(answer{records: test.records, highWatermark: 0, leader: 1, epoch: test.epoch})
		var fatal *fatalError
		if (err != nil) != test.fails || errors.As(err, &fatal) || f.end() != test.kept {
			t.Errorf("%s: error %v, end %d; want end %d", name, err, f.end(), test.kept)
		}
	}
}

func TestTooMuchUncommittedIsDroppedAndFetchedAgain(t *testing.T) {
	const batches = 30
	log := &modelLog{epoch: 1}
	value := string(make([]byte, 1000))
	f := newFollower(func(Step) {})
	f.maxPending = 10_000
	f.heard(1)
	for i := range batches {
		log.append(&metadata.ConfigRecord{ResourceType: 2, ResourceName: fmt.Sprint(i), Name: "k", Value: &value})
	}
	fetch := func() {
		t.Helper()
		for range batches {
			if err := f.take(log.answer(f.position(), 1)); err != nil {
				t.Fatal(err)
			}
			if f.pendingBytes > f.maxPending {
				t.Fatalf("%d bytes are kept", f.pendingBytes)
			}
		}
	}
	fetch()
	log.high = len(log.batches)
	fetch()
	if f.appliedEnd != batches {
		t.Fatalf("applied up to %d", f.appliedEnd)
	}
}
