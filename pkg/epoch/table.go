package epoch

import (
	"fmt"
	"slices"
	"sort"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Entry says that the records from Start on, up to the next entry, were written in Epoch.
type Entry struct {
	Epoch ident.Epoch
	Start ident.Offset
}

// Table is a list of entries in which epochs and starts strictly rise. Its zero value is empty and ready.
// Not safe for concurrent use.
type Table struct {
	entries []Entry
}

// New makes a table of entries, which must be in order; an error says which are not.
func New(entries []Entry) (*Table, error) {
	for i, e := range entries {
		if e.Epoch < 0 || e.Start < 0 {
			return nil, fmt.Errorf("leader epoch %d at offset %d: negative", e.Epoch, e.Start)
		}
		if i > 0 && (e.Epoch <= entries[i-1].Epoch || e.Start <= entries[i-1].Start) {
			return nil, fmt.Errorf("leader epoch %d at offset %d follows epoch %d at offset %d: both must rise",
				e.Epoch, e.Start, entries[i-1].Epoch, entries[i-1].Start)
		}
	}
	return &Table{slices.Clone(entries)}, nil
}

// Assign notes that epoch starts at start, and says whether that changed anything. An epoch that is there
// keeps its start. Entries that contradict the new one, of the same or a later epoch or a start not before its,
// are dropped first: they describe a log that is no more. Negative epochs, of batches that carry none, are ignored.
func (t *Table) Assign(epoch ident.Epoch, start ident.Offset) bool {
	if epoch < 0 || start < 0 {
		return false
	}
	if n := len(t.entries); n > 0 && t.entries[n-1].Epoch == epoch && t.entries[n-1].Start <= start {
		return false
	}
	keep := len(t.entries)
	for keep > 0 && (t.entries[keep-1].Epoch >= epoch || t.entries[keep-1].Start >= start) {
		keep--
	}
	t.entries = append(t.entries[:keep], Entry{epoch, start})
	return true
}

// EndOffsetFor returns the largest epoch that is not above the asked one and where it ends: for the latest
// epoch logEnd, else the start of the next one. An epoch below all that are known ends where they begin, and is
// answered as itself. ok is false when nothing can be said: the table is empty, or the epoch is negative or
// later than the latest.
func (t *Table) EndOffsetFor(epoch ident.Epoch, logEnd ident.Offset) (ident.Epoch, ident.Offset, bool) {
	n := len(t.entries)
	if n == 0 || epoch < 0 || epoch > t.entries[n-1].Epoch {
		return ident.UnknownEpoch, ident.UnknownOffset, false
	}
	if epoch == t.entries[n-1].Epoch {
		return epoch, logEnd, true
	}
	higher := sort.Search(n, func(i int) bool { return t.entries[i].Epoch > epoch })
	if higher == 0 {
		return epoch, t.entries[0].Start, true
	}
	return t.entries[higher-1].Epoch, t.entries[higher].Start, true
}

// EpochAt returns the epoch in which the record at offset was written.
func (t *Table) EpochAt(offset ident.Offset) (ident.Epoch, bool) {
	i := sort.Search(len(t.entries), func(i int) bool { return t.entries[i].Start > offset })
	if i == 0 {
		return ident.UnknownEpoch, false
	}
	return t.entries[i-1].Epoch, true
}

// TruncateFromEnd drops the epochs that start at or after end, and says whether there were any. It is to be
// called on every truncation, also when no record goes (KAFKA-10706).
func (t *Table) TruncateFromEnd(end ident.Offset) bool {
	keep := sort.Search(len(t.entries), func(i int) bool { return t.entries[i].Start >= end })
	changed := keep < len(t.entries)
	t.entries = t.entries[:keep]
	return changed
}

// TruncateFromStart drops the epochs that end at or before start, the new log start; the one that covers it
// now starts there. It says whether that changed anything.
func (t *Table) TruncateFromStart(start ident.Offset) bool {
	covering := sort.Search(len(t.entries), func(i int) bool { return t.entries[i].Start > start }) - 1
	if covering < 0 || covering == 0 && t.entries[0].Start == start {
		return false
	}
	t.entries = slices.Clone(t.entries[covering:])
	t.entries[0].Start = start
	return true
}

// Latest returns the last epoch.
func (t *Table) Latest() (ident.Epoch, bool) {
	if len(t.entries) == 0 {
		return ident.UnknownEpoch, false
	}
	return t.entries[len(t.entries)-1].Epoch, true
}

// Entries returns a copy of the table.
func (t *Table) Entries() []Entry { return slices.Clone(t.entries) }
