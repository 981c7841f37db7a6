package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/nodefact"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// memDisks gives every node a disk in memory, whose size and faults the test decides.
type memDisks struct {
	mu     sync.Mutex
	mem    map[ident.NodeID]*vfs.Mem
	faults map[ident.NodeID]func(op, path string) error
}

// add makes the disk of a node.
func (d *memDisks) add(id ident.NodeID) vfs.FS {
	mem := vfs.NewMem()
	d.mem[id] = mem
	return vfs.Inject(mem, func(op, path string) error {
		d.mu.Lock()
		fault := d.faults[id]
		d.mu.Unlock()
		if fault == nil {
			return nil
		}
		return fault(op, path)
	})
}

// breaks has changes below a directory of a node fail.
func (d *memDisks) breaks(id ident.NodeID, fault func(op, path string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults[id] = fault
}

// fill leaves a volume of a node no room.
func (d *memDisks) fill(id ident.NodeID, dir string) { d.mem[id].SetCapacity(dir, 1) }

// makeRoom takes the limit away again.
func (d *memDisks) makeRoom(id ident.NodeID, dir string) { d.mem[id].SetCapacity(dir, 0) }

func newMemCluster(t *testing.T, combined bool, nodes int) (*testCluster, *memDisks) {
	t.Helper()
	c := emptyCluster(t)
	disks := &memDisks{mem: map[ident.NodeID]*vfs.Mem{}, faults: map[ident.NodeID]func(op, path string) error{}}
	if !combined {
		config := c.baseConfig(1000)
		c.vote(&config)
		c.add(config)
		c.nodes[config.NodeID].disk = disks.add(config.NodeID)
	}
	for i := range nodes {
		config := c.baseConfig(ident.NodeID(i))
		if combined {
			c.vote(&config)
		}
		c.holdData(&config)
		c.add(config)
		c.nodes[config.NodeID].disk = disks.add(config.NodeID)
	}
	c.startAll()
	for id := range c.nodes {
		c.waitReady(id)
	}
	return c, disks
}

// probe asks a node's HTTP listener.
func (c *testCluster) probe(id ident.NodeID, path string) (int, string) {
	resp, err := http.Get("http://" + c.nodes[id].config.HTTPListener + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

// waitOffline waits until a node says that a directory of it is offline, for a reason, and checks that it lives.
func (c *testCluster) waitOffline(id ident.NodeID, reason string) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("node %d says that it is offline", id), func() error {
		code, body := c.probe(id, "/readyz")
		if code != http.StatusServiceUnavailable || !strings.Contains(body, "is offline ("+reason+")") {
			return fmt.Errorf("readyz: %d %s", code, body)
		}
		code, body = c.probe(id, "/metrics")
		if !strings.Contains(body, "\nhighwater_log_dir_offline 1\n") || !strings.Contains(body, fmt.Sprintf("highwater_log_dir_offline_reason{reason=%q} 1\n", reason)) {
			return fmt.Errorf("metrics: %d", code)
		}
		code, body = c.probe(id, "/facts")
		if !strings.Contains(body, `"kind":"LogDirOffline"`) || !strings.Contains(body, `"reason":"`+reason+`"`) {
			return fmt.Errorf("facts: %d %s", code, body)
		}
		return nil
	})
	if code, body := c.probe(id, "/livez"); code != http.StatusOK {
		c.t.Fatalf("livez of node %d: %d %s", id, code, body)
	}
}

// waitISR waits until partition 0 of a topic is led by a node that the check likes and has an ISR of a size.
func (c *testCluster) waitISR(topic string, size int, leads func(ident.NodeID) bool) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("an ISR of %d", size), func() error {
		now, err := c.partition(topic)
		if err == nil && (len(now.ISR) != size || !leads(ident.NodeID(now.Leader))) {
			err = fmt.Errorf("leader %d, ISR %v", now.Leader, now.ISR)
		}
		return err
	})
}

func anybody(id ident.NodeID) bool { return id >= 0 }

// writer produces numbered records with acks=all, one after the other, until it is told to stop.
type writer struct {
	c     *testCluster
	stop  context.CancelFunc
	done  chan struct{}
	acked atomic.Int64
}

func (c *testCluster) write(topic string) *writer {
	ctx, cancel := context.WithCancel(context.Background())
	w := &writer{c: c, stop: cancel, done: make(chan struct{})}
	client := c.client(kgo.RequiredAcks(kgo.AllISRAcks()))
	go func() {
		defer close(w.done)
		for i := 0; ctx.Err() == nil; i++ {
			record := &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "record-%d", i)}
			if err := client.ProduceSync(context.Background(), record).FirstErr(); err != nil {
				c.t.Errorf("record %d: %v", i, err)
				return
			}
			w.acked.Add(1)
		}
	}()
	c.t.Cleanup(func() { cancel(); <-w.done })
	return w
}

