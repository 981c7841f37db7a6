package main

import (
	"fmt"
	"time"
)

// report prints the checks and counts them.
type report struct {
	started        time.Time
	passed, failed int
}

func (r *report) title(s string) { fmt.Printf("\n%6.1fs  %s\n", time.Since(r.started).Seconds(), s) }

func (r *report) say(format string, args ...any) {
	fmt.Printf("%6.1fs  . %s\n", time.Since(r.started).Seconds(), fmt.Sprintf(format, args...))
}

// check runs one and prints what it saw.
func (r *report) check(what string, f func() (saw string, err error)) bool {
	saw, err := f()
	if err != nil {
		r.fail(what, err)
		return false
	}
	r.passed++
	if saw != "" {
		saw = ": " + saw
	}
	fmt.Printf("%6.1fs  ok      %s%s\n", time.Since(r.started).Seconds(), what, saw)
	return true
}

func (r *report) fail(what string, err error) {
	r.failed++
	fmt.Printf("%6.1fs  FAILED  %s: %v\n", time.Since(r.started).Seconds(), what, err)
}
