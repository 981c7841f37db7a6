package main

import (
	"flag"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

func parse(t *testing.T, args ...string) *options {
	t.Helper()
	var o options
	flags := flag.NewFlagSet("operator", flag.ContinueOnError)
	o.bind(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &o
}

func TestNamespacesAreAListAndNoneMeansAll(t *testing.T) {
	if got := parse(t, "--watch-namespaces= a, b ,,c").namespaces(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("got %q", got)
	}
	if got := parse(t).namespaces(); got != nil {
		t.Errorf("got %q, want none", got)
	}
}

func TestWrongFlagsSayWhatIsWanted(t *testing.T) {
	if _, err := parse(t, "--log-level=loud").level(); err == nil || !strings.Contains(err.Error(), "debug, info, warn or error") {
		t.Errorf("got %v", err)
	}
	if level, err := parse(t, "--log-level=debug").level(); err != nil || level != slog.LevelDebug {
		t.Errorf("got %v, %v", level, err)
	}
	t.Setenv("HIGHWATER_NODE_IMAGE", "")
	if err := parse(t).check(); err == nil || !strings.Contains(err.Error(), "--node-image") {
		t.Errorf("got %v", err)
	}
	t.Setenv("HIGHWATER_NODE_IMAGE", "registry/highwater:v1")
	if err := parse(t).check(); err != nil {
		t.Errorf("the variable stands in for the flag, got %v", err)
	}
}

func TestTheOperatorTakesTheLeaseUnlessItIsToldNotTo(t *testing.T) {
	if !parse(t).leaderElect || parse(t, "--leader-elect=false").leaderElect {
		t.Error("the lease is the rule")
	}
}
