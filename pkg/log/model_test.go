package log

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/epoch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// modelBatch is a batch as the model remembers it.
type modelBatch struct {
	base, next ident.Offset
	epoch      ident.Epoch
	size       int
}

// logMachine runs a log beside a list of batches.
type logMachine struct {
	mem     *vfs.Mem
	log     *Log
	cfg     Config
	start   ident.Offset
	end     ident.Offset
	flushed ident.Offset
	epoch   ident.Epoch
	batches []modelBatch
	gaps    bool // as a follower of a compacted log has them

	chores    *Chores
	ran       bool
	choresErr error
}

func (m *logMachine) open(t *rapid.T, clean bool) {
	cfg := m.cfg
	cfg.CleanShutdown = clean
	cfg.StartOffset = m.start
	cfg.ChoresApart = rapid.Bool().Draw(t, "chores apart")
	cfg.StopOnCorruption = !m.gaps && rapid.Bool().Draw(t, "stop")
	if rapid.Bool().Draw(t, "recovery point") {
		cfg.RecoveryPoint = m.flushed
	}
	l, rec := mustOpen(t, m.mem, cfg)
	if rec.CutBytes != 0 || clean && rec.Repaired() {
		t.Fatalf("repaired: %+v", rec)
	}
	m.log, m.flushed, m.chores = l, m.end, nil
	m.check(t)
}

func (m *logMachine) check(t *rapid.T) {
	if f := m.log.FlushedOffset(); f > m.flushed && f <= m.end {
		m.flushed = f // a roll may flush
	}
	if m.log.StartOffset() != m.start || m.log.EndOffset() != m.end || m.log.FlushedOffset() != m.flushed {
		t.Fatalf("log is %d to %d, flushed %d; model %d to %d, %d", m.log.StartOffset(), m.log.EndOffset(), m.log.FlushedOffset(), m.start, m.end, m.flushed)
	}
	var want epoch.Table
	for _, b := range m.batches {
		want.Assign(b.epoch, b.base)
	}
	want.TruncateFromStart(m.start)
	e := ident.Epoch(rapid.IntRange(0, int(m.epoch)+1).Draw(t, "asked epoch"))
	if m.gaps && (len(m.batches) == 0 || e < m.batches[0].epoch) {
		return // where those end, in the gap before the first batch, depends on how the start got there
	}
	wantEpoch, wantEnd, wantOK := want.EndOffsetFor(e, m.end)
	if gotEpoch, gotEnd, ok := m.log.EpochEndOffset(e); m.end > m.start && (gotEpoch != wantEpoch || gotEnd != wantEnd || ok != wantOK) {
		t.Fatalf("epoch %d ends at %d in %d, %v; want %d, %d, %v", e, gotEnd, gotEpoch, ok, wantEpoch, wantEnd, wantOK)
	}
}

func (m *logMachine) dropBelowStart() {
	for len(m.batches) > 0 && m.batches[0].next <= m.start {
		m.batches = m.batches[1:]
	}
}

