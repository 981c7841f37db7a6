package main

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/highwater-io/highwater/test/nodes"
)

// What nodes do with snapshots is seen by their files, not by what they say.

// watchEvery is how often a directory is looked at.
const watchEvery = 2 * time.Millisecond

// watcher looks at directories until it is stopped.
type watcher struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	mu      sync.Mutex
}

func (w *watcher) start(look func()) {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	w.running.Go(func() {
		ticker := time.NewTicker(watchEvery)
		defer ticker.Stop()
		for {
			w.mu.Lock()
			look()
			w.mu.Unlock()
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
}

func (w *watcher) end() {
	w.cancel()
	w.running.Wait()
}

// writtenSnapshots counts the snapshots that come.
type writtenSnapshots struct {
	watcher
	seen map[string]bool // by path
	new  int
	size int64 // of the last one
}

func watchSnapshots(of []*nodes.Node) *writtenSnapshots {
	w := &writtenSnapshots{seen: map[string]bool{}}
	look := func() {
		for _, n := range of {
			whole, _, _ := snapshotNames(n)
			for _, name := range whole {
				path := filepath.Join(n.MetadataDir(), name)
				if w.seen[path] {
					continue
				}
				w.seen[path] = true
				if info, err := os.Stat(path); err == nil {
					w.size = info.Size()
				}
				w.new++
			}
		}
	}
	look()
	w.new = 0
	w.start(look)
	return w
}

func (w *writtenSnapshots) stop() (written int, size int64) {
	w.end()
	return w.new, w.size
}

// installedSnapshot is the first snapshot that a node gets.
type installedSnapshot struct {
	name             string
	size             int64
	began, installed time.Time // its partial file was there, it had its name
}

type installWatcher struct {
	watcher
	file installedSnapshot
}

func watchInstall(n *nodes.Node) *installWatcher {
	w := &installWatcher{}
	w.start(func() {
		if w.file.name != "" {
			return
		}
		whole, fetched, _ := snapshotNames(n)
		now := time.Now()
		if len(fetched) > 0 && w.file.began.IsZero() {
			w.file.began = now
		}
		if len(whole) == 0 {
			return
		}
		if info, err := os.Stat(filepath.Join(n.MetadataDir(), whole[0])); err == nil {
			w.file.name, w.file.size, w.file.installed = whole[0], info.Size(), now
		}
	})
	return w
}

func (w *installWatcher) done() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.file.name != ""
}

func (w *installWatcher) stop() installedSnapshot {
	w.end()
	return w.file
}
