package log

import (
	"errors"
	"fmt"
)

// Abandoning is what the end of a log waits for whose directory is about to be deleted: the flush and the chores that
// are under way.
type Abandoning struct {
	syncs  *syncs
	chores *Chores
	closed error
}

// BeginAbandon has no chore begin any more. The owner calls nothing else of the log then but Abandon, and EndFlush,
// EndChores, EndScrub and EndClean of what is under way.
func (l *Log) BeginAbandon() *Abandoning {
	a := &Abandoning{&l.syncs, l.chores, fmt.Errorf("log %s: %w", l.dir, ErrClosed)}
	if a.chores != nil {
		a.chores.stopped.Store(true)
	}
	return a
}

// Over says whether Wait has nothing to wait for. A flush that has not come to the disk by now fails, as with Wait: else
// it could begin before Wait does.
func (a *Abandoning) Over() bool {
	if !a.syncs.mu.TryLock() {
		return false
	}
	a.syncs.err = a.closed
	a.syncs.mu.Unlock()
	if a.chores == nil {
		return true
	}
	if !a.chores.mu.TryLock() {
		return false
	}
	a.chores.mu.Unlock()
	return true
}

// Wait ends when nothing writes to the directory any more: a flush that has not begun by now fails. It may take as long
// as the disk does, and needs no lock of the owner's.
func (a *Abandoning) Wait() {
	a.syncs.mu.Lock()
	a.syncs.err = a.closed
	a.syncs.mu.Unlock()
	if a.chores != nil {
		a.chores.stop()
	}
}

// Abandon closes the files of a log that is about to be deleted and makes nothing durable. What is under way is waited
// for, and nothing is written afterwards: the directory may belong to another log then.
func (l *Log) Abandon() {
	if errors.Is(l.err, ErrClosed) {
		return
	}
	a := l.BeginAbandon()
	a.Wait()
	l.stopChores()
	for _, s := range l.segments {
		s.drop()
	}
	l.err = a.closed
}