func (m *logMachine) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"append": func(t *rapid.T) {
			m.epoch += ident.Epoch(rapid.IntRange(0, 1).Draw(t, "epoch step"))
			var raw []byte
			for range rapid.IntRange(1, 3).Draw(t, "batches") {
				n := rapid.IntRange(1, 4).Draw(t, "records")
				b := records(m.end, m.epoch, n, rapid.IntRange(1, 200).Draw(t, "size"))
				m.batches = append(m.batches, modelBatch{m.end, m.end + ident.Offset(n), m.epoch, len(b)})
				m.end += ident.Offset(n)
				raw = append(raw, b...)
			}
			if _, err := m.log.AppendAsLeader(raw, m.epoch); err != nil {
				t.Fatal(err)
			}
		},
		"follow": func(t *rapid.T) {
			var raw []byte
			for range rapid.IntRange(1, 3).Draw(t, "batches") {
				n := rapid.IntRange(1, 5).Draw(t, "records")
				if m.gaps {
					m.end += ident.Offset(rapid.IntRange(0, 4).Draw(t, "gap"))
				}
				b := batchOf(m.end, n, m.epoch)
				m.batches = append(m.batches, modelBatch{m.end, m.end + ident.Offset(n), m.epoch, len(b)})
				m.end += ident.Offset(n)
				raw = append(raw, b...)
			}
			if _, err := m.log.AppendAsFollower(raw); err != nil {
				t.Fatal(err)
			}
		},
		"read": func(t *rapid.T) {
			from := ident.Offset(rapid.Int64Range(int64(m.start), int64(m.end)).Draw(t, "from"))
			below := ident.Offset(rapid.Int64Range(int64(m.start), int64(m.end)).Draw(t, "below"))
			limit := rapid.IntRange(1, 2000).Draw(t, "max bytes")
			minOne := rapid.Bool().Draw(t, "min one")
			first, next, size := from, from, 0
			for _, b := range m.batches {
				if b.next <= from || b.next > below {
					continue
				}
				if size+b.size > limit && (size > 0 || !minOne) {
					break
				}
				if size == 0 {
					first = b.base
				}
				size, next = size+b.size, b.next
				if size > limit {
					break
				}
			}
			c, err := m.log.Read(from, limit, below, minOne)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Release()
			for _, b := range m.batches {
				if size > 0 && b.base > next && c.Next > next && c.Next <= b.base && c.Next <= below {
					next = c.Next // anywhere in a gap
				}
			}
			if c.First != first || c.Next != next || c.Bytes != size {
				t.Fatalf("read %d below %d, %d bytes: got %d to %d, %d bytes; want %d to %d, %d", from, below, limit, c.First, c.Next, c.Bytes, first, next, size)
			}
		},
		"truncate": func(t *rapid.T) {
			to := ident.Offset(rapid.Int64Range(int64(m.start), int64(m.end)).Draw(t, "to"))
			mustTruncate(t, m.log, to)
			for len(m.batches) > 0 && m.batches[len(m.batches)-1].next > to {
				m.batches = m.batches[:len(m.batches)-1]
				if m.end = m.start; len(m.batches) > 0 { // else the batch that held the start is gone: an empty log from there on
					m.end = m.batches[len(m.batches)-1].next
				}
			}
			m.flushed = min(m.flushed, m.end)
		},
		"truncate fully": func(t *rapid.T) {
			o := ident.Offset(rapid.Int64Range(0, 200).Draw(t, "to"))
			if err := m.log.TruncateFully(o); err != nil {
				t.Fatal(err)
			}
			m.start, m.end, m.flushed, m.batches = o, o, o, nil
		},
		"move start": func(t *rapid.T) {
			o := ident.Offset(rapid.Int64Range(int64(m.start), int64(m.end)).Draw(t, "to"))
			if err := m.log.SetStartOffset(o); err != nil {
				t.Fatal(err)
			}
			m.start = o
			m.dropBelowStart()
		},
		"retain": func(t *rapid.T) {
			upTo := ident.Offset(rapid.Int64Range(int64(m.start), int64(m.end)).Draw(t, "up to"))
			if _, _, err := m.log.DeleteOldSegments(0, Limits{Ms: -1, Bytes: 1500}, upTo); err != nil {
				t.Fatal(err)
			}
			if m.log.StartOffset() > max(upTo, m.start) {
				t.Fatalf("start moved to %d, beyond %d", m.log.StartOffset(), upTo)
			}
			m.start = m.log.StartOffset()
			m.dropBelowStart()
		},
		"flush": func(t *rapid.T) { mustFlush(t, m.log); m.flushed = m.end },
		"close": func(t *rapid.T) { mustClose(t, m.log); m.open(t, true) },
		"kill": func(t *rapid.T) {
			if m.log.DurableStartOffset() != m.start { // what goes with a start that was not flushed is not the model's matter
				mustFlush(t, m.log)
			}
			m.mem = m.mem.CrashClone(nil, 100)
			m.open(t, false)
		},
		"out of range": func(t *rapid.T) {
			if _, err := m.log.Read(m.end+1, 1, m.end+1, true); !errors.Is(err, ErrOffsetOutOfRange) {
				t.Fatal(err)
			}
		},
		"begin chores": func(t *rapid.T) {
			if c := m.log.BeginChores(); c != nil {
				m.chores, m.ran = c, false
			}
		},
		"run chores": func(t *rapid.T) {
			if m.chores != nil {
				m.ran, m.choresErr = true, m.chores.Run()
			}
		},
		"end chores": func(t *rapid.T) {
			if m.chores == nil || !m.ran {
				return
			}
			if err := m.log.EndChores(m.chores, m.choresErr); err != nil {
				t.Fatal(err)
			}
			m.chores = nil
		},
		"": m.verify,
	}
}

func (m *logMachine) verify(t *rapid.T) {
	m.check(t)
	got := checkBatches(t, m.log, m.gaps)
	for _, b := range m.batches {
		for o := b.base; o < b.next; o++ {
			want := fmt.Sprintf("%d/%d/", b.epoch, o)
			if v := got[o]; len(v) < len(want) || v[:len(want)] != want {
				t.Fatalf("record %d is %.20q, want %q", o, v, want)
			}
		}
	}
}

func TestLogAgainstAModel(t *testing.T)         { runAgainstModel(t, false) }
func TestLogWithGapsAgainstAModel(t *testing.T) { runAgainstModel(t, true) }

