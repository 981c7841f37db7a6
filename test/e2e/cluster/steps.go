package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Step is one thing that must hold.
type Step struct {
	// Name says what, as a sentence.
	Name string
	// Limit is how long it may take.
	Limit time.Duration
	// Do fails when it doesn't hold. A returned NotRun means that it can't be tried here.
	Do func(ctx context.Context) error
}

// NotRun is returned by a step that can't be tried on this cluster.
type NotRun struct {
	Why string
}

func (n NotRun) Error() string { return "NOT RUN: " + n.Why }

// start is when the program began; told times count from it.
var start = time.Now()

// Say tells how it goes.
func Say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s [%5.1f s] %s\n", time.Now().Format(time.TimeOnly), time.Since(start).Seconds(), fmt.Sprintf(format, args...))
}

// Play runs the steps in order up to the first that fails, and prints a table of them. Each stands on the one before,
// so there is no going on after a failure.
func Play(ctx context.Context, steps []Step) error {
	var table []string
	defer func() {
		for _, row := range table {
			fmt.Println(row)
		}
	}()
	for i, step := range steps {
		Say("--- %d/%d %s", i+1, len(steps), step.Name)
		begin := time.Now()
		bounded, cancel := context.WithTimeout(ctx, step.Limit)
		err := step.Do(bounded)
		cancel()
		took := time.Since(begin).Seconds()
		var skipped NotRun
		switch {
		case errors.As(err, &skipped):
			Say("%s", skipped.Error())
			table = append(table, fmt.Sprintf("NOT RUN  %6.1f s  %s (%s)", took, step.Name, skipped.Why))
		case err != nil:
			table = append(table, fmt.Sprintf("FAILED   %6.1f s  %s", took, step.Name))
			return fmt.Errorf("%s: %w", step.Name, err)
		default:
			table = append(table, fmt.Sprintf("ok       %6.1f s  %s", took, step.Name))
		}
	}
	return nil
}

// Eventually tries until there is no error, as long as the context lasts; a line every ten seconds says what is still
// amiss.
func Eventually(ctx context.Context, what string, try func(ctx context.Context) error) error {
	var last error
	told := time.Now()
	err := wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if last = try(ctx); last == nil {
			return true, nil
		}
		if time.Since(told) > 10*time.Second {
			Say("waiting for: %s (%v)", what, last)
			told = time.Now()
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("not in time: %s: %w", what, last)
	}
	return nil
}

// Holds tries again and again for a while and fails with the first error: what must not happen later either.
func Holds(ctx context.Context, span time.Duration, what string, try func(ctx context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, span)
	defer cancel()
	var broken error
	_ = wait.PollUntilContextCancel(bounded, time.Second, true, func(context.Context) (bool, error) {
		// The caller's context: a call that the end of the span cuts off would say nothing of what is asked.
		if err := try(ctx); err != nil {
			broken = fmt.Errorf("did not hold: %s: %w", what, err)
		}
		return broken != nil, nil
	})
	if broken == nil {
		broken = ctx.Err()
	}
	return broken
}