// more waits until so many more records are acknowledged.
func (w *writer) more(n int64) {
	w.c.t.Helper()
	from := w.acked.Load()
	w.c.eventually(fmt.Sprintf("%d more records are acknowledged", n), func() error {
		if got := w.acked.Load() - from; got < n {
			return fmt.Errorf("%d", got)
		}
		return nil
	})
}

// finish stops the writer and reads back all that it was told is written.
func (w *writer) finish(topic string) {
	w.c.t.Helper()
	w.stop()
	<-w.done
	w.c.consume(topic, int(w.acked.Load()))
}

func TestFullDiskMovesLeadersAndTheNodeComesBackWithRoom(t *testing.T) {
	c, disks := newMemCluster(t, false, 3)
	two := "2"
	c.createTopic("orders", 1, 3, map[string]*string{"min.insync.replicas": &two})
	w := c.write("orders")
	w.more(20)
	before, err := c.partition("orders")
	if err != nil {
		t.Fatal(err)
	}
	full := ident.NodeID(before.Leader)
	dir := c.nodes[full].config.DataDir
	disks.fill(full, dir)
	c.waitOffline(full, nodefact.DiskFull)
	c.waitISR("orders", 2, func(id ident.NodeID) bool { return id >= 0 && id != full })
	w.more(20)
	disks.makeRoom(full, dir)
	c.waitReady(full)
	c.waitISR("orders", 3, anybody)
	w.more(5)
	w.finish("orders")
	select {
	case <-c.nodes[full].done:
		t.Fatalf("the process has ended: %v", c.nodes[full].err)
	default:
	}
	if _, body := c.probe(full, "/facts"); strings.Contains(body, "LogDirOffline") {
		t.Errorf("the new life of the node still tells of the old one: %s", body)
	}
}

// topicLedBy makes a topic of one partition, replicated to three nodes, that a node leads.
func (c *testCluster) topicLedBy(id ident.NodeID) string {
	c.t.Helper()
	two := "2"
	for i := range 20 {
		name := fmt.Sprintf("orders-%d", i)
		c.createTopic(name, 1, 3, map[string]*string{"min.insync.replicas": &two})
		var leader ident.NodeID
		c.eventually("a leader", func() error {
			now, err := c.partition(name)
			leader = ident.NodeID(now.Leader)
			if err == nil && leader < 0 {
				err = errors.New("none yet")
			}
			return err
		})
		if leader == id {
			return name
		}
	}
	c.t.Fatalf("none of 20 topics is led by node %d", id)
	return ""
}

func TestVoterWithAVolumeOfItsOwnLeadsOnWhileItsDataIsOffline(t *testing.T) {
	c, disks := newMemCluster(t, true, 3)
	quorum := c.quorumLeader(0)
	orders := c.topicLedBy(quorum)
	w := c.write(orders)
	w.more(20)
	dir := c.nodes[quorum].config.DataDir
	disks.mem[quorum].SetReadOnly(dir, true)
	c.waitOffline(quorum, nodefact.ReadOnly)
	c.waitISR(orders, 2, func(id ident.NodeID) bool { return id >= 0 && id != quorum })
	if leader := c.quorumLeader(quorum); leader != quorum {
		t.Errorf("the quorum is led by %d, the voter %d has lost nothing", leader, quorum)
	}
	w.more(20)
	disks.mem[quorum].SetReadOnly(dir, false)
	c.waitReady(quorum)
	c.waitISR(orders, 3, anybody)
	w.more(5)
	w.finish(orders)
}

func TestNodeWithoutRoomForItsMetadataWaitsAndComesBack(t *testing.T) {
	c, disks := newMemCluster(t, true, 3)
	two := "2"
	c.createTopic("orders", 1, 3, map[string]*string{"min.insync.replicas": &two})
	w := c.write("orders")
	w.more(20)
	quorum := c.quorumLeader(0)
	volume := filepath.Dir(c.nodes[quorum].config.DataDir) // of both directories
	disks.fill(quorum, volume)
	c.waitOffline(quorum, nodefact.DiskFull)
	c.eventually("the quorum goes on with another leader", func() error {
		for id := range c.nodes {
			if id != quorum {
				if leader := c.quorumLeader(id); leader == quorum || leader < 0 {
					return fmt.Errorf("node %d says %d", id, leader)
				}
			}
		}
		return nil
	})
	c.waitISR("orders", 2, func(id ident.NodeID) bool { return id >= 0 && id != quorum })
	w.more(20)
	disks.makeRoom(quorum, volume)
	c.waitReady(quorum)
	c.waitISR("orders", 3, anybody)
	w.finish("orders")
}

