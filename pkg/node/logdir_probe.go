package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/highwater-io/highwater/pkg/nodefact"
)

// probeFile is written and removed to see whether a directory can be used again. The name is one that an empty
// volume may hold.
const probeFile = ".probe.tmp"

// Sizes of a probe: enough that a volume with a few free blocks does not pass.
const (
	probeBytes      = 4 << 20
	probePieceBytes = 256 << 10
)

// probe says whether the directory can be opened again, nil when it can. Twice what is kept free has to be there:
// else the node would come back only to fail again. A probe whose sync fails proves the disk broken, and there is no
// other.
func (d *logDir) probe() error {
	size := int64(probeBytes)
	// A volume may have been full or read-only before the directory was made.
	if err := d.under.MkdirAll(d.path, 0o755); err != nil {
		return err
	}
	space, err := d.space()
	switch {
	case err == nil:
		size = min(size, space.TotalBytes/8)
		if want := 2 * max(d.minFreeBytes, size); space.FreeBytes < want {
			return fmt.Errorf("%s: %d bytes are free, it takes %d to come back", d.path, space.FreeBytes, want)
		}
	case !errors.Is(err, errors.ErrUnsupported):
		return err
	}
	name := filepath.Join(d.path, probeFile)
	err = d.writeProbe(name, size)
	if removeErr := d.under.Remove(name); removeErr != nil && !errors.Is(removeErr, os.ErrNotExist) {
		err = errors.Join(err, removeErr)
	}
	return err
}

func (d *logDir) writeProbe(name string, size int64) error {
	f, err := d.under.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	piece := bytes.Repeat([]byte("probe \n"), probePieceBytes/7) // zeros would take no room on some volumes
	for off := int64(0); off < size && err == nil; off += int64(len(piece)) {
		_, err = f.WriteAt(piece, off)
	}
	if err == nil {
		if err = f.Sync(); err != nil {
			d.broken(err)
		}
	}
	return errors.Join(err, f.Close())
}

// lost says whether the directory is offline for good.
func (d *logDir) lost() bool {
	f := d.offline()
	return f != nil && !f.comesBack()
}

// broken notes that a directory that was only full or read-only can't come back.
func (d *logDir) broken(err error) {
	d.failure.Store(&logDirFailure{dir: d.path, reason: nodefact.IOError, err: err, since: time.Now()})
}

// probeBackoff paces the probes of a process: a directory that fails again soon after it came back waits longer.
type probeBackoff struct {
	first, max, healthy time.Duration
	next                time.Duration
	cameBack            time.Time
}

func newProbeBackoff(first time.Duration) *probeBackoff {
	return &probeBackoff{first: first, max: 30 * time.Second, healthy: 5 * time.Minute, next: first}
}

// failed is told that a directory went offline.
func (p *probeBackoff) failed(now time.Time) {
	if p.cameBack.IsZero() || now.Sub(p.cameBack) > p.healthy {
		p.next = p.first
	}
}

// pause is how long to wait before the next probe.
func (p *probeBackoff) pause() time.Duration {
	pause := p.next
	p.next = min(2*p.next, p.max)
	return pause
}

// await probes offline directories until all of them can be used again, or ctx ends. It returns false when that
// will not happen by itself.
func (p *probeBackoff) await(ctx context.Context, told func(error), dirs ...*logDir) bool {
	p.failed(time.Now())
	for {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(p.pause()):
		}
		var err error
		for _, d := range dirs {
			switch {
			case d.offline() == nil:
				continue
			case d.lost():
				return false
			}
			err = errors.Join(err, d.probe())
		}
		if slices.ContainsFunc(dirs, (*logDir).lost) {
			return false // a sync was still under way
		}
		if err == nil {
			p.cameBack = time.Now()
			return true
		}
		told(err)
	}
}
