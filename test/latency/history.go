package main

import (
	"slices"
	"sync"
	"time"
)

// isrChange is a committed change of the in-sync replica set.
type isrChange struct {
	epoch        int32 // the partition epoch that it made
	isr          []int32
	at, appended time.Time
}

// history is what the metadata log said of partition 0 of a topic, and which nodes were fenced when.
type history struct {
	topic string

	mu      sync.Mutex
	topicID [16]byte
	known   bool
	epoch   int32
	isr     []int32
	changes []isrChange
	fences  []struct {
		node int32
		at   time.Time
	}
}

// add takes what was committed, in the order of the log.
func (h *history) add(c commit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch r := c.record.(type) {
	case topicMade:
		if r.name == h.topic {
			h.topicID, h.known = r.id, false
		}
	case partitionMade:
		if r.topic == h.topicID && r.index == 0 {
			h.known, h.epoch, h.isr = true, r.epoch, slices.Sorted(slices.Values(r.isr))
		}
	case partitionChange:
		if r.topic != h.topicID || r.index != 0 {
			return
		}
		h.epoch++
		isr := slices.Sorted(slices.Values(r.isr))
		if r.isr == nil || slices.Equal(isr, h.isr) {
			return
		}
		h.isr = isr
		h.changes = append(h.changes, isrChange{epoch: h.epoch, isr: isr, at: c.at, appended: c.appended})
	case fence:
		h.fences = append(h.fences, struct {
			node int32
			at   time.Time
		}{r.node, c.at})
	}
}

// latest is the partition's epoch, -1 before it is known.
func (h *history) latest() int32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.known {
		return -1
	}
	return h.epoch
}

// next is the first ISR change above an epoch.
func (h *history) next(after int32) (isrChange, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.changes {
		if c.epoch > after {
			return c, true
		}
	}
	return isrChange{}, false
}

// fencedSince names the nodes that were fenced after a time.
func (h *history) fencedSince(began time.Time) []int32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	nodes := []int32{}
	for _, f := range h.fences {
		if !f.at.Before(began) && !slices.Contains(nodes, f.node) {
			nodes = append(nodes, f.node)
		}
	}
	return nodes
}
