package log

import (
	"errors"
	"fmt"
	"math"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
)

// AppendInfo says what an append did.
type AppendInfo struct {
	// First and Last are the offsets of the first and the last record.
	First, Last ident.Offset
	Batches     int
	Bytes       int
	// MaxTimestamp is the largest timestamp in ms, -1 when there is none.
	MaxTimestamp int64
	// LogAppendTime is the time that the records got from the leader, -1 when they have the producer's.
	LogAppendTime int64
	// Duplicate says that a batch had been written before by the same producer, with the same sequence numbers:
	// nothing was appended, First and Last are those of then.
	Duplicate bool
}

// End is the log's end after the append.
func (i AppendInfo) End() ident.Offset { return i.Last + 1 }

// AppendAsLeader appends whole batches with one write. It gives them offsets, the leader epoch and, with
// Settings.LogAppendTime, their time, by changing their headers in place. It checks each checksum once and no record; CheckFromClient is the caller's. Batches
// of idempotent producers are checked against what the producer wrote before: the errors are
// ErrOutOfOrderSequence and ErrProducerFenced, and AppendInfo.Duplicate.
//
// batch.ErrCorrupt, batch.ErrTruncated, ErrTooLarge and the producer errors leave the log as it was.
func (l *Log) AppendAsLeader(batches []byte, epoch ident.Epoch) (AppendInfo, error) {
	if err := l.parse(batches); err != nil {
		return AppendInfo{}, err
	}
	if latest, ok := l.epochs.Latest(); ok && epoch < latest {
		return AppendInfo{}, fmt.Errorf("log %s: append in leader epoch %d, but epoch %d is known", l.dir, epoch, latest)
	}
	if info, found, err := l.producers.checkAll(l.headers); found || err != nil {
		if info.LogAppendTime = -1; l.cfg.LogAppendTime {
			info.LogAppendTime = info.MaxTimestamp
		}
		return info, err
	}
	stamp := int64(-1)
	if l.cfg.LogAppendTime && l.cfg.WallMillis != nil {
		stamp = l.cfg.WallMillis()
	}
	next, pos := l.active().next, 0
	for i := range l.headers {
		h := &l.headers[i]
		h.BaseOffset, h.LeaderEpoch = next, epoch
		batch.SetBaseOffset(batches[pos:], next)
		batch.SetLeaderEpoch(batches[pos:], epoch)
		switch {
		case stamp >= 0:
			batch.SetLogAppendTime(batches[pos:], h, stamp)
		case h.IsLogAppendTime():
			batch.ClearLogAppendTime(batches[pos:], h) // that is not for the producer to say
		}
		if h.NextOffset() <= next {
			return AppendInfo{}, fmt.Errorf("log %s: offsets are used up at %d", l.dir, next)
		}
		next = h.NextOffset()
		pos += h.Size()
	}
	info, err := l.write(batches)
	info.LogAppendTime = stamp
	return info, err
}

// AppendAsFollower appends whole batches as the leader has them, with one write unless they span more offsets than a
// segment can. They must continue the log in rising
// offsets and epochs: ErrNotContiguous. There may be gaps where the leader's log was compacted, but none in the
// metadata log (Config.StopOnCorruption). Checksums are checked once more. An empty log also
// takes a batch that begins before its start, when the leader's log start lies within that batch.
func (l *Log) AppendAsFollower(batches []byte) (AppendInfo, error) {
	if err := l.parse(batches); err != nil {
		return AppendInfo{}, err
	}
	next := l.active().next
	latest, _ := l.epochs.Latest()
	first, gaps := l.headers[0], l.gaps
	straddles := first.BaseOffset < next && first.LastOffset() >= next && l.start == next && l.Size() == 0
	if straddles {
		next = first.BaseOffset
	}
	for _, h := range l.headers {
		if !l.mayFollow(h.BaseOffset, next) {
			return AppendInfo{}, fmt.Errorf("log %s: %w: batch at offset %d, the log ends at %d", l.dir, ErrNotContiguous, h.BaseOffset, next)
		}
		if h.LeaderEpoch < latest {
			return AppendInfo{}, fmt.Errorf("log %s: %w: batch at offset %d has leader epoch %d, after epoch %d",
				l.dir, ErrNotContiguous, h.BaseOffset, h.LeaderEpoch, latest)
		}
		gaps = gaps || h.BaseOffset > next
		next, latest = h.NextOffset(), h.LeaderEpoch
	}
	l.gaps = gaps
	if straddles {
		start := l.start
		if err := l.TruncateFully(first.BaseOffset); err != nil {
			return AppendInfo{}, err
		}
		l.start = start
	}
	return l.writeParts(batches)
}

