// Package benchload measures what so many clients get done, one operation after the other each, and how long each took.
// The loads of the product and of its peers run this same loop, each in a process of its own, and print its Result.
package benchload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Settings of a run, which the processes take as flags.
type Settings struct {
	Clients int
	// Warmup is not counted; For is.
	Warmup, For time.Duration
}

// Result of a run. Durations are in nanoseconds.
type Result struct {
	Operations int           `json:"operations"`
	Elapsed    time.Duration `json:"elapsed"`
	P50        time.Duration `json:"p50"`
	P99        time.Duration `json:"p99"`
	Max        time.Duration `json:"max"`
}

// PerSecond is how many operations a second took.
func (r Result) PerSecond() float64 { return float64(r.Operations) / r.Elapsed.Seconds() }

// Run has each client do operations until the time is up. An operation that fails ends the run: what was not done must
// not count as done quickly.
func Run(ctx context.Context, s Settings, operation func(ctx context.Context, client, n int) error) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := time.Now()
	from, until := began.Add(s.Warmup), began.Add(s.Warmup+s.For)
	took := make([][]time.Duration, s.Clients)
	var running sync.WaitGroup
	for client := range s.Clients {
		running.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				start := time.Now()
				if !start.Before(until) {
					return
				}
				if err := operation(ctx, client, n); err != nil {
					cancel(fmt.Errorf("client %d, operation %d: %w", client, n, err))
					return
				}
				// Counted is what ends in time, whenever it began: that is what got done.
				if end := time.Now(); !end.Before(from) && end.Before(until) {
					took[client] = append(took[client], end.Sub(start))
				}
			}
		})
	}
	running.Wait()
	if err := context.Cause(ctx); err != nil {
		return Result{}, err
	}
	all := slices.Concat(took...)
	if len(all) == 0 {
		return Result{}, errors.New("no operation ended in time")
	}
	slices.Sort(all)
	at := func(q float64) time.Duration { return all[min(len(all)-1, int(q*float64(len(all))))] }
	return Result{Operations: len(all), Elapsed: s.For, P50: at(0.5), P99: at(0.99), Max: all[len(all)-1]}, nil
}

// Print writes the result as ReadResult reads it.
func (r Result) Print(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// ReadResult reads what a load printed.
func ReadResult(printed []byte) (r Result, err error) {
	if err = json.Unmarshal(printed, &r); err == nil && (r.Operations <= 0 || r.Elapsed <= 0) {
		err = errors.New("it counted nothing")
	}
	if err != nil {
		return Result{}, fmt.Errorf("the load's result %q: %w", printed, err)
	}
	return r, nil
}
