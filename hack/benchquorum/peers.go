package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/highwater-io/highwater/internal/benchload"
	"github.com/highwater-io/highwater/internal/benchpage"
	"github.com/highwater-io/highwater/internal/bigcluster"
	"github.com/highwater-io/highwater/internal/procs"
	"github.com/highwater-io/highwater/test/nodes"
)

// What commits may cost beside etcd's. Ratios are ours to etcd's, the median of the rounds.
const (
	maxLatencyRatio = 1.25 // of the median latency, with any number of clients
	minRateRatio    = 1.0  // of commits a second, from manyClients on
	manyClients     = 64
)

// system is one of the two that take turns.
type system struct {
	processes []*procs.Process
	run       func(context.Context, benchload.Settings) (benchload.Result, error)
}

// measured is one round of a system.
type measured struct {
	benchload.Result
	processor time.Duration // of the three servers, for each operation
}

func (s system) measure(ctx context.Context, settings benchload.Settings) (m measured, err error) {
	before, err := processorTime(s.processes)
	if err != nil {
		return m, err
	}
	if m.Result, err = s.run(ctx, settings); err != nil {
		return m, err
	}
	after, err := processorTime(s.processes)
	// The warm-up's operations are not counted, and took as long each.
	share := settings.For.Seconds() / (settings.For + settings.Warmup).Seconds()
	m.processor = time.Duration(float64(after-before) * share / float64(m.Operations))
	return m, err
}

// comparePeers has three voters of ours and three members of etcd take turns on this machine and disk.
func (b *bench) comparePeers(ctx context.Context) error {
	b.say("commits beside etcd: three voters, three members, on the same disk, in turns")
	dir := filepath.Join(b.dir, "peers")
	cluster, err := nodes.New(b.bin, dir, 1, 2, 3)
	if err != nil {
		return err
	}
	defer cluster.Stop()
	if err := cluster.Configure(""); err != nil {
		return err
	}
	if err := cluster.StartVoters(); err != nil {
		return err
	}
	quorum, err := cluster.AwaitQuorum(ctx, time.Minute)
	if err != nil {
		return err
	}
	shape := bigcluster.Shape{Topics: slices.Max(b.clients), Partitions: 1, Brokers: 3}
	brokers, err := register(ctx, cluster, shape)
	if err != nil {
		return err
	}
	defer brokers.stop()
	if _, err := create(ctx, quorum.Leader, shape); err != nil {
		return err
	}
	peer, err := startEtcd(ctx, b.etcd, dir)
	if err != nil {
		return err
	}
	defer peer.stop()

	ours := system{run: func(ctx context.Context, s benchload.Settings) (benchload.Result, error) {
		return loadController(ctx, s, quorum.Leader)
	}}
	for _, n := range cluster.Voters {
		ours.processes = append(ours.processes, n.Process)
	}
	etcds := system{processes: peer.members, run: func(ctx context.Context, s benchload.Settings) (benchload.Result, error) {
		return runLoad(ctx, s, b.etcdload, "-endpoint="+peer.urls[peer.leader])
	}}
	table := &benchpage.Table{Columns: []string{"clients", "commits/s", "etcd's", "ratio", "p50", "etcd's", "ratio", "p99", "etcd's", "ratio", "CPU of the servers for one", "etcd's", "ratio"}}
	for _, clients := range b.clients {
		settings := benchload.Settings{Clients: clients, Warmup: 500 * time.Millisecond, For: b.round}
		var a, e []measured
		for round := range b.rounds {
			order := []system{ours, etcds}
			into := []*[]measured{&a, &e}
			if round%2 == 1 {
				slices.Reverse(order)
				slices.Reverse(into)
			}
			for i, s := range order {
				m, err := s.measure(ctx, settings)
				if err != nil {
					return err
				}
				*into[i] = append(*into[i], m)
			}
			last := len(a) - 1
			b.say("  %3d clients, round %d of %d: %.0f commits/s, p50 %s; etcd %.0f, %s", clients, round+1, b.rounds,
				a[last].PerSecond(), short(a[last].P50), e[last].PerSecond(), short(e[last].P50))
		}
		b.addRow(table, clients, a, e)
	}
	if now, err := cluster.Quorum(ctx); err != nil {
		return err
	} else if now.Leader != quorum.Leader || now.Epoch != quorum.Epoch {
		b.miss("the quorum's leader changed under the load: epoch %d, now %d", quorum.Epoch, now.Epoch)
	}
	leader := peer.leader
	if err := peer.findLeader(ctx); err != nil {
		return err
	}
	if peer.leader != leader {
		return errors.New("etcd's leader changed under the load, so that its clients were no longer beside it: what was measured compares nothing")
	}
	fmt.Fprintf(&b.text, "Commits beside etcd %s, medians of %d rounds of %v in turns:\n\n%s", peer.version, b.rounds, b.round, table)
	return nil
}

// addRow adds what the rounds with so many clients gave, and checks it.
func (b *bench) addRow(table *benchpage.Table, clients int, ours, etcds []measured) {
	cells := []string{strconv.Itoa(clients)}
	ratio := func(value func(measured) float64, show func(float64) string) float64 {
		a, e := make([]float64, len(ours)), make([]float64, len(etcds))
		ratios := make([]float64, len(ours))
		for i := range ours {
			a[i], e[i] = value(ours[i]), value(etcds[i])
			ratios[i] = a[i] / e[i]
		}
		r := median(ratios)
		cells = append(cells, show(median(a)), show(median(e)), fmt.Sprintf("%.2f", r))
		return r
	}
	duration := func(f float64) string { return short(time.Duration(f)) }
	rate := ratio(func(m measured) float64 { return m.PerSecond() }, func(f float64) string { return fmt.Sprintf("%.0f", f) })
	latency := ratio(func(m measured) float64 { return float64(m.P50) }, duration)
	ratio(func(m measured) float64 { return float64(m.P99) }, duration)
	ratio(func(m measured) float64 { return float64(m.processor) }, duration)
	table.Add(cells...)
	if latency > maxLatencyRatio {
		b.miss("%d clients: the median commit takes %.2f times etcd's, at most %.2f", clients, latency, maxLatencyRatio)
	}
	if clients >= manyClients && rate < minRateRatio {
		b.miss("%d clients: %.2f times etcd's commits a second, at least %.2f", clients, rate, minRateRatio)
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// short shows a duration with three digits.
func short(d time.Duration) string {
	for unit := time.Nanosecond; ; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
}
