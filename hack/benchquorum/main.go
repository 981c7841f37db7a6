// Command benchquorum measures the metadata quorum: what an image of 100,000 partitions costs, in memory and between
// real processes, and how fast commits are beside etcd's. It prints tables, and with -write puts them into
// docs/benchmarks.md; it exits with 1 when a bound is missed. Times are compared within one run only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/highwater-io/highwater/internal/benchpage"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx)
	stop()
	switch {
	case errors.Is(err, errNotRun):
		fmt.Println(err)
		os.Exit(exitNotRun)
	case err != nil:
		fmt.Fprintln(os.Stderr, "benchquorum:", err)
		os.Exit(1)
	}
}

// errNotRun says that the benchmark can't run here; what wraps it says why. Its exit code is one of its own, so that
// nobody takes it for a run that met its bounds.
var errNotRun = errors.New("NOT RUN")

const exitNotRun = 3

// bench is one run.
type bench struct {
	bin, etcd, etcdload, dir string
	clients                  []int
	rounds                   int
	round                    time.Duration

	began  time.Time
	text   strings.Builder // the tables
	missed []string
}

func run(ctx context.Context) error {
	if len(os.Args) > 1 && os.Args[1] == loadCommand {
		return load(ctx, os.Args[2:])
	}
	b := &bench{clients: []int{1, 8, 64, 128}, began: time.Now()}
	write := flag.Bool("write", false, "put the tables into "+benchpage.Page)
	bin := flag.String("bin", "bin", "directory with highwater and highwater-node")
	flag.IntVar(&b.rounds, "rounds", 3, "how often the two systems take turns")
	flag.DurationVar(&b.round, "round", 3*time.Second, "how long each load runs")
	only := flag.String("only", "", "one part: memory, processes or peers")
	flag.Parse()
	var err error
	if b.bin, err = filepath.Abs(*bin); err != nil {
		return err
	}
	parts := []struct {
		name string
		run  func(context.Context) error
	}{{"memory", b.inMemory}, {"processes", b.betweenProcesses}, {"peers", b.comparePeers}}
	if *only != "" && *write {
		return errors.New("-only measures a part, -write needs all of them")
	}
	if b.dir, err = os.MkdirTemp("", "highwater-bench-quorum-"); err != nil {
		return err
	}
	if err := b.prepare(ctx, *only); err != nil {
		return errors.Join(err, os.RemoveAll(b.dir))
	}
	ran := false
	for _, part := range parts {
		if *only != "" && *only != part.name {
			continue
		}
		ran = true
		if err := part.run(ctx); err != nil {
			return fmt.Errorf("%s: %w; the processes' logs are in %s", part.name, err, b.dir)
		}
	}
	if err := os.RemoveAll(b.dir); err != nil {
		return err
	}
	if !ran {
		return fmt.Errorf("-only=%s: want memory, processes or peers", *only)
	}
	text := benchpage.Measured() + b.text.String()
	fmt.Printf("\n%s", text)
	if len(b.missed) > 0 {
		return fmt.Errorf("MISSED:\n  %s", strings.Join(b.missed, "\n  "))
	}
	fmt.Println("benchquorum: ok, all bounds are met")
	if *write {
		return benchpage.Write("bench-quorum", text)
	}
	return nil
}

// prepare finds or builds what the run needs besides highwater-node.
func (b *bench) prepare(ctx context.Context, only string) error {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return fmt.Errorf("%w: memory and processor time of processes come from Linux' /proc: %w", errNotRun, err)
	}
	if only != "" && only != "peers" {
		return nil
	}
	find := exec.CommandContext(ctx, filepath.Join(b.bin, "highwater"), "dev", "assets")
	find.Stderr = os.Stderr
	found, err := find.Output()
	if err != nil {
		return fmt.Errorf("%w: etcd is neither there nor can it be fetched or built: %w", errNotRun, err)
	}
	b.etcd, b.etcdload = filepath.Join(strings.TrimSpace(string(found)), "etcd"), filepath.Join(b.dir, "etcdload")
	b.say("building hack/etcdload, which has etcd's client")
	build := exec.CommandContext(ctx, "go", "build", "-C", "hack/etcdload", "-o", b.etcdload, ".")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("%w: hack/etcdload can't be built: %w", errNotRun, err)
	}
	return nil
}

// say shows progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%4.0fs  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

// miss notes a bound that was not met. The run goes on, to show all of it.
func (b *bench) miss(format string, args ...any) {
	b.missed = append(b.missed, fmt.Sprintf(format, args...))
	b.say("MISSED: %s", b.missed[len(b.missed)-1])
}
