package procs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Spec says what to run.
type Spec struct {
	Path    string   // the executable
	Args    []string // the arguments, without the program's name
	Dir     string   // working directory; empty for this process's
	Env     []string // the whole environment; nil is an empty one
	Stdout  *os.File // nil discards
	Stderr  *os.File // nil discards
	PidFile string   // written after the start, removed at the end; empty for none
}

// Process is a running or ended child. All methods may be called from any goroutine.
type Process struct {
	cmd     *exec.Cmd
	pidFile string
	started time.Time
	done    chan struct{}
	state   *os.ProcessState // set before done is closed
	ended   time.Time
}

// Start runs a child in a process group of its own. On Linux the kernel kills it when this process ends, however
// it ends; elsewhere it outlives a killed parent, and its pid file is what finds it.
func Start(spec Spec) (*Process, error) {
	cmd := &exec.Cmd{Path: spec.Path, Args: append([]string{spec.Path}, spec.Args...), Dir: spec.Dir, Env: spec.Env}
	if cmd.Env == nil {
		cmd.Env = []string{}
	}
	// A nil *os.File in these interfaces would not be a nil interface.
	if spec.Stdout != nil {
		cmd.Stdout = spec.Stdout
	}
	if spec.Stderr != nil {
		cmd.Stderr = spec.Stderr
	}
	cmd.SysProcAttr = attributes()
	if err := start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Path, err)
	}
	p := &Process{cmd: cmd, pidFile: spec.PidFile, started: time.Now(), done: make(chan struct{})}
	if p.pidFile != "" {
		if err := WritePidFile(p.pidFile, cmd.Process.Pid); err != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			_ = cmd.Wait()
			return nil, err
		}
	}
	go p.wait()
	return p, nil
}

func (p *Process) wait() {
	_ = p.cmd.Wait()
	// As a container runtime does: what the main process left behind goes with it.
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	p.state, p.ended = p.cmd.ProcessState, time.Now()
	if p.pidFile != "" {
		_ = os.Remove(p.pidFile)
	}
	close(p.done)
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Started returns the time of the start.
func (p *Process) Started() time.Time { return p.started }

// Done is closed when the process has ended and was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended returns the time and the exit code of an ended process, with the shell's 128+n for signal n. It may only
// be called after Done.
func (p *Process) Ended() (at time.Time, code int, signal syscall.Signal) {
	if p.state == nil {
		return p.ended, 255, 0
	}
	if status, ok := p.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return p.ended, 128 + int(status.Signal()), status.Signal()
	}
	return p.ended, p.state.ExitCode(), 0
}

// Signal sends a signal to the process alone; it does nothing when it has ended.
func (p *Process) Signal(s syscall.Signal) {
	_ = p.cmd.Process.Signal(s)
}

// Kill ends the process and all others in its group, also stopped ones.
func (p *Process) Kill() {
	select {
	case <-p.done:
	default:
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// Stop asks the process to end, waits for at most grace, kills it, and returns when it is gone.
func (p *Process) Stop(grace time.Duration) {
	p.Signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return
	case <-timer.C:
	}
	p.Kill()
	<-p.done
}

// WritePidFile writes the file by which other processes find a process.
func WritePidFile(name string, pid int) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("write a pid file: %w", err)
	}
	started, _ := startTime(pid)
	if err := os.WriteFile(name, fmt.Appendf(nil, "%d %s\n", pid, started), 0o644); err != nil {
		return fmt.Errorf("write a pid file: %w", err)
	}
	return nil
}