// writeParts is write, in as many parts as it takes: in a compacted log neighbours may lie further apart than the
// offsets of one segment reach.
func (l *Log) writeParts(batches []byte) (AppendInfo, error) {
	all := l.headers
	defer func() { l.headers = all }()
	var sum AppendInfo
	for done := 0; done < len(all); done += len(l.headers) {
		a := l.active()
		base := a.base
		if all[done].LastOffset()-base > math.MaxInt32 {
			base = a.next // where the next segment will begin
		}
		n, size := 1, all[done].Size()
		for done+n < len(all) && all[done+n].LastOffset()-base <= math.MaxInt32 {
			size += all[done+n].Size()
			n++
		}
		l.headers = all[done : done+n]
		info, err := l.write(batches[:size])
		if err != nil {
			return AppendInfo{}, err
		}
		if batches = batches[size:]; done == 0 {
			sum = info
			continue
		}
		sum.Last, sum.Batches, sum.Bytes = info.Last, sum.Batches+info.Batches, sum.Bytes+info.Bytes
		sum.MaxTimestamp = max(sum.MaxTimestamp, info.MaxTimestamp)
	}
	return sum, nil
}

// parse splits batches into l.headers and checks each of them.
func (l *Log) parse(batches []byte) error {
	if l.err != nil {
		return l.err
	}
	l.headers = l.headers[:0]
	if len(batches) > math.MaxInt32 {
		return fmt.Errorf("log %s: %w: %d bytes", l.dir, ErrTooLarge, len(batches))
	}
	for rest := batches; len(rest) > 0 || len(l.headers) == 0; {
		one, after, h, err := batch.Next(rest)
		if err == nil {
			err = batch.VerifyCRC(one, h)
		}
		if err != nil {
			return fmt.Errorf("log %s: append: %w", l.dir, err)
		}
		l.headers = append(l.headers, h)
		rest = after
	}
	return nil
}

// write appends the batches that l.headers describe.
func (l *Log) write(batches []byte) (AppendInfo, error) {
	first, last := l.headers[0], l.headers[len(l.headers)-1]
	info := AppendInfo{First: first.BaseOffset, Last: last.LastOffset(), Batches: len(l.headers), Bytes: len(batches), MaxTimestamp: -1, LogAppendTime: -1}
	for i := range l.headers {
		info.MaxTimestamp = max(info.MaxTimestamp, l.headers[i].MaxTimestamp)
	}
	if err := l.rollFor(int64(len(batches)), info.Last, info.MaxTimestamp); err != nil {
		return AppendInfo{}, err
	}
	a := l.active()
	if last.LastOffset()-a.base > math.MaxInt32 {
		return AppendInfo{}, fmt.Errorf("log %s: %w: offsets %d to %d", l.dir, ErrTooLarge, first.BaseOffset, last.LastOffset())
	}
	if n, err := a.file().WriteAt(batches, a.size); err != nil || n != len(batches) {
		if err == nil {
			err = errors.New("short write")
		}
		return AppendInfo{}, l.poison("write", err)
	}
	a.dirty = true
	if a.size == 0 {
		a.firstTS, a.firstKnown = first.MaxTimestamp, true
	}
	l.unflushedBytes += int64(len(batches))
	x := a.loaded.Load()
	pos := a.size
	for _, h := range l.headers {
		one := batches[pos-a.size : pos-a.size+int64(h.Size())]
		if err := l.producers.update(h, one); err != nil {
			return AppendInfo{}, l.poison("control batch", err)
		}
		if l.epochs.Assign(h.LeaderEpoch, h.BaseOffset) {
			l.epochsDirty = true
		}
		pos += int64(h.Size())
	}
	pos = a.size
	for _, h := range l.headers {
		a.note(x, h, pos)
		pos += int64(h.Size())
	}
	l.publish(false)
	return info, l.settle()
}
