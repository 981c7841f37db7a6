package procs

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
)

// ChildrenEndWithParent tells whether children of a killed parent are killed too on this system.
const ChildrenEndWithParent = true

// PR_SET_PDEATHSIG fires when the *thread* that forked ends, not when the process does. So all children are
// started by one goroutine that is locked to its thread and never returns.
var spawner = sync.OnceValue(func() chan func() {
	requests := make(chan func())
	go spawn(requests)
	return requests
})

func spawn(requests chan func()) {
	runtime.LockOSThread()
	for f := range requests {
		f()
	}
}

func start(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	spawner() <- func() { result <- cmd.Start() }
	return <-result
}

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// startTime returns the kernel's start time of a process (clock ticks since boot, field 22 of stat) and whether
// it has ended and waits to be reaped; "" when there is no such process.
func startTime(pid int) (started string, zombie bool) {
	started, state := stat(pid)
	return started, state == 'Z' || state == 'X'
}

// Stopped tells whether a process is stopped by SIGSTOP.
func Stopped(pid int) bool {
	_, state := stat(pid)
	return state == 'T'
}

func stat(pid int) (started string, state byte) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", 0
	}
	// The command's name, in parentheses, may itself hold spaces and parentheses.
	end := bytes.LastIndexByte(data, ')')
	if end < 0 {
		return "", 0
	}
	fields := bytes.Fields(data[end+1:])
	if len(fields) < 20 {
		return "", 0
	}
	return string(fields[19]), fields[0][0]
}
