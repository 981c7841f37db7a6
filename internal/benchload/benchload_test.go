package benchload

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestOnlyWhatEndsInTimeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Settings{Clients: 2, Warmup: 950 * time.Millisecond, For: 2 * time.Second}
		r, err := Run(t.Context(), s, func(_ context.Context, client, n int) error {
			// The first client takes a second for one of its operations.
			if time.Sleep(100 * time.Millisecond); client == 0 && n == 15 {
				time.Sleep(900 * time.Millisecond)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if want := (Result{Operations: 20 + 11, Elapsed: 2 * time.Second, P50: 100 * time.Millisecond, P99: time.Second, Max: time.Second}); r != want {
			t.Errorf("%+v, want %+v", r, want)
		}
		var printed bytes.Buffer
		if err := r.Print(&printed); err != nil {
			t.Fatal(err)
		}
		if again, err := ReadResult(printed.Bytes()); err != nil || again != r {
			t.Errorf("printed and read: %+v, %v", again, err)
		}
	})
}

func TestAnOperationThatFailsEndsTheRun(t *testing.T) {
	broken := errors.New("broken")
	synctest.Test(t, func(t *testing.T) {
		_, err := Run(t.Context(), Settings{Clients: 3, For: time.Hour}, func(_ context.Context, client, n int) error {
			if time.Sleep(time.Second); client == 1 && n == 5 {
				return broken
			}
			return nil
		})
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "client 1, operation 5") {
			t.Errorf("error %v", err)
		}
	})
}

func TestResultsWithoutACountAreRefused(t *testing.T) {
	for _, printed := range []string{"", "{}", `{"operations":0,"elapsed":1}`, "no json"} {
		if _, err := ReadResult([]byte(printed)); err == nil {
			t.Errorf("%q is taken for a result", printed)
		}
	}
}
