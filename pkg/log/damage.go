package log

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// DamageCheckpointFile lies in the directory of a log that is damaged or being refilled. Its format is that of Kafka's
// checkpoints: "0", the number of entries, then "damaged <from> <to>" or "refilling <from> <to>". Apache Kafka ignores
// it.
const DamageCheckpointFile = "damage-checkpoint"

// Damage is a run of offsets whose records were in the log and are not whole any more: their bytes changed, or a file
// is missing or too short. They are never read; what lies before and after is.
type Damage struct {
	From, To ident.Offset // To is exclusive
	Err      error        // what is wrong; nil when it was found before the last start
}

// String is for the node's log.
func (d Damage) String() string {
	if d.Err == nil {
		return fmt.Sprintf("offsets %d to %d are damaged", d.From, d.To-1)
	}
	return fmt.Sprintf("offsets %d to %d are damaged: %v", d.From, d.To-1, d.Err)
}

// CorruptError says that a look-up met bytes that are no batch where one must be. It is ErrCorrupt. When the damage is
// not yet known, Suspect has the segment checked.
type CorruptError struct {
	Dir     string
	Segment ident.Offset // base offset
	Err     error
}

// Error says where and what.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("log %s, segment %d: %v: %v", e.Dir, e.Segment, ErrCorrupt, e.Err)
}

// Unwrap makes it ErrCorrupt.
func (e *CorruptError) Unwrap() []error { return []error{ErrCorrupt, e.Err} }

// Damage returns what is damaged, in offset order. Like Read it may run beside the owner.
func (l *Log) Damage() []Damage { return l.view.Load().damage }

// Damaged says whether anything is damaged.
func (l *Log) Damaged() bool { return len(l.Damage()) > 0 }

// damageAt returns the damage that covers o, and else where the next one begins, at most below.
func (v *view) damageAt(o, below ident.Offset) (*Damage, ident.Offset) {
	for i := range v.damage {
		d := &v.damage[i]
		switch {
		case o >= d.To:
		case o >= d.From:
			return d, below
		default:
			return nil, min(below, d.From)
		}
	}
	return nil, below
}

// allDamage collects what the segments have, clipped to the log.
func (l *Log) allDamage() []Damage {
	var out []Damage
	end := l.active().next
	for _, s := range l.segments {
		for _, b := range s.damage() {
			d := Damage{max(b.from, l.start), min(b.to, end), b.err}
			if d.From >= d.To {
				continue
			}
			if n := len(out); n > 0 && out[n-1].To >= d.From {
				out[n-1].To = max(out[n-1].To, d.To)
				continue
			}
			out = append(out, d)
		}
	}
	return out
}

func (s *segment) damage() []bad {
	if p := s.bad.Load(); p != nil {
		return *p
	}
	return nil
}

func (s *segment) setDamage(list []bad) {
	if len(list) == 0 {
		s.bad.Store(nil)
		return
	}
	s.bad.Store(&list)
}

// mergeBad puts two lists together; what overlaps becomes one.
func mergeBad(a, b []bad) []bad {
	all := append(slices.Clone(a), b...)
	slices.SortFunc(all, func(x, y bad) int { return cmp.Or(cmp.Compare(x.pos, y.pos), cmp.Compare(x.from, y.from)) })
	merged := all[:0]
	for _, x := range all {
		if n := len(merged); n > 0 && (x.pos < merged[n-1].end || x.from < merged[n-1].to) {
			m := &merged[n-1]
			m.end, m.from, m.to = max(m.end, x.end), min(m.from, x.from), max(m.to, x.to)
			continue
		}
		merged = append(merged, x)
	}
	return merged
}

// skipBad returns where a walk goes on that has come to pos.
func skipBad(list []bad, pos int64) int64 {
	for _, b := range list { // in order, and one may begin where another ends
		if pos >= b.pos && pos < b.end {
			pos = b.end
		}
	}
	return pos
}

// lost says that nothing of the segment's first bytes can be read, and perhaps not even its file is there.
func (s *segment) lost(size int64) bool { return skipBad(s.damage(), 0) >= size }

// stopsAt returns what is damaged from pos on.
func stopsAt(list []bad, pos int64) *bad {
	for i := range list {
		if b := &list[i]; pos >= b.pos && (pos < b.end || pos == b.pos) {
			return b
		}
	}
	return nil
}

// damageChanged writes down what is damaged by now, when that differs from what the file says. It is before anything
// is told of it: after a crash nothing but the file would say that this log is not whole.
func (l *Log) damageChanged() error {
	if l.view.Load() == nil {
		return nil // it is being opened; all of it is written down at once
	}
	l.publish(true)
	content := ""
	if damage := l.Damage(); len(damage) > 0 || l.refilling != nil {
		content = encodeDamage(damage, l.refilling)
	}
	if content == l.damageFile {
		return nil
	}
	name := filepath.Join(l.dir, DamageCheckpointFile)
	var err error
	if content == "" {
		if err = removeIfThere(l.fsys, name); err == nil {
			err = l.fsys.SyncDir(l.dir)
		}
	} else {
		err = vfs.WriteFileAtomic(l.fsys, name, []byte(content))
	}
	if err != nil {
		return l.poison("write "+DamageCheckpointFile, err)
	}
	l.damageFile = content
	return nil
}

