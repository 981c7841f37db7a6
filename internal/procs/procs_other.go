//go:build unix && !linux

package procs

import (
	"os/exec"
	"syscall"
)

// ChildrenEndWithParent tells whether children of a killed parent are killed too on this system.
const ChildrenEndWithParent = false

func start(cmd *exec.Cmd) error { return cmd.Start() }

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// startTime is not known here: a pid file is taken at its word.
func startTime(int) (started string, zombie bool) { return "", false }

// Stopped can't tell here whether a process is stopped by SIGSTOP.
func Stopped(int) bool { return false }
