package buffer

import (
	"bytes"
	"sync/atomic"
)

var (
	poison      atomic.Bool
	outstanding atomic.Int64
)

// poisonByte is no valid magic, length or varint run of anything that is read here.
const poisonByte = 0xdb

// Poison turns poisoning on for the life of the process: a released buffer is overwritten, and one that was written
// to after its release ends the process when it is lent again. It is for tests, and called before any buffer is lent.
func Poison() { poison.Store(true) }

// Outstanding is how many buffers have owners, counted while poisoning is on.
func Outstanding() int64 { return outstanding.Load() }

func (b *Buffer) fill() {
	all := b.B[:cap(b.B)]
	for i := range all {
		all[i] = poisonByte
	}
}

func (b *Buffer) checkPoison() {
	all := b.B[:cap(b.B)]
	if bytes.Count(all, []byte{poisonByte}) != len(all) {
		panic("buffer: written to after its release")
	}
}
