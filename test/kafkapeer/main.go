package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/test/kafkajars"
	"github.com/highwater-io/highwater/test/nodes"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	exitMissed = 1
	exitNotRun = 3
)

func main() {
	bin := flag.String("bin", "bin", "directory with highwater-node")
	flag.Parse()
	os.Exit(run(*bin))
}

func run(bin string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, testscale.Duration(15*time.Minute))
	defer cancel()
	switch err := kafkajars.Fetch(ctx); {
	case errors.Is(err, kafkajars.ErrMissing):
		fmt.Println("NOT RUN:", err)
		return exitNotRun
	case err != nil:
		fmt.Fprintln(os.Stderr, "kafka-peer:", err)
		return exitMissed
	}
	dir, err := os.MkdirTemp("", "highwater-kafka-peer-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "kafka-peer:", err)
		return exitMissed
	}
	p := &proof{report: &report{started: time.Now()}, bin: bin, dir: dir}
	p.run(ctx)
	p.end()
	if p.failed > 0 || p.passed == 0 {
		fmt.Fprintf(os.Stderr, "\nkafka-peer: MISSED: %d of %d checks failed\ndirectories and logs are in %s\n", p.failed, p.failed+p.passed, dir)
		return exitMissed
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	fmt.Printf("\nkafka-peer: ok: %d checks in %s\n", p.passed, time.Since(p.started).Round(time.Second))
	return 0
}

// proof is one run: our cluster, Apache Kafka's broker in it, and what was found.
type proof struct {
	*report
	bin, dir string
	ours     *nodes.Cluster
	client   *kgo.Client // asks our data nodes alone
	broker   *kafka
	// controller is Apache Kafka's, too.
	controller *kafka
}

// run goes through the parts. A part that can't go on ends the run: the later ones need what it has set up.
func (p *proof) run(ctx context.Context) {
	for _, part := range []struct {
		title string
		run   func(context.Context) error
	}{
		{"our quorum, before Apache Kafka comes", p.start},
		{"Apache Kafka's tools on our quorum", p.tools},
		{"a stock broker of Apache Kafka's in our cluster", p.stockBroker},
		{"records on the broker, and replicated between it and our nodes", p.records},
		{"the broker, our leader and the quorum's leader are killed", p.kills},
		{"the broker comes back behind our log's start", p.snapshot},
		{"a controller of Apache Kafka's in our quorum", p.handover},
		{"what Apache Kafka's controller writes, read by our decoder", p.controllersFiles},
	} {
		p.title(part.title)
		if err := part.run(ctx); err != nil {
			p.fail(part.title, err)
			return
		}
	}
}

// end stops every process.
func (p *proof) end() {
	for _, k := range []*kafka{p.broker, p.controller} {
		if k != nil {
			k.kill()
		}
	}
	if p.client != nil {
		p.client.Close()
	}
	if p.ours != nil {
		p.ours.Crash()
	}
}

func script(name string) string { return filepath.Join("hack", "kafka", name) }
