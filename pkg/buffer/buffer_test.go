package buffer

import (
	"bytes"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	Poison()
	os.Exit(m.Run())
}

func TestCapacityIsTheClassThatHoldsIt(t *testing.T) {
	for n, want := range map[int]int{
		0: 4 << 10, 1: 4 << 10, 4 << 10: 4 << 10, 4<<10 + 1: 8 << 10, 1 << 20: 1 << 20, 16 << 20: 16 << 20, 16<<20 + 1: 16<<20 + 1,
	} {
		b := Get(n)
		if len(b.B) != 0 || cap(b.B) != want {
			t.Errorf("Get(%d): length %d, capacity %d, want 0 and %d", n, len(b.B), cap(b.B), want)
		}
		b.Release()
	}
}

func TestReleasedBytesAreGone(t *testing.T) {
	b := Get(10)
	b.B = append(b.B, "content"...)
	kept := b.B
	b.Retain()
	b.Release()
	if string(kept) != "content" {
		t.Fatalf("%q while there is an owner", kept)
	}
	b.Release()
	if !bytes.Equal(kept, bytes.Repeat([]byte{poisonByte}, len(kept))) {
		t.Fatalf("%q after the last owner released it", kept)
	}
}

func TestGrownBufferGoesToTheClassOfItsArray(t *testing.T) {
	b := Get(1)
	b.B = append(b.B, make([]byte, 100<<10)...)
	b.Release() // of a capacity between two classes
	for range 10 {
		c := Get(128 << 10)
		if cap(c.B) < 128<<10 {
			t.Fatalf("lent %d bytes, asked for %d", cap(c.B), 128<<10)
		}
		c.Release()
	}
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s goes unnoticed", what)
		}
	}()
	f()
}

func TestMisuseIsNoticed(t *testing.T) {
	b := &Buffer{B: make([]byte, 0, 10)} // of no class: nobody else gets it
	b.owners.Store(1)
	b.Release()
	mustPanic(t, "a second release", b.Release)
	c := &Buffer{B: make([]byte, 0, 10)}
	mustPanic(t, "owning what is released", c.Retain)
	d := &Buffer{B: make([]byte, 0, 10)}
	d.fill()
	d.checkPoison()
	d.B[:10][7] = 1
	mustPanic(t, "a write after the release", d.checkPoison)
}

func TestOutstandingCountsWhatHasOwners(t *testing.T) {
	before := Outstanding()
	b := Get(1)
	if n := Outstanding() - before; n != 1 {
		t.Errorf("%d more, want 1", n)
	}
	b.Release()
	if n := Outstanding() - before; n != 0 {
		t.Errorf("%d more after the release", n)
	}
}