func TestStartOnAFullDiskWaitsForRoom(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared volume %v", shared), func(t *testing.T) {
			c, disks := newMemCluster(t, false, 3)
			two := "2"
			c.createTopic("orders", 1, 3, map[string]*string{"min.insync.replicas": &two})
			c.produce(c.client(), "orders", 0, 20)
			if err := c.stop(1); err != nil {
				t.Fatal(err)
			}
			dir := c.nodes[1].config.DataDir
			if shared {
				dir = filepath.Dir(dir)
			}
			disks.mem[1].SetReadOnly(dir, true)
			c.start(1)
			c.waitOffline(1, nodefact.ReadOnly)
			c.produce(c.client(), "orders", 20, 40)
			disks.fill(1, dir)
			disks.mem[1].SetReadOnly(dir, false)
			c.eventually("the node tries again, and finds the disk full", func() error {
				_, body := c.probe(1, "/readyz")
				if !strings.Contains(body, "is offline") {
					return errors.New(body)
				}
				return nil
			})
			disks.makeRoom(1, dir)
			c.waitReady(1)
			c.waitISR("orders", 3, anybody)
			c.consume("orders", 40)
		})
	}
}

func TestIOErrorStaysUntilSomebodyActs(t *testing.T) {
	for _, which := range []string{"data", "metadata"} {
		t.Run(which, func(t *testing.T) {
			c, disks := newMemCluster(t, false, 3)
			two := "2"
			c.createTopic("orders", 1, 3, map[string]*string{"min.insync.replicas": &two})
			w := c.write("orders")
			w.more(20)
			before, err := c.partition("orders")
			if err != nil {
				t.Fatal(err)
			}
			broken := ident.NodeID(before.Leader)
			dir := c.nodes[broken].config.DataDir
			if which == "metadata" {
				dir = c.nodes[broken].config.MetadataDir
			}
			var writes atomic.Int64
			disks.breaks(broken, func(op, path string) error {
				if !strings.HasPrefix(path, dir) || !changes[op] {
					return nil
				}
				if writes.Add(1) == 1 || op == vfs.OpLock {
					return syscall.EIO
				}
				return nil // and from now on all would be well, as after a failed fsync
			})
			c.waitOffline(broken, nodefact.IOError)
			c.waitISR("orders", 2, func(id ident.NodeID) bool { return id >= 0 && id != broken })
			w.more(20)
			w.finish("orders")
			if n := writes.Load(); n != 1 {
				t.Errorf("%d changes were tried after the one that failed", n-1)
			}
			// Restarted, it is somebody's word that the disk is good.
			if err := c.stop(broken); err != nil {
				t.Fatal(err)
			}
			c.start(broken)
			c.waitReady(broken)
			c.waitISR("orders", 3, anybody)
		})
	}
}

func TestNodeKeepsRoomForOthersOnItsVolume(t *testing.T) {
	mem := vfs.NewMem()
	if err := mem.MkdirAll("/data", 0o755); err != nil {
		t.Fatal(err)
	}
	mem.SetCapacity("/data", 100<<20)
	d := newLogDir(mem, "/data", keptFree(mem, "/data", -1))
	if d.minFreeBytes != 5<<20 || keptFree(mem, "/data", 7) != 7 || keptFree(vfs.NewMem(), "/", -1) != 0 {
		t.Fatalf("kept free: %d", d.minFreeBytes)
	}
	f, err := d.OpenFile("/data/a", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	piece, size := make([]byte, 1<<20), int64(0)
	for err == nil {
		if _, err = f.WriteAt(piece, size); err == nil {
			size += int64(len(piece))
		}
	}
	failure := d.offline()
	if !errors.Is(err, syscall.ENOSPC) || size != 95<<20 || failure == nil || failure.reason != nodefact.DiskFull || !failure.comesBack() {
		t.Fatalf("%v after %d bytes, offline %v", err, size, failure)
	}
	// It takes twice as much to come back, so that it does not go to and fro.
	mem.SetCapacity("/data", 104<<20)
	if err := d.probe(); err == nil {
		t.Fatal("9 MiB of room are called enough")
	}
	mem.SetCapacity("/data", 110<<20)
	if err := d.probe(); err != nil {
		t.Fatal(err)
	}
	if entries, err := mem.ReadDir("/data"); err != nil || len(entries) != 1 {
		t.Fatalf("the probe leaves %v, %v", entries, err)
	}
}

// Somebody else fills the volume up: a node that has room for long by what it saw last notices soon.
func TestNodeNoticesThatOthersFillItsVolume(t *testing.T) {
	mem := vfs.NewMem()
	if err := mem.MkdirAll("/data", 0o755); err != nil {
		t.Fatal(err)
	}
	mem.SetCapacity("/data", 100<<20)
	b := newTestBroker(t, mem)
	b.dir.path, b.dir.minFreeBytes = "/data", 5<<20
	if err := b.dir.takeRoom("/data/a", 1); err != nil {
		t.Fatal(err)
	}
	mem.SetCapacity("/data", 4<<20)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); b.checkpointLoop(ctx) }()
	deadline := time.Now().Add(testscale.Duration(30 * time.Second))
	for b.dir.takeRoom("/data/a", 1) == nil && time.Now().Before(deadline) {
		<-time.After(20 * time.Millisecond)
	}
	cancel()
	<-done
	if err := b.dir.takeRoom("/data/a", 1); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("a nearly full volume takes writes: %v", err)
	}
}

