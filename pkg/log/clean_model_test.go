package log

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

type cleanMachine struct {
	mem       *vfs.Mem
	log       *Log
	model     *keyed
	cfg       Config
	hw        ident.Offset
	now       int64
	retention int64
	options   CleanOptions
}

func (m *cleanMachine) open(t *rapid.T) {
	cfg := m.cfg
	cfg.StartOffset = m.model.start
	m.log, _ = mustOpen(t, m.mem, cfg)
}

func (m *cleanMachine) append(t *rapid.T) {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "batch"), 1))
	raw := compressed(t, sequence(t, m.log, m.model.batchFor(rng.IntN, m.now)), batch.Compression(rng.IntN(5)))
	if _, err := m.log.AppendAsLeader(raw, 1); err != nil {
		t.Fatal(err)
	}
}

func (m *cleanMachine) truncate(t *rapid.T) {
	to := ident.Offset(rapid.Int64Range(int64(m.hw), int64(m.model.end())).Draw(t, "to"))
	mustTruncate(t, m.log, to)
	m.model.truncate(m.log.EndOffset()) // lower than the high watermark where that lies within a batch
	m.hw = min(m.hw, m.log.EndOffset())
}

func (m *cleanMachine) moveStart(t *rapid.T) {
	o := ident.Offset(rapid.Int64Range(int64(m.model.start), int64(m.hw)).Draw(t, "start"))
	if err := m.log.SetStartOffset(o); err != nil {
		t.Fatal(err)
	}
	m.model.start = o
}

func (m *cleanMachine) clean(t *rapid.T) {
	mustFlush(t, m.log)
	c, err := m.log.BeginClean(m.now, m.hw, m.options)
	if err != nil {
		t.Fatal(err)
	}
	if c == nil {
		return
	}
	if other, err := m.log.BeginClean(m.now, m.hw, m.options); other != nil || err != nil {
		t.Fatalf("a second run beside the first: %v", err)
	}
	reader, err := m.log.Read(m.log.StartOffset(), 1<<20, m.log.EndOffset(), true)
	if err != nil {
		t.Fatal(err)
	}
	before, err := reader.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	between := func() {
		switch rapid.IntRange(0, 5).Draw(t, "between") {
		case 0:
			m.append(t)
		case 1:
			m.truncate(t)
		case 2:
			m.moveStart(t)
		}
	}
	between()
	runErr := c.Run()
	between()
	done, err := m.log.EndClean(c, runErr)
	if err != nil {
		t.Fatal(err)
	}
	if after, err := reader.AppendTo(nil); done && (err != nil || !bytes.Equal(before, after)) {
		t.Fatalf("a reader of the old segments: %v", err)
	}
	reader.Release()
	if !done {
		return
	}
	if m.log.CleanOffset() != c.Stats.To {
		t.Fatalf("compacted up to %d, the run says %d", m.log.CleanOffset(), c.Stats.To)
	}
	for o := range c.Stats.To {
		if _, ok := m.model.cleaned[o]; !ok {
			m.model.cleaned[o] = m.now
		}
	}
}

func (m *cleanMachine) check(t *rapid.T) {
	if err := m.model.holds(m.log, m.now, m.retention, m.log.CleanOffset()); err != nil {
		t.Fatal(err)
	}
}

// ends are the producers as far as they must survive.
func (p *Producers) ends() map[int64]string {
	out := map[int64]string{}
	for id, s := range p.byID {
		sequence, offset, _, _ := s.last()
		out[id] = fmt.Sprint(s.epoch, sequence, offset)
	}
	return out
}

func TestCompactionAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &cleanMachine{
			mem: vfs.NewMem(), model: &keyed{cleaned: map[ident.Offset]int64{}}, now: 1_000_000, retention: 500,
			options: CleanOptions{Map: NewOffsetMap(0)},
		}
		m.cfg = Config{Settings: cleanSettings(m.retention)}
		if rapid.Bool().Draw(t, "small map") {
			m.options.Map.maxSlots = 24
			m.options.Map.slots = make([]slot, 24)
		}
		m.open(t)
		t.Repeat(map[string]func(*rapid.T){
			"append":   m.append,
			"append 2": m.append,
			"append 3": m.append,
			"commit": func(t *rapid.T) {
				m.hw = ident.Offset(rapid.Int64Range(int64(m.hw), int64(m.log.EndOffset())).Draw(t, "hw"))
			},
			"commit all": func(t *rapid.T) { m.hw = m.log.EndOffset() },
			"time":       func(t *rapid.T) { m.now += rapid.Int64Range(1, 400).Draw(t, "ms") },
			"roll": func(t *rapid.T) {
				if err := m.log.Roll(); err != nil {
					t.Fatal(err)
				}
			},
			"truncate":   m.truncate,
			"move start": m.moveStart,
			"clean":      m.clean,
			"clean 2":    m.clean,
			"restart": func(t *rapid.T) {
				before := m.log.producers.ends()
				// The checkpoint may be an older one, and is none when its file is damaged.
				m.cfg.CleanOffset = rapid.SampledFrom([]ident.Offset{0, m.log.CleanOffset() / 2, m.log.CleanOffset()}).Draw(t, "checkpoint")
				m.cfg.RecoveryPoint = rapid.SampledFrom([]ident.Offset{0, m.log.FlushedOffset()}).Draw(t, "recovery point")
				if m.cfg.CleanShutdown = rapid.Bool().Draw(t, "in order"); m.cfg.CleanShutdown {
					mustClose(t, m.log)
				} else {
					if m.log.DurableStartOffset() != m.model.start {
						mustFlush(t, m.log)
					}
					m.mem = m.mem.CrashClone(nil, 100)
				}
				m.open(t)
				if after := m.log.producers.ends(); !maps.Equal(before, after) {
					t.Fatalf("producers were %v, are %v", before, after)
				}
			},
			"": m.check,
		})
	})
}
