package exec

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/replication"
	"github.com/highwater-io/highwater/pkg/vfs"
)

// BenchmarkFlushGroupCommit has so many producers wait for flushed records of 1 KiB at once: one operation is one
// record that is on the disk.
func BenchmarkFlushGroupCommit(b *testing.B) {
	for _, waiters := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("%dwaiters", waiters), func(b *testing.B) {
			r := newRig(b, 1, true)
			r.cfg.FS, r.cfg.Dir, r.cfg.FlushApart = vfs.OS(), b.TempDir()+"/t-0", true
			r.open()
			r.role(1, 3, 1)
			g := &group{rig: r, waiting: map[replication.Token]chan struct{}{}, flush: make(chan struct{}, 1)}
			var flusher, producers sync.WaitGroup
			flusher.Go(g.flushLoop)
			var done atomic.Int64
			b.ReportAllocs()
			b.ResetTimer()
			for range waiters {
				producers.Go(func() {
					data := records(string(make([]byte, 950))).Build()
					for done.Add(1) <= int64(b.N) {
						g.produce(data)
					}
				})
			}
			producers.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/float64(max(1, g.flushes)), "records/flush")
			close(g.flush)
			flusher.Wait()
		})
	}
}

// group is a partition under a mutex with a flusher beside it.
type group struct {
	*rig
	mu      sync.Mutex
	token   replication.Token
	waiting map[replication.Token]chan struct{}
	flush   chan struct{}
	flushes int
}

func (g *group) produce(data []byte) {
	done := make(chan struct{})
	g.mu.Lock()
	batch.SetBaseOffset(data, 0)
	g.token++
	g.waiting[g.token] = done
	g.Produce(g.now, replication.Produce{Token: g.token, Acks: -1, Timeout: time.Hour}, data)
	g.act()
	g.mu.Unlock()
	<-done
}

// act runs under the mutex.
func (g *group) act() {
	out := g.drain()
	for _, c := range out.Completed {
		close(g.waiting[c.Token])
		delete(g.waiting, c.Token)
	}
	if out.Flush {
		select {
		case g.flush <- struct{}{}:
		default:
		}
	}
}

func (g *group) flushLoop() {
	for range g.flush {
		g.mu.Lock()
		f, ok := g.BeginFlush(g.now)
		g.mu.Unlock()
		if !ok {
			continue
		}
		err := f.Sync()
		g.mu.Lock()
		g.flushes++
		g.EndFlush(g.now, f, err)
		g.act()
		g.mu.Unlock()
	}
}
