package fault

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Any stands for every participant or every listener in a rule.
const Any = "*"

// Direction is one way of one link: the packets that From sends To over connections to a listener of that name,
// whichever of the two opened the connection.
type Direction struct {
	From     string `json:"from"`
	To       string `json:"to"`
	Listener string `json:"listener"`
}

func (d Direction) reversed() Direction {
	return Direction{From: d.To, To: d.From, Listener: d.Listener}
}

// covers tells whether every direction that other matches is matched by d too.
func (d Direction) covers(other Direction) bool {
	return (d.From == Any || d.From == other.From) && (d.To == Any || d.To == other.To) &&
		(d.Listener == Any || d.Listener == other.Listener)
}

// Rule is what happens to a direction's packets: they wait until the link is healed, or for a time; or, for the
// connections that From opens to To's Listener, who carries them there.
type Rule struct {
	Direction
	Cut   bool          `json:"cut,omitempty"`
	Delay time.Duration `json:"delay,omitempty"`
	Via   string        `json:"via,omitempty"`
}

func normal(from, to, listener string) Direction {
	return Direction{From: from, To: to, Listener: strings.ToUpper(listener)}
}

// Cut holds back everything that from sends to over the listener, and unless oneWay everything that to sends from.
// As with a broken wire nobody is told: connections stay open and no new one gets an answer. Cutting twice is
// cutting once.
func (t *Table) Cut(from, to, listener string, oneWay bool) {
	t.change(normal(from, to, listener), oneWay, func(r *Rule) { r.Cut = true })
}

// Delay lets everything arrive d later. Zero takes a delay away.
func (t *Table) Delay(from, to, listener string, d time.Duration, oneWay bool) {
	t.change(normal(from, to, listener), oneWay, func(r *Rule) { r.Delay = max(0, d) })
}

// Via has the connections that from opens to the listener of to dial another address, where somebody listens who knows
// what to do to them; an empty one takes that back. Connections that stand are reset, so that none keeps its old way.
func (t *Table) Via(from, to, listener, address string) {
	d := normal(from, to, listener)
	t.change(d, true, func(r *Rule) { r.Via = address })
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reroute(d)
}

// Heal drops all rules for directions that the arguments cover; what was held back arrives now.
func (t *Table) Heal(from, to, listener string, oneWay bool) {
	d := normal(from, to, listener)
	t.mu.Lock()
	defer t.mu.Unlock()
	for have, rule := range t.rules {
		if d.covers(have) || !oneWay && d.reversed().covers(have) {
			delete(t.rules, have)
			if rule.Via != "" {
				t.reroute(have)
			}
		}
	}
	t.wake()
}

// reroute resets the connections of all links that a pattern covers. The caller holds the lock.
func (t *Table) reroute(d Direction) {
	for link, p := range t.proxies {
		if d.covers(link) {
			p.resetAll()
		}
	}
}

func (t *Table) change(d Direction, oneWay bool, f func(*Rule)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ways := []Direction{d}
	if !oneWay {
		ways = append(ways, d.reversed())
	}
	for _, way := range ways {
		rule := t.rules[way]
		rule.Direction = way
		f(&rule)
		if rule.Cut || rule.Delay > 0 || rule.Via != "" {
			t.rules[way] = rule
		} else {
			delete(t.rules, way)
		}
	}
	t.wake()
}

// Rules returns all rules, sorted.
func (t *Table) Rules() []Rule {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]Rule, 0, len(t.rules))
	for _, r := range t.rules {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Listener, b.Listener))
	})
	return out
}

// state returns what holds for a direction now, and a channel that is closed when that may have changed.
func (t *Table) state(d Direction) (cut bool, delay time.Duration, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for pattern, rule := range t.rules {
		if pattern.covers(d) {
			cut = cut || rule.Cut
			delay = max(delay, rule.Delay)
		}
	}
	return cut, delay, t.changed
}

// wake tells all who wait that the rules have changed. The caller holds the lock.
func (t *Table) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}
