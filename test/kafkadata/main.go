package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/highwater-io/highwater/test/kafkajars"
)

const exitNotRun = 3

func main() {
	bin := flag.String("bin", "bin", "directory with highwater-node")
	flag.Parse()
	os.Exit(run(*bin))
}

func run(bin string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	switch err := kafkajars.Fetch(ctx); {
	case errors.Is(err, kafkajars.ErrMissing):
		fmt.Println("NOT RUN:", err)
		return exitNotRun
	case err != nil:
		fmt.Fprintln(os.Stderr, "kafka-data:", err)
		return 1
	}
	dir, err := os.MkdirTemp("", "highwater-kafka-data-")
	if err == nil {
		p := &proof{bin: bin, dir: dir, started: time.Now()}
		if err = p.ours(ctx); err == nil {
			err = p.kafkas(ctx)
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "\nkafka-data: MISSED: %v\ndirectories and logs are in %s\n", err, dir)
		return 1
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	fmt.Println("\nkafka-data: ok")
	return 0
}

// proof is one run.
type proof struct {
	bin, dir string
	started  time.Time
}

func (p *proof) say(format string, args ...any) {
	fmt.Printf("%5.1fs  %s\n", time.Since(p.started).Seconds(), fmt.Sprintf(format, args...))
}

// copyOf makes the next directory from what a stopped server has left.
func (p *proof) copyOf(from, name string) (string, error) {
	to := filepath.Join(p.dir, name)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return "", err
	}
	return to, os.CopyFS(filepath.Join(to, "data"), os.DirFS(filepath.Join(from, "data")))
}

// ours is a directory that a node has made: Kafka takes it, and the node takes it back.
func (p *proof) ours(ctx context.Context) error {
	id := identity{"S2Fma2FEYXRhLW91cnMtMQ", "RGlyZWN0b3J5LW91cnMtMQ"}
	ports, err := freePorts()
	if err != nil {
		return err
	}
	dir := filepath.Join(p.dir, "1-ours")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	s, err := startOurs(ctx, p.bin, dir, id, ports)
	if err != nil {
		return err
	}
	defer s.kill()
	p.say("our node has formatted a directory")
	if err := createTopic(ctx, s.seed, "orders", 2, map[string]string{"segment.bytes": "1048576", "retention.ms": "-1"}); err != nil {
		return err
	}
	if err := createTopic(ctx, s.seed, "small", 1, nil); err != nil {
		return err
	}
	if err := errors.Join(produce(ctx, s.seed, "orders", 2, 700, 0), produce(ctx, s.seed, "small", 1, 3, 0)); err != nil {
		return err
	}
	before, err := readAll(ctx, s.seed, "orders", "small")
	if err != nil {
		return err
	}
	p.say("written and served: %s", before)
	if err := s.stop(); err != nil {
		return err
	}
	return p.takeTurns(ctx, dir, id, ports, before, "kafka", "highwater", killed+"kafka", killed+"highwater", "kafka")
}

// kafkas is a directory that Kafka has made: the node takes it, and Kafka takes it back.
func (p *proof) kafkas(ctx context.Context) error {
	id := identity{clusterID: "S2Fma2FEYXRhLXRoZWlyLQ"}
	ports, err := freePorts()
	if err != nil {
		return err
	}
	dir := filepath.Join(p.dir, "1-kafkas")
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
		return err
	}
	if err := format(ctx, dir, id.clusterID, ports); err != nil {
		return err
	}
	s, err := startKafka(ctx, dir, ports)
	if err != nil {
		return err
	}
	defer s.kill()
	p.say("Kafka has formatted a directory")
	if id.directoryID, err = directoryID(dir); err != nil {
		return err
	}
	if err := p.fillKafka(ctx, s.seed, dir); err != nil {
		return err
	}
	before, err := readAll(ctx, s.seed, "orders", "compacted", "paid")
	if err != nil {
		return err
	}
	p.say("written and served: %s", before)
	if err := s.stop(); err != nil {
		return err
	}
	return p.takeTurns(ctx, dir, id, ports, before, "highwater", "kafka", killed+"highwater", "kafka")
}

// killed before a server's name says that it is ended by kill -9: the next one finds no mark of a clean shutdown, and
// has to recover the logs.
const killed = "killed-"

// takeTurns has one server after the other serve a copy of what the one before has left, and write on.
func (p *proof) takeTurns(ctx context.Context, dir string, id identity, ports ports, before content, turns ...string) error {
	topics := map[string]bool{}
	for at := range before {
		topics[at.topic] = true
	}
	var names []string
	for name := range topics {
		names = append(names, name)
	}
	for i, who := range turns {
		next, err := p.copyOf(dir, fmt.Sprintf("%d-%s-%s", i+2, who, filepath.Base(dir)))
		if err != nil {
			return err
		}
		if before, err = p.turn(ctx, who, next, id, ports, before, names); err != nil {
			return fmt.Errorf("%s on what was left in %s: %w", who, dir, err)
		}
		dir = next
	}
	return nil
}

func (p *proof) turn(ctx context.Context, whose, dir string, id identity, ports ports, before content, topics []string) (content, error) {
	var s *server
	var err error
	who, kill := strings.CutPrefix(whose, killed)
	if who == "kafka" {
		s, err = startKafka(ctx, dir, ports)
	} else {
		s, err = startOurs(ctx, p.bin, dir, id, ports)
	}
	if err != nil {
		return nil, err
	}
	defer s.kill()
	now, err := readAll(ctx, s.seed, topics...)
	if err == nil {
		err = before.same(now, false)
	}
	if err == nil {
		err = now.consume(ctx, s.seed)
	}
	if err != nil {
		return nil, err
	}
	p.say("%s serves the same bytes: %s", who, now)
	if err := produce(ctx, s.seed, "orders", 2, 60, 0); err != nil {
		return nil, err
	}
	grown, err := readAll(ctx, s.seed, topics...)
	if err == nil {
		err = now.same(grown, true)
	}
	if err != nil {
		return nil, err
	}
	end := "stopped"
	if kill {
		end = "killed"
		s.kill()
	} else if err := s.stop(); err != nil {
		return nil, err
	}
	p.say("%s has written on and is %s: %s", who, end, grown)
	if who == "kafka" {
		found, err := complaints(dir)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("kafka complains: %q", found)
		}
		if err != nil {
			return nil, err
		}
	}
	return grown, nil
}
