package sim

import (
	"fmt"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

// traced is something that feeds itself into a trace's hash without being written out first.
type traced interface{ mixInto(*World) }

// Trace feeds one line, with the time, into the hash of the run and, when Verbose, into its text. Whatever tells runs
// apart belongs here; nothing that differs between two runs of a seed (a pointer, a map).
func (w *World) Trace(format string, args ...any) {
	w.mix(uint64(w.now))
	w.mixString(format)
	for _, a := range args {
		w.mixAny(a)
	}
	if w.Verbose {
		fmt.Fprintf(&w.text, "%12.6f ", float64(w.now)/1e9)
		fmt.Fprintf(&w.text, format, args...)
		w.text.WriteByte('\n')
	}
}

// Hash is over all trace lines so far: two runs of one seed have the same.
func (w *World) Hash() uint64 { return w.hash }

// Text returns the trace lines so far; empty unless Verbose.
func (w *World) Text() string { return w.text.String() }

// mix feeds a number into the hash: FNV-1a over whole words, turned so that the upper bits count below too.
func (w *World) mix(x uint64) { w.hash = mixed(w.hash, x) }

func mixed(h, x uint64) uint64 {
	h = (h ^ x) * 0x100000001b3
	return h ^ h>>29
}

func (w *World) mixString(s string) {
	for i := range len(s) {
		w.mix(uint64(s[i]))
	}
	w.mix(uint64(len(s)))
}

func (w *World) mixAny(a any) {
	switch a := a.(type) {
	case traced:
		a.mixInto(w)
	case int:
		w.mix(uint64(a))
	case int32:
		w.mix(uint64(a))
	case int64:
		w.mix(uint64(a))
	case uint64:
		w.mix(a)
	case ident.NodeID:
		w.mix(uint64(a))
	case ident.Offset:
		w.mix(uint64(a))
	case ident.Epoch:
		w.mix(uint64(a))
	case ident.Instant:
		w.mix(uint64(a))
	case time.Duration:
		w.mix(uint64(a))
	case bool:
		if a {
			w.mix(1)
		} else {
			w.mix(0)
		}
	case string:
		w.mixString(a)
	default:
		w.mixString(fmt.Sprint(a))
	}
}
