package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

var (
	// ErrOutOfOrderSequence says that a producer's batch does not follow its last one. Kafka:
	// OUT_OF_ORDER_SEQUENCE_NUMBER (45).
	ErrOutOfOrderSequence = errors.New("sequence number is out of order")
	// ErrProducerFenced says that a producer has been replaced by one with a higher epoch. Kafka:
	// INVALID_PRODUCER_EPOCH (47).
	ErrProducerFenced = errors.New("producer epoch is old")
)

// keptBatches is how many of a producer's batches are remembered to tell duplicates: as many as a client may
// have in flight (KIP-98).
const keptBatches = 5

// Producers is what a log knows of its idempotent producers: Kafka's ProducerStateManager. It belongs to the
// log's owner.
type Producers struct {
	fsys      vfs.FS
	dir       string
	byID      map[int64]*producer
	snapshots []ident.Offset // of the snapshot files, in order
	wall      func() int64   // Config.WallMillis
	unsynced  []ident.Offset // of those that the next flush syncs
	pending   []producer     // scratch of checkAll
}

// producer has one producer's last batches, the oldest first.
type producer struct {
	id               int64
	epoch            int16
	coordinatorEpoch int32
	txnFirst         ident.Offset // first offset of the open transaction, -1 when there is none
	lastTimestamp    int64
	seenMs           int64 // calendar time of its last batch here, 0 when unknown; in no snapshot
	batches          [keptBatches]producerBatch
	n                int
}

type producerBatch struct {
	firstSequence, lastSequence int32
	first, last                 ident.Offset
	timestamp                   int64
}

func newProducers(fsys vfs.FS, dir string) *Producers {
	return &Producers{fsys: fsys, dir: dir, byID: map[int64]*producer{}}
}

func (p *Producers) clear() { clear(p.byID) }

// Len is the number of producers that are remembered.
func (p *Producers) Len() int { return len(p.byID) }

// Check says whether a leader may append a batch with this header. duplicate is true when the producer has
// written it before; info then has the offsets of then. A producer that is not known may begin with any
// sequence number: it may have been forgotten (KIP-360), so UNKNOWN_PRODUCER_ID is never needed.
func (p *Producers) Check(h batch.Header) (info AppendInfo, duplicate bool, err error) {
	return p.byID[h.ProducerID].check(h)
}

// checkAll is Check for the batches of one append, each seen after the ones before it.
func (p *Producers) checkAll(headers []batch.Header) (AppendInfo, bool, error) {
	if len(headers) == 1 {
		return p.Check(headers[0])
	}
	p.pending = p.pending[:0]
	for _, h := range headers {
		if !h.HasProducer() {
			continue
		}
		var state *producer
		for i := range p.pending {
			if p.pending[i].id == h.ProducerID {
				state = &p.pending[i]
			}
		}
		if state == nil {
			known, ok := p.byID[h.ProducerID]
			if !ok {
				known = newProducer(h)
			} else if info, dup, err := known.check(h); dup || err != nil {
				return info, dup, err
			}
			p.pending = append(p.pending, *known)
			state = &p.pending[len(p.pending)-1]
		} else if info, dup, err := state.check(h); dup || err != nil {
			return info, dup, err
		}
		if !h.IsControl() {
			state.add(h)
		}
	}
	return AppendInfo{}, false, nil
}

func newProducer(h batch.Header) *producer {
	return &producer{id: h.ProducerID, epoch: h.ProducerEpoch, coordinatorEpoch: -1, txnFirst: -1}
}

func (s *producer) check(h batch.Header) (AppendInfo, bool, error) {
	if s == nil || !h.HasProducer() {
		return AppendInfo{}, false, nil
	}
	if h.ProducerEpoch < s.epoch {
		return AppendInfo{}, false, fmt.Errorf("%w: producer %d has epoch %d, batch says %d", ErrProducerFenced, s.id, s.epoch, h.ProducerEpoch)
	}
	if h.IsControl() {
		return AppendInfo{}, false, nil
	}
	if h.ProducerEpoch > s.epoch {
		if h.BaseSequence != 0 {
			return AppendInfo{}, false, fmt.Errorf("%w: producer %d begins epoch %d with %d, not 0", ErrOutOfOrderSequence, s.id, h.ProducerEpoch, h.BaseSequence)
		}
		return AppendInfo{}, false, nil
	}
	for _, b := range s.batches[:s.n] {
		if b.firstSequence == h.BaseSequence && b.lastSequence == h.LastSequence() {
			return AppendInfo{First: b.first, Last: b.last, MaxTimestamp: b.timestamp, Duplicate: true}, true, nil
		}
	}
	if s.n == 0 {
		// Known by the marker of its transaction alone: its batches are gone, and with them what it may go on with.
		return AppendInfo{}, false, nil
	}
	expected := batch.AddSequence(s.batches[s.n-1].lastSequence, 1)
	if h.BaseSequence != expected {
		return AppendInfo{}, false, fmt.Errorf("%w: producer %d epoch %d: batch begins with %d, expected %d", ErrOutOfOrderSequence, s.id, s.epoch, h.BaseSequence, expected)
	}
	return AppendInfo{}, false, nil
}

