package localkube

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/highwater-io/highwater/internal/procs"
)

// The owner of a cluster's directory: a pid file, which does not lie in pids, since leftovers there are killed.
func ownerFile(dir string) string { return filepath.Join(dir, "owner"+procs.Suffix) }

// lock makes this process the owner of a directory for as long as the returned file is open; it is an error when
// another one is.
func lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the cluster's directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		return nil, fmt.Errorf("the local cluster in %s is already up: stop it with highwater dev down", dir)
	}
	if err := procs.WritePidFile(ownerFile(dir), os.Getpid()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func unlock(dir string, f *os.File) {
	_ = os.Remove(ownerFile(dir))
	f.Close()
}

// Down ends a cluster that another process runs: it asks that process to stop, waits until it has ended, and kills
// what is left. It is no error when nothing runs.
func Down(dir string) (bool, error) {
	ran := false
	owner, err := procs.ReadPidFile(ownerFile(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return false, err
	case owner.Alive():
		ran = true
		if err := owner.Signal(syscall.SIGTERM); err != nil && owner.Alive() {
			return false, fmt.Errorf("stop the local cluster's process %d: %w", owner.Pid, err)
		}
		owner.Wait(2 * stopTimeout)
		if owner.Alive() {
			_ = owner.Signal(syscall.SIGKILL)
			owner.Wait(stopTimeout)
		}
	}
	killed, err := procs.KillLeftovers(filepath.Join(dir, "pids"))
	_ = os.Remove(ownerFile(dir))
	return ran || killed > 0, err
}

// Purge deletes all that a cluster which is down has left in its directory: objects, volumes, logs, certificates. A
// directory that was never a cluster's is not touched.
func Purge(dir string) error {
	if owner, err := procs.ReadPidFile(ownerFile(dir)); err == nil && owner.Alive() {
		return fmt.Errorf("the local cluster in %s is up", dir)
	}
	if _, err := os.Stat(filepath.Join(dir, "pki", "ca.crt")); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return os.RemoveAll(dir)
}
