package procs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Suffix is how pid files' names end.
const Suffix = ".pid"

// Ref is a process that a pid file names.
type Ref struct {
	Pid     int
	started string // what startTime said when the file was written, so that a reused pid is not taken for it
}

// ReadPidFile reads a pid file. The process may have ended since.
func ReadPidFile(name string) (Ref, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return Ref{}, err
	}
	pid, started, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
	n, err := strconv.Atoi(pid)
	if err != nil || n <= 1 {
		return Ref{}, fmt.Errorf("%s holds no process id: %q", name, data)
	}
	return Ref{Pid: n, started: started}, nil
}

// Alive tells whether the process still runs (or is stopped).
func (r Ref) Alive() bool {
	if syscall.Kill(r.Pid, 0) != nil {
		return false
	}
	started, zombie := startTime(r.Pid)
	return started == r.started && !zombie
}

// Signal sends a signal to the process alone. It is an error when it has ended.
func (r Ref) Signal(s syscall.Signal) error {
	if !r.Alive() {
		return fmt.Errorf("process %d has ended", r.Pid)
	}
	return syscall.Kill(r.Pid, s)
}

// KillLeftovers kills every process that a pid file in dir or below it names, with its group, waits until they
// are gone and removes the files. It returns how many it killed.
func KillLeftovers(dir string) (int, error) {
	killed := 0
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, Suffix) {
			return err
		}
		ref, err := ReadPidFile(name)
		if err == nil && ref.Alive() {
			killed++
			_ = syscall.Kill(-ref.Pid, syscall.SIGKILL)
			_ = syscall.Kill(ref.Pid, syscall.SIGKILL)
			for deadline := time.Now().Add(10 * time.Second); ref.Alive(); time.Sleep(5 * time.Millisecond) {
				if time.Now().After(deadline) {
					return fmt.Errorf("process %d (%s) does not end", ref.Pid, name)
				}
			}
		}
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	if err != nil {
		return killed, fmt.Errorf("end leftover processes: %w", err)
	}
	return killed, nil
}

// Wait returns when the process has ended, or after a time.
func (r Ref) Wait(atMost time.Duration) {
	for deadline := time.Now().Add(atMost); r.Alive() && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
	}
}