func encodeDamage(damage []Damage, r *Refill) string {
	var b strings.Builder
	n := len(damage)
	if r != nil {
		n++
	}
	fmt.Fprintf(&b, "0\n%d\n", n)
	for _, d := range damage {
		fmt.Fprintf(&b, "damaged %d %d\n", d.From, d.To)
	}
	if r != nil {
		fmt.Fprintf(&b, "refilling %d %d\n", r.From, r.To)
	}
	return b.String()
}

func decodeDamage(data []byte) (damage []Damage, refill *Refill, err error) {
	err = parseCheckpoint(data, func(fields []string) error {
		if len(fields) != 3 {
			return errors.New("want what, from and to")
		}
		n, err := parseInts(fields[1:], 63, 63)
		if err != nil {
			return err
		}
		from, to := ident.Offset(n[0]), ident.Offset(n[1])
		switch fields[0] {
		case "damaged":
			damage = append(damage, Damage{From: from, To: to})
		case "refilling":
			refill = &Refill{from, to}
		default:
			return fmt.Errorf("%q is neither damaged nor refilling", fields[0])
		}
		return nil
	})
	return damage, refill, err
}

// readDamage takes over what was written down in an earlier life. The ranges that were damaged then are checked again
// by the caller, since only the batches tell where the log goes on.
func (l *Log) readDamage(rec *Recovery) ([]Damage, error) {
	data, err := vfs.ReadFile(l.fsys, filepath.Join(l.dir, DamageCheckpointFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l.damageFile = string(data)
	damage, refill, err := decodeDamage(data)
	if err != nil {
		// It may have said that records are missing, up to nobody knows where: as far as the leader's log goes.
		l.refilling = &Refill{0, maxOffset}
		rec.note("%s can't be read: all of the log is checked, and the replica counts as not whole until it has all that its leader has: %v", DamageCheckpointFile, err)
		return []Damage{{From: 0, To: maxOffset}}, nil
	}
	l.refilling = refill
	return damage, nil
}

const maxOffset = ident.Offset(1<<63 - 1)

// checkUnscanned looks at the segments before index scanFrom, which are trusted after a crash or a clean shutdown. A
// file that is missing between two others, or has lost its end, is noticed; what was damaged in an earlier life is
// checked again.
func (l *Log) checkUnscanned(known []Damage, scanFrom int, clean bool, rec *Recovery) error {
	if l.cfg.StopOnCorruption {
		return nil
	}
	last, same := l.active(), false
	if clean {
		var err error
		if same, err = l.segmentsAsClosed(); err != nil {
			return err
		}
	}
	for _, s := range l.segments[:scanFrom] {
		suspect := slices.ContainsFunc(known, func(d Damage) bool { return d.From < s.next && d.To > s.base })
		if !suspect && s != last && !same {
			ends, err := l.endsWhereTheNextBegins(s)
			if err != nil {
				return err
			}
			suspect = !ends
		}
		if suspect {
			before := s.size
			if _, err := l.examine(s); err != nil {
				return err
			}
			rec.Scanned += before
		}
	}
	if clean {
		return l.sealDamagedTail()
	}
	return nil
}

// endsWhereTheNextBegins looks at the end of a sealed segment, to which the last entry of its index leads.
func (l *Log) endsWhereTheNextBegins(s *segment) (bool, error) {
	pos, err := s.lastIndexed()
	if err != nil || pos < 0 {
		return false, err
	}
	buf := lookUpBuffers.Get().(*[]byte)
	defer lookUpBuffers.Put(buf)
	f, err := s.acquire()
	if errors.Is(err, errFileMissing) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.release()
	r := headerReader{f: f.file, size: s.size, buf: *buf}
	end := s.base
	for pos < s.size {
		h, err := r.at(pos)
		if isCorrupt(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		end = h.NextOffset()
		pos += int64(h.Size())
	}
	return l.mayEnd(s, s.next, end), nil
}

// lastIndexed returns the position in the last entry of the segment's index; 0 when it rightly has none, -1 when the
// index is not as it must be.
func (s *segment) lastIndexed() (int64, error) {
	f, err := s.fsys.OpenFile(s.path(indexSuffix), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return -1, nil
	}
	if err != nil {
		return -1, err
	}
	defer f.Close()
	size, err := f.Size()
	switch {
	case err != nil || size%offsetEntryBytes != 0:
		return -1, err
	case size == 0:
		return 0, nil
	}
	raw := make([]byte, offsetEntryBytes)
	if err := readFull(f, raw, size-offsetEntryBytes); err != nil {
		return -1, err
	}
	pos := int64(binary.BigEndian.Uint32(raw[4:]))
	if pos == 0 || pos >= s.size {
		return -1, nil
	}
	return pos, nil
}

func isCorrupt(err error) bool {
	return errors.Is(err, batch.ErrCorrupt) || errors.Is(err, batch.ErrTruncated) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errFileMissing)
}
