package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// flipKinds are the files that bits are flipped in.
var flipKinds = []string{"log", "index", "timeindex", "snapshot", "leader-epoch-checkpoint", "offset-checkpoint", "clean-shutdown"}

func kindOf(path string) string {
	switch base := filepath.Base(path); {
	case base == log.EpochCheckpointFile:
		return "leader-epoch-checkpoint"
	case strings.HasSuffix(base, "-offset-checkpoint"):
		return "offset-checkpoint"
	case base == log.CleanShutdownFile:
		return "clean-shutdown"
	default:
		return strings.TrimPrefix(filepath.Ext(base), ".")
	}
}

// flip flips a bit in one file, or a few, and says in which kind; "" when there was nothing to flip.
func (c *kase) flip(disk *vfs.Mem) (kind string) {
	byKind := map[string][]string{}
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := disk.ReadDir(dir)
		if err != nil {
			return // the crash was before there was one
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if e.IsDir() {
				walk(path)
			} else if info, err := e.Info(); err == nil && info.Size() > 0 {
				byKind[kindOf(path)] = append(byKind[kindOf(path)], path)
			}
		}
	}
	walk(dataDir)
	for range 10 {
		kind = flipKinds[c.rng.IntN(len(flipKinds))]
		paths := byKind[kind]
		if len(paths) == 0 {
			continue
		}
		for range 1 + c.rng.IntN(2) {
			c.flipIn(disk, paths[c.rng.IntN(len(paths))])
		}
		return kind
	}
	return "nothing"
}

func (c *kase) flipIn(disk *vfs.Mem, path string) {
	data, err := vfs.ReadFile(disk, path)
	if err != nil {
		panic(err)
	}
	at, bit := c.rng.IntN(len(data)), c.rng.IntN(8)
	c.note("bit %d of byte %d of %d flipped in %s", bit, at, len(data), strings.TrimPrefix(path, dataDir+"/"))
	f, err := disk.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt([]byte{data[at] ^ 1<<bit}, int64(at))
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		panic(err)
	}
}

// damaged starts on a disk with flipped bits: whatever they hit, nothing wrong may be served as if it were right, and
// what is missing must have been told of.
func (c *kase) damaged(disk *vfs.Mem, kind string) error {
	o, err := startOwner(c.mutant.disk(disk), c.settings, c.mutant)
	if err != nil {
		if errors.Is(err, log.ErrCorrupt) {
			return nil // refused, and said so
		}
		return fmt.Errorf("with bits flipped in %s: %w", kind, err)
	}
	for i, l := range o.logs {
		switch kind {
		case "index", "timeindex", "snapshot", "clean-shutdown":
			// All of it is in the batches too.
			if _, err := c.expect[i].checkContent(o, i, c.rng, 40); err != nil {
				return fmt.Errorf("with bits flipped in %s: %w", kind, err)
			}
			continue
		}
		err := c.serves(l, &c.expect[i], o.recoveries[i], kind, 0)
		if err == nil {
			err = scrub(l)
		}
		if err == nil {
			err = c.serves(l, &c.expect[i], o.recoveries[i], kind, o.files[log.RecoveryPointCheckpointFile][topicIndex(i)])
		}
		if err != nil {
			return fmt.Errorf("with bits flipped in %s: partition %d, from %d to %d: %w; %v", kind, i, l.StartOffset(), l.EndOffset(), err, o.recoveries[i].Repairs)
		}
	}
	return nil
}

// scrub checks all sealed segments.
func scrub(l *log.Log) error {
	for {
		s := l.BeginScrub(1 << 20)
		if s == nil {
			return nil
		}
		if _, err := l.EndScrub(s, s.Run()); err != nil {
			return fmt.Errorf("scrub: %w", err)
		}
	}
}

