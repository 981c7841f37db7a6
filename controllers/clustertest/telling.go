package clustertest

import (
	"slices"

	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

// telling is what a node has to tell of itself, as it keeps it until it is acknowledged.
type telling struct {
	facts []nodefact.Fact
	next  int64
	acked int64
}

// newBook is the book of an operator that starts: it acknowledges to the nodes. The lock is held, or not needed yet.
func (c *Cluster) newBook() *cluster.FactBook {
	book := cluster.NewFactBook()
	book.OnWrittenDown(func(node ident.NodeID, incarnation ident.UUID, upTo int64) {
		c.mu.Lock()
		defer c.mu.Unlock()
		t := c.tellings[node]
		if t == nil || incarnation != c.incarnation(node) || c.deaf {
			return
		}
		t.acked = upTo
		ended := func(install ident.UUID) bool {
			return slices.ContainsFunc(t.facts, func(f nodefact.Fact) bool {
				return f.Install == install && f.Kind == nodefact.SnapshotInstalled && f.Seq <= upTo
			})
		}
		t.facts = slices.DeleteFunc(slices.Clone(t.facts), func(f nodefact.Fact) bool { return ended(f.Install) })
	})
	return book
}

// Tell lets a node tell facts of itself, which it keeps until they are acknowledged.
func (c *Cluster) Tell(node ident.NodeID, facts ...nodefact.Fact) {
	c.mu.Lock()
	t := c.tellings[node]
	if t == nil {
		t = &telling{}
		c.tellings[node] = t
	}
	for _, f := range facts {
		t.next++
		f.Seq, f.Index, f.Replica = t.next, -1, node
		t.facts = append(t.facts, f)
		c.facts.Add(node, c.incarnation(node), f)
	}
	c.mu.Unlock()
	c.tell(nil, false)
}

// Acknowledged is the number up to which a node's facts were acknowledged in its incarnation.
func (c *Cluster) Acknowledged(node ident.NodeID) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.tellings[node]; t != nil {
		return t.acked
	}
	return 0
}

// Deafen has acknowledgements not reach the nodes, or reach them again.
func (c *Cluster) Deafen(deaf bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf = deaf
}

// StartOperator is what a start of the operator does: it knows nothing at first, then it reads the metadata, and then
// what the nodes have to tell, one after the other.
func (c *Cluster) StartOperator() {
	c.mu.Lock()
	now := c.state
	c.state = cluster.State{Leader: ident.NoNode, Epoch: ident.UnknownEpoch}
	c.facts = c.newBook()
	c.mu.Unlock()
	c.tell(nil, true)
	c.Follow(now.Leader, now.Epoch)
	c.mu.Lock()
	var all []nodefact.Fact
	for _, t := range c.tellings {
		all = append(all, t.facts...)
	}
	c.mu.Unlock()
	for _, f := range all {
		c.mu.Lock()
		c.facts.Add(f.Replica, c.incarnation(f.Replica), f)
		c.mu.Unlock()
		c.tell(nil, false)
	}
}
