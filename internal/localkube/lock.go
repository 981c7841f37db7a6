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

// lock makes this process the owner of a directory; it is an error when another one is and lives.
func lock(dir string) error {
	owner, err := procs.ReadPidFile(ownerFile(dir))
	if err == nil && owner.Alive() && owner.Pid != os.Getpid() {
		return fmt.Errorf("the local cluster in %s is already up (process %d): stop it with highwater dev down", dir, owner.Pid)
	}
	return procs.WritePidFile(ownerFile(dir), os.Getpid())
}

func unlock(dir string) {
	if owner, err := procs.ReadPidFile(ownerFile(dir)); err == nil && owner.Pid == os.Getpid() {
		_ = os.Remove(ownerFile(dir))
	}
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
		owner.Wait(stopTimeout)
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
