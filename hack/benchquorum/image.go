package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/highwater-io/highwater/internal/benchload"
	"github.com/highwater-io/highwater/internal/benchpage"
	"github.com/highwater-io/highwater/internal/bigcluster"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/test/nodes"
)

// inMemory runs the Go benchmarks of an image of 100,000 partitions.
func (b *bench) inMemory(ctx context.Context) error {
	b.say("an image of 100,000 partitions in memory: a change, a snapshot, its load, a new leader's index")
	table, err := benchpage.GoBench{
		Pattern:   "^Benchmark(OnePartitionsChange|Snapshot|Replay|NewIndex)$",
		Packages:  []string{"./pkg/metadata", "./pkg/quorum/controller"},
		Benchtime: "500ms",
		Units:     []string{"ns/op", "MB/s", "B/op", "allocs/op"},
	}.Run(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(&b.text, "In memory (topics x partitions of each):\n\n%s", table)
	return nil
}

// maxPeak is how much more memory than an empty node one may take at most while it installs a snapshot and follows from
// there, as a multiple of the snapshot's file. The image takes two and a half times the file, and Go lets as much
// garbage lie as there is alive before it collects.
const maxPeak = 8

// betweenProcesses has real nodes hold, write, send and load an image of 100,000 partitions.
func (b *bench) betweenProcesses(ctx context.Context) error {
	table := &benchpage.Table{Columns: []string{"topics x partitions"}}
	for i, shape := range bigcluster.Shapes {
		b.say("real nodes with %s partitions", shape)
		m := &imageRun{bench: b, shape: shape}
		if err := m.run(ctx, filepath.Join(b.dir, shape.String())); err != nil {
			return err
		}
		if i == 0 {
			table.Columns = append(table.Columns, m.names...)
		}
		table.Add(append([]string{shape.String()}, m.values...)...)
	}
	fmt.Fprintf(&b.text, "Between real processes on loopback, the same disk for all:\n\n%s", table.Turned())
	return nil
}

// imageRun is what one shape goes through.
type imageRun struct {
	*bench
	shape   bigcluster.Shape
	cluster *nodes.Cluster
	brokers *brokers

	names, values []string
}

func (r *imageRun) row(name, format string, args ...any) {
	r.names, r.values = append(r.names, name), append(r.values, fmt.Sprintf(format, args...))
	r.say("  %s: %s", name, r.values[len(r.values)-1])
}

func (r *imageRun) run(ctx context.Context, dir string) (err error) {
	if r.cluster, err = nodes.New(r.bin, dir, 1, 2, 3); err != nil {
		return err
	}
	defer r.cluster.Stop()
	for _, step := range []func(context.Context) error{r.fill, r.restart, r.commits, r.failover, r.install} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	r.brokers.stop()
	return os.RemoveAll(dir)
}

// start starts the voters again and returns when the quorum has committed a change of a topic, and how long that took.
func (r *imageRun) start(ctx context.Context, config string) (q nodes.Quorum, took time.Duration, err error) {
	r.cluster.Stop()
	if err := r.cluster.Configure(config); err != nil {
		return q, 0, err
	}
	began := time.Now()
	if err := r.cluster.StartVoters(); err != nil {
		return q, 0, err
	}
	q, err = r.serves(ctx)
	return q, time.Since(began), err
}

// serves waits until the quorum has committed a change of a topic.
func (r *imageRun) serves(ctx context.Context) (q nodes.Quorum, err error) {
	value := int(time.Now().Unix())
	err = nodes.Eventually(ctx, "the quorum serves", time.Minute, func(ctx context.Context) error {
		if q, err = r.cluster.Quorum(ctx); err != nil {
			return err
		}
		conn, err := nodes.Connect(q.Leader.Controller)
		if err != nil {
			return err
		}
		defer conn.Close()
		return alterConfigs(ctx, conn, 0, value)
	})
	return q, err
}

// fill creates the topics.
func (r *imageRun) fill(ctx context.Context) error {
	if err := errors.Join(r.cluster.Configure(""), r.cluster.StartVoters()); err != nil {
		return err
	}
	quorum, err := r.cluster.AwaitQuorum(ctx, time.Minute)
	if err != nil {
		return err
	}
	if r.brokers, err = register(ctx, r.cluster, r.shape); err != nil {
		return err
	}
	took, err := create(ctx, quorum.Leader, r.shape)
	if err != nil {
		return err
	}
	r.row("create all partitions by CreateTopics", "%s", short(took))
	return nil
}

// oftenSnapshots has a voter write a snapshot every 1,700 commits or so of the load.
const oftenSnapshots = "snapshots: {maxNewBytes: 524288}\n"

// restart stops the voters and starts them again: what they have is the log, so that they read all of it.
func (r *imageRun) restart(ctx context.Context) error {
	_, took, err := r.start(ctx, oftenSnapshots)
	if err != nil {
		return err
	}
	r.row("start of three voters until the quorum serves, from the log", "%s", short(took))
	return nil
}

// commits changes one thing after the other while every voter writes one snapshot after the other.
func (r *imageRun) commits(ctx context.Context) error {
	before, err := r.cluster.AwaitQuorum(ctx, time.Minute)
	if err != nil {
		return err
	}
	files := watchSnapshots(r.cluster.Voters)
	defer files.stop()
	result, err := loadController(ctx, benchload.Settings{Clients: 8, Warmup: 500 * time.Millisecond, For: 2 * r.round}, before.Leader)
	if err != nil {
		return err
	}
	seen, size := files.stop()
	if seen < len(r.cluster.Voters) {
		return fmt.Errorf("%d snapshots were written during the load, want one of each voter at least", seen)
	}
	if err := r.sameLeader(ctx, before, "while snapshots were written"); err != nil {
		return err
	}
	r.row("a snapshot's file", "%.1f MB", float64(size)/1e6)
	r.row("snapshots written meanwhile, of three voters", "%d", seen)
	r.row("commits of 8 clients meanwhile", "%.0f/s", result.PerSecond())
	r.row("p50, p99, longest", "%s, %s, %s", short(result.P50), short(result.P99), short(result.Max))
	return nil
}

// failover kills the quorum's leader.
func (r *imageRun) failover(ctx context.Context) error {
	quorum, err := r.serves(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	quorum.Leader.Kill()
	now, err := r.serves(ctx)
	if err != nil {
		return err
	}
	if now.Leader == quorum.Leader || now.Epoch <= quorum.Epoch {
		return fmt.Errorf("voter %d was killed and leads", quorum.Leader.ID)
	}
	r.row("the quorum's leader killed until another has committed", "%s", short(time.Since(began)))
	return nil
}

// sameLeader misses the bound when there was an election.
func (r *imageRun) sameLeader(ctx context.Context, before nodes.Quorum, when string) error {
	now, err := r.cluster.AwaitQuorum(ctx, time.Minute)
	if err == nil && (now.Leader != before.Leader || now.Epoch != before.Epoch) {
		r.miss("%s: the quorum had another leader %s: epoch %d, then %d", r.shape, when, before.Epoch, now.Epoch)
	}
	return err
}

// install has a new node fetch the latest snapshot, while a client changes one thing after the other.
func (r *imageRun) install(ctx context.Context) error {
	before, took, err := r.start(ctx, "")
	if err != nil {
		return err
	}
	r.row("start of three voters until the quorum serves, from snapshots", "%s", short(took))
	empty, err := r.emptyNode(ctx)
	if err != nil {
		return err
	}

	n, err := r.cluster.AddData(900)
	if err != nil {
		return err
	}
	var load benchload.Result
	var loadErr error
	var running sync.WaitGroup
	running.Go(func() {
		load, loadErr = loadController(ctx, benchload.Settings{Clients: 1, For: 2 * r.round}, before.Leader)
	})
	defer running.Wait()
	files := watchInstall(n)
	defer files.stop()
	if err := n.Start(); err != nil {
		return err
	}
	var target nodes.Quorum
	if err := nodes.Eventually(ctx, "the new node has the snapshot", time.Minute, func(ctx context.Context) error {
		if !files.done() {
			return errors.New("there is none in " + n.MetadataDir())
		}
		var err error
		target, err = r.cluster.Quorum(ctx)
		return err
	}); err != nil {
		return err
	}
	if err := nodes.Eventually(ctx, "the new node follows", time.Minute, func(ctx context.Context) error {
		q, err := r.cluster.Quorum(ctx)
		if err == nil && q.Ends[n.ID] < target.HighWatermark {
			err = fmt.Errorf("its log ends at %d, below %d", q.Ends[n.ID], target.HighWatermark)
		}
		return err
	}); err != nil {
		return err
	}
	running.Wait()
	if loadErr != nil {
		return loadErr
	}
	peak, err := peakBytes(n.Process)
	if err != nil {
		return err
	}
	if err := r.sameLeader(ctx, before, "while a node installed a snapshot"); err != nil {
		return err
	}
	file := files.stop()
	if err := sameFile(filepath.Join(before.Leader.MetadataDir(), file.name), filepath.Join(n.MetadataDir(), file.name)); err != nil {
		return err
	}
	r.row("a new node: first byte to installed", "%s", short(file.installed.Sub(file.began)))
	r.row("a new node: snapshot's bytes a second", "%.0f MB/s", float64(file.size)/1e6/file.installed.Sub(file.began).Seconds())
	over := float64(peak-empty) / float64(file.size)
	r.row("a new node: peak memory (of an empty cluster's)", "%.0f MB (%.0f MB)", float64(peak)/1e6, float64(empty)/1e6)
	r.row("commits of 1 client meanwhile: p50, longest", "%s, %s", short(load.P50), short(load.Max))
	if over > maxPeak {
		r.miss("%s: a node that installs a snapshot takes %.1f times the file's size in memory, at most %d", r.shape, over, maxPeak)
	}
	return nil
}

// emptyNode is the peak memory of a data node whose cluster has nothing in it.
func (r *imageRun) emptyNode(ctx context.Context) (int64, error) {
	c, err := nodes.New(r.bin, filepath.Join(r.dir, r.shape.String()+"-empty"), 1)
	if err != nil {
		return 0, err
	}
	defer c.Stop()
	if err := c.Configure(""); err != nil {
		return 0, err
	}
	n, err := c.AddData(900)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(c.StartVoters(), n.Start()); err != nil {
		return 0, err
	}
	if err := nodes.Eventually(ctx, "the node of an empty cluster follows", time.Minute, func(ctx context.Context) error {
		q, err := c.Quorum(ctx)
		if err == nil && q.Ends[n.ID] < 5 {
			err = fmt.Errorf("its log ends at %d", q.Ends[n.ID])
		}
		return err
	}); err != nil {
		return 0, err
	}
	return peakBytes(n.Process)
}

func sameFile(a, b string) error {
	one, err := os.ReadFile(a)
	if err != nil {
		return err
	}
	other, err := os.ReadFile(b)
	if err == nil && !bytes.Equal(one, other) {
		err = fmt.Errorf("%s and %s differ", a, b)
	}
	return err
}

// snapshotNames lists a node's whole snapshots, in order, and those that are being fetched.
func snapshotNames(n *nodes.Node) (whole, fetched []string, err error) {
	entries, err := os.ReadDir(n.MetadataDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	for _, e := range entries {
		if id, ok := metadata.ParseSnapshotName(e.Name()); ok && id.EndOffset > 0 {
			whole = append(whole, e.Name())
		} else if strings.HasSuffix(e.Name(), metadata.PartialSnapshotSuffix) {
			fetched = append(fetched, e.Name())
		}
	}
	slices.Sort(whole)
	return whole, fetched, err
}