func TestProbeWhoseSyncFailsIsTheLast(t *testing.T) {
	mem := vfs.NewMem()
	d := newLogDir(vfs.Inject(mem, func(op, _ string) error {
		if op == vfs.OpSync {
			return syscall.ENOSPC
		}
		return nil
	}), "/", 0)
	_ = d.fail(vfs.OpWrite, syscall.ENOSPC)
	if !d.offline().comesBack() {
		t.Fatal("a full disk does not come back")
	}
	backoff := newProbeBackoff(time.Millisecond)
	if backoff.await(t.Context(), func(error) {}, d) || d.offline().reason != nodefact.IOError {
		t.Fatalf("after a probe that could not be synced: %v", d.offline())
	}
}

func TestProbesWaitLongerWhenTheDirectoryFailsAgainSoon(t *testing.T) {
	p := newProbeBackoff(time.Second)
	now := time.Now()
	var pauses []time.Duration
	p.failed(now)
	for range 7 {
		pauses = append(pauses, p.pause()/time.Second)
	}
	if !slices.Equal(pauses, []time.Duration{1, 2, 4, 8, 16, 30, 30}) {
		t.Fatalf("pauses %v", pauses)
	}
	p.cameBack = now
	if p.failed(now.Add(time.Minute)); p.pause() != 30*time.Second {
		t.Error("one that fails again within a minute is probed as often as before")
	}
	if p.failed(now.Add(time.Hour)); p.pause() != time.Second {
		t.Error("one that was well for an hour is not probed soon")
	}
}

func TestProbeMakesTheDirectoryThatAFullDiskHadNoRoomFor(t *testing.T) {
	mem := vfs.NewMem()
	if err := mem.MkdirAll("/volume", 0o755); err != nil {
		t.Fatal(err)
	}
	mem.SetReadOnly("/volume", true)
	d := newLogDir(mem, "/volume/data", 0)
	_ = d.fail(vfs.OpMkdir, mem.MkdirAll(d.path, 0o755))
	if err := d.probe(); !errors.Is(err, syscall.EROFS) || !d.offline().comesBack() {
		t.Fatalf("%v, offline %v", err, d.offline())
	}
	mem.SetReadOnly("/volume", false)
	if err := d.probe(); err != nil {
		t.Fatal(err)
	}
}

// A data directory that a failed sync has spoiled stays offline also when the node begins anew for another reason, and a
// full one that turns out broken is told of again.
func TestIOErrorOutlivesTheReturnOfTheMetadataDirectory(t *testing.T) {
	c, disks := newMemCluster(t, true, 3)
	config := c.nodes[1].config
	var once atomic.Bool
	disks.breaks(1, func(op, path string) error {
		if strings.HasPrefix(path, config.DataDir) && op == vfs.OpSync && once.CompareAndSwap(false, true) {
			return syscall.EIO
		}
		return nil
	})
	disks.mem[1].SetCapacity(config.DataDir, 1)
	c.createTopic("orders", 1, 3, nil)
	c.waitOffline(1, nodefact.DiskFull)
	disks.makeRoom(1, config.DataDir)
	c.waitOffline(1, nodefact.IOError)

	disks.mem[1].SetReadOnly(config.MetadataDir, true)
	c.waitOffline(1, nodefact.ReadOnly)
	disks.mem[1].SetReadOnly(config.MetadataDir, false)
	c.waitOffline(1, nodefact.IOError)
	c.waitISR("orders", 2, func(id ident.NodeID) bool { return id >= 0 && id != 1 })
}
