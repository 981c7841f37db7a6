package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/highwater-io/highwater/internal/procs"
)

// The kernel's own account of a process, in /proc.

// peakBytes is the most memory that a process has had resident.
func peakBytes(p *procs.Process) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`).FindSubmatch(status)
	if m == nil {
		return 0, errors.New("/proc has no VmHWM")
	}
	kib, err := strconv.ParseInt(string(m[1]), 10, 64)
	return kib << 10, err
}

// clockTick is the unit of times in /proc/<pid>/stat; it is the same on every Linux.
const clockTick = 10 * time.Millisecond

// processorTime is what the processes have spent of the processors, in their own code and in the kernel.
func processorTime(processes []*procs.Process) (total time.Duration, err error) {
	for _, p := range processes {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid()))
		if err != nil {
			return 0, err
		}
		// The name, in parentheses, may hold anything.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		for _, i := range []int{11, 12} { // utime, stime
			ticks, err := strconv.ParseInt(fields[i], 10, 64)
			if err != nil {
				return 0, err
			}
			total += time.Duration(ticks) * clockTick
		}
	}
	return total, nil
}
