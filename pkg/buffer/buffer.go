package buffer

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
)

// Sizes of what is pooled: powers of two. What is larger is allocated and left to the garbage collector, as a rare
// huge request should not stay.
const (
	minBits = 12 // 4 KiB
	maxBits = 24 // 16 MiB
)

var pools [maxBits - minBits + 1]sync.Pool

// Buffer is bytes with owners. Its content is its owners' until the last of them releases it.
type Buffer struct {
	// B has length 0 at first. An only owner may append to it, and so replace its array.
	B []byte

	plain  bool // of no pool
	owners atomic.Int32
}

// Get returns a buffer of length 0 and a capacity of at least n bytes, with one owner.
func Get(n int) *Buffer {
	class := max(0, bits.Len(uint(max(n, 1)-1))-minBits)
	if class >= len(pools) {
		return New(n)
	}
	b, _ := pools[class].Get().(*Buffer)
	if b == nil {
		b = &Buffer{B: make([]byte, 0, 1<<(class+minBits))}
	} else if poison.Load() {
		b.checkPoison()
	}
	b.lend()
	return b
}

// New returns a buffer of n bytes of no pool: the garbage collector has it, whether it is released or not.
func New(n int) *Buffer {
	b := &Buffer{B: make([]byte, 0, n), plain: true}
	b.owners.Store(1)
	return b
}

func (b *Buffer) lend() {
	b.owners.Store(1)
	if poison.Load() {
		outstanding.Add(1)
	}
}

// Retain adds an owner. Only an owner may do so.
func (b *Buffer) Retain() {
	if n := b.owners.Add(1); n <= 1 {
		panic(fmt.Sprintf("buffer: retained with %d owners, after its release", n-1))
	}
}

// Release takes an owner away; with the last one the bytes are gone.
func (b *Buffer) Release() {
	switch n := b.owners.Add(-1); {
	case n > 0:
		return
	case n < 0:
		panic("buffer: released more often than it has owners")
	case b.plain:
		return
	}
	if poison.Load() {
		outstanding.Add(-1)
		b.fill()
	}
	b.B = b.B[:0]
	// By the array that it has now, of which at least the class's size is there.
	class := bits.Len(uint(cap(b.B))) - 1 - minBits
	if class >= 0 && class < len(pools) {
		pools[class].Put(b)
	}
}
