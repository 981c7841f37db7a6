package vfs

import (
	"math/rand/v2"
)

// sectorBytes is what a disk writes whole or not at all.
const sectorBytes = 512

// CrashClone returns the file system as it may be found after power was lost now; m goes on unchanged.
//
// The model is a page cache. Every sector of a file holds its durable content with the first k of the
// operations since the last Sync applied, with a k of its own, and so does the size; of a directory the first k
// of its operations since SyncDir survive. k is "all" with a probability of keepUnsyncedPercent and else
// drawn evenly: so a write may be torn, a later one survive an earlier one in another sector, and a file whose
// directory was not synced be gone. 0 keeps nothing that was not synced, 100 keeps all: a process that was killed.
//
// All of rng's draws are made in name order, so that a seed says all.
func (m *Mem) CrashClone(rng *rand.Rand, keepUnsyncedPercent int) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := crasher{rng: rng, percent: keepUnsyncedPercent, done: map[*memNode]*memNode{}}
	return &Mem{root: c.clone(m.root), locks: map[string]bool{}}
}

type crasher struct {
	rng     *rand.Rand
	percent int
	done    map[*memNode]*memNode // a node that was reached by two names is one file still
}

// kept draws how many of n unsynced operations survive.
func (c *crasher) kept(n int) int {
	switch {
	case n == 0 || c.percent >= 100:
		return n
	case c.percent <= 0:
		return 0
	case c.rng.IntN(100) < c.percent:
		return n
	}
	return c.rng.IntN(n)
}

func (c *crasher) clone(n *memNode) *memNode {
	if out, ok := c.done[n]; ok {
		return out
	}
	if !n.dir {
		out := &memNode{durable: c.content(n)}
		out.data = append([]byte(nil), out.durable...)
		c.done[n] = out
		return out
	}
	out := newMemDir()
	c.done[n] = out
	entries := make(map[string]*memNode, len(n.durableEntries))
	for name, node := range n.durableEntries {
		entries[name] = node
	}
	for _, op := range n.unsyncedDirOps[:c.kept(len(n.unsyncedDirOps))] {
		op.applyTo(entries)
	}
	for _, name := range sortedNames(entries) {
		node := c.clone(entries[name])
		out.entries[name] = node
		out.durableEntries[name] = node
	}
	return out
}

func (c *crasher) content(n *memNode) []byte {
	data := append([]byte(nil), n.durable...)
	ops := n.unsynced
	if len(ops) == 0 {
		return data
	}
	size := int64(len(n.durable))
	for _, op := range ops[:c.kept(len(ops))] {
		if op.truncate {
			size = op.off
		} else {
			size = max(size, op.off+int64(len(op.data)))
		}
	}
	data = fileOp{truncate: true, off: size}.applyTo(data)
	// Sectors that no operation touched need no draw.
	dirty := make([]bool, (size+sectorBytes-1)/sectorBytes)
	for _, op := range ops {
		from, to := op.off, op.off+int64(len(op.data))
		if op.truncate {
			to = size
		}
		for s := from / sectorBytes; s < int64(len(dirty)) && s*sectorBytes < to; s++ {
			dirty[s] = true
		}
	}
	for s, touched := range dirty {
		if !touched {
			continue
		}
		lo := int64(s) * sectorBytes
		hi := min(lo+sectorBytes, size)
		for _, op := range ops[:c.kept(len(ops))] {
			if op.truncate {
				if op.off < hi {
					clear(data[max(op.off, lo):hi])
				}
				continue
			}
			from, to := max(op.off, lo), min(op.off+int64(len(op.data)), hi)
			if from < to {
				copy(data[from:to], op.data[from-op.off:to-op.off])
			}
		}
	}
	return data
}