// update takes a batch that was appended. It does not judge: what a leader has accepted is true.
func (p *Producers) update(h batch.Header, raw []byte) error {
	if !h.HasProducer() {
		return nil
	}
	s, ok := p.byID[h.ProducerID]
	if !ok {
		s = newProducer(h)
	}
	if h.IsControl() {
		if err := s.endTransaction(h, raw); err != nil {
			return err
		}
	} else {
		s.add(h)
	}
	if !ok {
		p.byID[h.ProducerID] = s
	}
	if p.wall != nil {
		s.seenMs = p.wall()
	}
	return nil
}

func (s *producer) setEpoch(epoch int16) {
	if s.epoch != epoch {
		s.epoch, s.n = epoch, 0
	}
}

func (s *producer) add(h batch.Header) {
	s.setEpoch(h.ProducerEpoch)
	if s.n == keptBatches {
		copy(s.batches[:], s.batches[1:])
		s.n--
	}
	s.batches[s.n] = producerBatch{h.BaseSequence, h.LastSequence(), h.BaseOffset, h.LastOffset(), h.MaxTimestamp}
	s.n++
	s.lastTimestamp = h.MaxTimestamp
	if h.IsTransactional() && s.txnFirst < 0 {
		s.txnFirst = h.BaseOffset
	}
}

// endTransaction takes a transaction marker.
func (s *producer) endTransaction(h batch.Header, raw []byte) error {
	for r, err := range batch.Records(raw) {
		if err != nil {
			return err
		}
		t, err := batch.ParseControlType(r.Key)
		if err != nil {
			return err
		}
		if t != batch.Abort && t != batch.Commit {
			continue
		}
		s.setEpoch(h.ProducerEpoch)
		s.txnFirst = -1
		s.lastTimestamp = r.Timestamp
		if len(r.Value) >= 6 { // version, coordinator epoch
			s.coordinatorEpoch = int32(binary.BigEndian.Uint32(r.Value[2:]))
		}
	}
	return nil
}

// ExpireProducers forgets the producers that wrote nothing for the log's ProducerExpirationMs and have no open
// transaction, and returns how many. nowMs is in ms since 1970. Kafka goes by the records' timestamps alone; here a
// producer that writes old ones is remembered too while it is at work.
func (l *Log) ExpireProducers(nowMs int64) int {
	n := 0
	for id, s := range l.producers.byID {
		if s.txnFirst < 0 && nowMs-max(s.lastTimestamp, s.seenMs) >= l.cfg.ProducerExpirationMs {
			delete(l.producers.byID, id)
			n++
		}
	}
	return n
}

// rebuildProducers makes the state from the newest snapshot file that can be read and the batches after it.
func (l *Log) rebuildProducers(rec *Recovery) error {
	p := l.producers
	p.clear()
	from := l.segments[0].base
	for len(p.snapshots) > 0 {
		newest := p.snapshots[len(p.snapshots)-1]
		if newest < from {
			// Batches after it are gone: a producer that wrote them would be told that it is out of order, while one
			// that is not known may go on.
			if err := l.removeSnapshotsAbove(-1); err != nil {
				return err
			}
			break
		}
		err := p.readSnapshot(newest)
		if err == nil {
			from = max(from, newest)
			break
		}
		if !errors.Is(err, ErrCorrupt) {
			return err
		}
		if rec != nil {
			rec.note("removed a producer snapshot that can't be read: %v", err)
		}
		p.clear()
		if err := l.removeSnapshotsAbove(newest - 1); err != nil {
			return err
		}
	}
	for _, s := range l.segments {
		if s.next <= from || s.lost(s.size) {
			continue
		}
		if err := l.replayProducers(s, from); err != nil {
			return l.readError(s, err)
		}
	}
	return nil
}

func (l *Log) replayProducers(s *segment, from ident.Offset) error {
	pos := int64(0)
	if from > s.base {
		var err error
		if pos, _, err = s.locate(s.size, from); err != nil {
			return err
		}
	}
	f, err := s.acquire()
	if err != nil {
		return err
	}
	defer f.release()
	return s.eachHeader(f.file, pos, s.size, func(h batch.Header, pos int64) (bool, error) {
		if h.LastOffset() < from || !h.HasProducer() {
			return true, nil
		}
		var raw []byte
		if h.IsControl() {
			raw = make([]byte, h.Size())
			if err := readFull(f.file, raw, pos); err != nil {
				return false, err
			}
		}
		return true, l.producers.update(h, raw)
	})
}

// lastSequence and lastOffset are what a snapshot keeps; -1 when there is no batch.
func (s *producer) last() (sequence int32, offset ident.Offset, delta int32, timestamp int64) {
	if s.n == 0 {
		return -1, -1, 0, s.lastTimestamp
	}
	b := s.batches[s.n-1]
	return b.lastSequence, b.last, int32(min(b.last-b.first, math.MaxInt32)), s.lastTimestamp
}