func runAgainstModel(t *testing.T, gaps bool) {
	rapid.Check(t, func(t *rapid.T) {
		m := &logMachine{gaps: gaps, mem: vfs.NewMem(), cfg: Config{Settings: Settings{SegmentBytes: 900, IndexIntervalBytes: 150, IndexBytes: 64}, Files: NewFiles(2, 500)}}
		m.cfg.Compaction.Enabled = gaps
		m.open(t, false)
		t.Repeat(m.actions())
	})
}

// Two logs that were led by turns, each for a while alone, must become equal by the rounds of fetching with the
// last epoch that leader and follower make (KIP-101, KIP-279).
func TestDivergedFollowerConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logs := [2]*Log{}
		for i := range logs {
			logs[i], _ = mustOpen(t, vfs.NewMem(), Config{Settings: Settings{SegmentBytes: 600, IndexIntervalBytes: 100}})
		}
		e := ident.Epoch(0)
		for range rapid.IntRange(1, 6).Draw(t, "elections") {
			e++
			leader, follower := logs[0], logs[1]
			if rapid.Bool().Draw(t, "swap") {
				leader, follower = follower, leader
			}
			if err := leader.AssignEpoch(e); err != nil {
				t.Fatal(err)
			}
			for range rapid.IntRange(0, 4).Draw(t, "appends") {
				mustAppend(t, leader, e, rapid.IntRange(1, 3).Draw(t, "n"), 40)
			}
			if rapid.Bool().Draw(t, "replicate") {
				converge(t, leader, follower)
			}
		}
		e++
		if err := logs[0].AssignEpoch(e); err != nil {
			t.Fatal(err)
		}
		converge(t, logs[0], logs[1])
		if a, b := readAll(t, logs[0], 1<<20), readAll(t, logs[1], 1<<20); string(a) != string(b) {
			t.Fatalf("leader has %d bytes, follower %d", len(a), len(b))
		}
	})
}

func converge(t *rapid.T, leader, follower *Log) {
	for round := 0; ; round++ {
		if round > 40 {
			t.Fatal("follower and leader don't agree")
		}
		last := follower.LatestEpoch()
		if last >= 0 {
			e, end, ok := leader.EpochEndOffset(last)
			if !ok {
				t.Fatalf("leader knows nothing of epoch %d", last)
			}
			if e < last || end < follower.EndOffset() {
				own, ownEnd, ok := follower.EpochEndOffset(e)
				to := min(end, follower.EndOffset())
				if ok && own != e {
					to = ownEnd
				} else if ok {
					to = min(to, ownEnd)
				}
				mustTruncate(t, follower, to)
				continue
			}
		}
		if follower.EndOffset() == leader.EndOffset() {
			return
		}
		c, err := leader.Read(follower.EndOffset(), 300, leader.EndOffset(), true)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := c.AppendTo(nil)
		c.Release()
		if err == nil {
			_, err = follower.AppendAsFollower(raw)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestReadersMayRunBesideTheWriter(t *testing.T) {
	l, _ := newLog(t, Config{Settings: Settings{SegmentBytes: 700, IndexIntervalBytes: 100}, Files: NewFiles(2, 500), ChoresApart: true})
	done := make(chan struct{})
	failed := make(chan error, 4)
	for range 4 {
		go func() {
			failed <- func() error {
				for {
					select {
					case <-done:
						return nil
					default:
					}
					from := l.StartOffset()
					c, err := l.Read(from, 500, l.EndOffset(), true)
					if errors.Is(err, ErrOffsetOutOfRange) {
						continue // the start has moved on
					}
					if err != nil {
						return err
					}
					raw, err := c.AppendTo(nil)
					c.Release()
					if err != nil {
						return err
					}
					for len(raw) > 0 {
						one, rest, _, err := batch.Next(raw)
						if err == nil {
							err = batch.Verify(one)
						}
						if err != nil {
							return err
						}
						raw = rest
					}
				}
			}()
		}()
	}
	type outcome struct {
		chores *Chores
		err    error
	}
	var running bool
	ended := make(chan outcome, 1)
	for i := range 2000 {
		select {
		case o := <-ended:
			running = false
			if err := l.EndChores(o.chores, o.err); err != nil {
				t.Fatal(err)
			}
		default:
		}
		if c := l.BeginChores(); c != nil && !running {
			running = true
			go func() { ended <- outcome{c, c.Run()} }()
		}
		mustAppend(t, l, ident.Epoch(i/100), 1, 100)
		if i%7 == 6 {
			mustFlush(t, l)
		}
		if i%50 == 49 {
			if err := l.SetStartOffset(l.EndOffset() - 20); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(done)
	for range 4 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}
