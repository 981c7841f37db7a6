package main

import (
	"context"
	"fmt"
	"time"

	"github.com/highwater-io/highwater/internal/testscale"
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

// waitFor calls f until it returns nil, at most for a time.
func waitFor(ctx context.Context, atMost time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, testscale.Duration(atMost))
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	var last error
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", testscale.Duration(atMost), last)
		case <-ticker.C:
		}
	}
}
