package sim

import (
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Faults says how a network treats messages that no cut stops. The chances are per thousand messages.
type Faults struct {
	// DelayMin and DelayMax bound the time a message is under way.
	DelayMin, DelayMax time.Duration
	// Loss drops a message.
	Loss int
	// Duplicate delivers a message a second time, later.
	Duplicate int
	// Reorder lets a message be late by up to ten times DelayMax, and lets later ones overtake it. Without
	// it each link keeps the order, as a TCP connection does.
	Reorder int
}

// Calm is a network without faults: messages arrive once, in order, within a millisecond.
var Calm = Faults{DelayMin: 50 * time.Microsecond, DelayMax: time.Millisecond}

// Network carries closures between nodes. A link is one way: each direction has its own cut, delay and order.
type Network struct {
	// Faults holds for every message sent from now on.
	Faults Faults

	world *World
	dice  Dice
	cuts  map[link]bool
	slow  map[link]time.Duration
	last  map[link]ident.Instant

	sent, dropped int
}

// networkStream and what follows it are the dice of a world's networks.
const networkStream = 100

type link struct{ from, to ident.NodeID }

// NewNetwork returns a network in w with the given faults and no cuts.
func NewNetwork(w *World, faults Faults) *Network {
	w.networks++
	return &Network{
		Faults: faults,
		world:  w,
		dice:   NewDice(w.seed, networkStream+w.networks),
		cuts:   map[link]bool{},
		slow:   map[link]time.Duration{},
		last:   map[link]ident.Instant{},
	}
}

// Send has deliver happen later, once, twice or never. The receiver being down or reborn is for deliver to
// see. What is under way when the link is cut is lost.
func (n *Network) Send(from, to ident.NodeID, deliver func()) {
	n.sent++
	l := link{from, to}
	if n.cuts[l] || n.dice.Chance(n.Faults.Loss) {
		n.dropped++
		return
	}
	n.deliver(l, deliver)
	if n.dice.Chance(n.Faults.Duplicate) {
		n.deliver(l, deliver)
	}
}

func (n *Network) deliver(l link, deliver func()) {
	at := n.world.Now().Add(n.slow[l]).Add(n.dice.Between(n.Faults.DelayMin, n.Faults.DelayMax))
	if n.dice.Chance(n.Faults.Reorder) {
		at = at.Add(n.dice.Between(0, 10*n.Faults.DelayMax))
	} else {
		at = max(at, n.last[l])
		n.last[l] = at
	}
	n.world.At(at, func() {
		if n.cuts[l] {
			n.dropped++
			return
		}
		deliver()
	})
}

// Cut stops all messages from one node to another; the other way stays as it is.
func (n *Network) Cut(from, to ident.NodeID) { n.cuts[link{from, to}] = true }

// CutBoth stops all messages between two nodes.
func (n *Network) CutBoth(a, b ident.NodeID) {
	n.Cut(a, b)
	n.Cut(b, a)
}

// Separate stops all messages between the nodes of one group and those of the other.
func (n *Network) Separate(group, others []ident.NodeID) {
	for _, a := range group {
		for _, b := range others {
			if a != b {
				n.CutBoth(a, b)
			}
		}
	}
}

// IsCut says whether messages from one node to another are stopped.
func (n *Network) IsCut(from, to ident.NodeID) bool { return n.cuts[link{from, to}] }

// Slow delays what one node sends to another by d more; 0 takes it back.
func (n *Network) Slow(from, to ident.NodeID, d time.Duration) { n.slow[link{from, to}] = d }

// Mend takes back a cut of one direction.
func (n *Network) Mend(from, to ident.NodeID) { delete(n.cuts, link{from, to}) }

// Heal takes back all cuts and delays of links; Faults stay.
func (n *Network) Heal() {
	clear(n.cuts)
	clear(n.slow)
}

// Counts returns how many messages were sent, and how many of them (copies counted) were lost.
func (n *Network) Counts() (sent, dropped int) { return n.sent, n.dropped }