// serves reads all there is. What lies below scrubbed must be right: a scrub has looked at it, and the leader epochs'
// file, by which it judges what no checksum covers, was flushed with it.
func (c *kase) serves(l *log.Log, e *expectation, recovery log.Recovery, kind string, scrubbed ident.Offset) error {
	told := recovery.Repaired()
	for o := l.StartOffset(); o < l.EndOffset(); {
		strictBelow := ident.Offset(0)
		if segments := l.Segments(); scrubbed > 0 {
			strictBelow = min(scrubbed, segments[len(segments)-1]) // the active segment is not scrubbed
			if damage := l.Damage(); len(damage) > 0 {
				// Nor is one that is known to be damaged.
				i, _ := slices.BinarySearch(segments, damage[0].From+1)
				strictBelow = min(strictBelow, segments[max(0, i-1)])
			}
		}
		next, err := c.served(l, e, o, kind, strictBelow)
		if errors.Is(err, log.ErrCorrupt) {
			told, err = true, nil
		}
		if err != nil {
			return err
		}
		o = max(next, o+1)
		for _, d := range l.Damage() { // which may be long: a recovery point with a flipped bit tells where it ends
			if o > d.From && o < d.To {
				o = d.To
			}
		}
	}
	if l.EndOffset() < e.floor && (!told || kind == "offset-checkpoint") {
		return fmt.Errorf("lost: %d was flushed", e.floor)
	}
	if start := l.StartOffset(); !c.settings.stopOnCorruption && start > e.startUpTo && start < e.floor { // of a metadata log it is where a snapshot ends
		return fmt.Errorf("the log starts at %d, may start at %d: what lies between is hidden", start, e.startUpTo)
	}
	return nil
}

// served reads from offset o on, and returns how far what was served is right or has a checksum that tells the client.
func (c *kase) served(l *log.Log, e *expectation, o ident.Offset, kind string, strictBelow ident.Offset) (ident.Offset, error) {
	chunk, err := l.Read(o, 1+c.rng.IntN(3000), l.EndOffset(), true)
	if err != nil {
		return o, err
	}
	raw, err := chunk.AppendTo(nil)
	next := chunk.Next
	chunk.Release()
	if err != nil {
		return o, err
	}
	expected := o
	for rest := raw; len(rest) > 0; {
		one, after, h, err := batch.Next(rest)
		if err == nil {
			err = batch.VerifyCRC(one, h)
		}
		if err != nil && expected < strictBelow {
			return o, fmt.Errorf("served after a scrub: %w", err)
		}
		if err != nil {
			return max(next, expected), nil // the client sees it
		}
		// Of the last batch nothing else tells the leader epoch; and when a wrong one makes what follows look wrong, that
		// is not served.
		last := h.NextOffset() == l.EndOffset() || slices.ContainsFunc(l.Damage(), func(d log.Damage) bool { return d.From == h.NextOffset() })
		if kind == "log" && (expected >= strictBelow || last) && e.sameButForItsPlace(one) {
			// Offset and leader epoch lie outside the checksum. Only a scan compares them with what is around.
			return max(next, expected), nil
		}
		// A recovery point that has come to lie too high, in a file without a checksum, has segments that a crash has torn
		// left out of the scan.
		if kind != "offset-checkpoint" && (h.BaseOffset > expected && !c.settings.compact || h.LastOffset() < expected) {
			return o, fmt.Errorf("served a batch of offsets %d to %d at %d", h.BaseOffset, h.LastOffset(), expected)
		}
		if e.before.has(entry{h, one}) != nil && e.after.has(entry{h, one}) != nil {
			return o, fmt.Errorf("served a batch at offset %d, epoch %d, that was never written there", h.BaseOffset, h.LeaderEpoch)
		}
		expected, rest = h.NextOffset(), after
	}
	return expected, nil
}

// sameButForItsPlace says whether a batch was written somewhere, but with another offset or leader epoch.
func (e *expectation) sameButForItsPlace(raw []byte) bool {
	same := func(h *history, w entry) bool {
		moved := bytes.Clone(raw)
		batch.SetBaseOffset(moved, w.BaseOffset)
		batch.SetLeaderEpoch(moved, w.LeaderEpoch)
		header, err := batch.ParseHeader(moved)
		return err == nil && !bytes.Equal(moved, raw) && h.has(entry{header, moved}) == nil
	}
	for _, h := range []*history{e.before, e.after} {
		if slices.ContainsFunc(h.entries, func(w entry) bool { return same(h, w) }) {
			return true
		}
	}
	return false
}
