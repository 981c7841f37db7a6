package fault

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/highwater-io/highwater/internal/localkube/ports"
)

// Table holds all proxies of a cluster and the rules for them. Participants are names; a pod's is its own.
type Table struct {
	host string

	mu      sync.Mutex
	rules   map[Direction]Rule
	changed chan struct{}
	targets map[string]map[string]string // participant -> listener -> address, while it runs
	proxies map[Direction]*proxy         // From opens connections to To's Listener
	passed  map[Direction]time.Time      // when something was last let through
	closed  bool
}

// NewTable makes a table whose proxies listen on host, an IP address.
func NewTable(host string) *Table {
	return &Table{
		host: host, rules: map[Direction]Rule{}, changed: make(chan struct{}),
		targets: map[string]map[string]string{}, proxies: map[Direction]*proxy{}, passed: map[Direction]time.Time{},
	}
}

// LastPassed is when a proxy last let something through in a direction, just before the receiver's socket got it; the
// zero time when it never did. Wildcards match nothing.
func (t *Table) LastPassed(from, to, listener string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.passed[normal(from, to, listener)]
}

func (t *Table) notePassed(d Direction) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.After(t.passed[d]) {
		t.passed[d] = now
	}
}

// SetTargets says at which addresses a participant's listeners are reached; nil says that it does not run.
// Proxies refuse connections while their target does not run, as its own address would.
func (t *Table) SetTargets(name string, listeners map[string]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if listeners == nil {
		delete(t.targets, name)
	} else {
		upper := make(map[string]string, len(listeners))
		for listener, addr := range listeners {
			upper[strings.ToUpper(listener)] = addr
		}
		t.targets[name] = upper
	}
	for link, p := range t.proxies {
		if link.To == name {
			t.listen(p)
		}
	}
}

// Address returns the address at which from reaches a listener of to, and starts the proxy when there is none.
func (t *Table) Address(from, to, listener string) (string, error) {
	link := normal(from, to, listener)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return "", net.ErrClosed
	}
	p := t.proxies[link]
	if p == nil {
		p = &proxy{table: t, link: link, conns: map[net.Conn]struct{}{}}
		if err := t.bind(p); err != nil {
			return "", err
		}
		t.proxies[link] = p
		t.listen(p)
	}
	return p.addr, nil
}

// Remove ends all proxies from and to a participant. The rules that name it stay, for its successor.
func (t *Table) Remove(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.targets, name)
	for link, p := range t.proxies {
		if link.From == name || link.To == name {
			delete(t.proxies, link)
			p.close()
		}
	}
}

// Close ends all proxies and their connections.
func (t *Table) Close() {
	t.mu.Lock()
	t.closed = true
	proxies := t.proxies
	t.proxies = map[Direction]*proxy{}
	for _, p := range proxies {
		p.close()
	}
	t.mu.Unlock()
	for _, p := range proxies {
		p.wg.Wait()
	}
}

// target is where a link's connections are dialled; nowhere while its participant does not run.
func (t *Table) target(link Direction) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	addr, ok := t.targets[link.To][link.Listener]
	for pattern, rule := range t.rules {
		if ok && rule.Via != "" && pattern.covers(link) {
			addr = rule.Via
		}
	}
	return addr, ok
}

// bind finds a port for a proxy. The caller holds the lock.
func (t *Table) bind(p *proxy) error {
	for range 200 {
		addr := net.JoinHostPort(t.host, strconv.Itoa(ports.Proxies.Draw()))
		if t.taken(addr) {
			continue
		}
		l, err := net.Listen("tcp", addr)
		if err == nil {
			p.addr, p.listener = addr, l
			return nil
		}
	}
	return fmt.Errorf("no free port on %s for the proxy from %s to %s %s", t.host, p.link.From, p.link.To, p.link.Listener)
}

// taken tells whether a proxy, perhaps one that does not listen now, has the address.
func (t *Table) taken(addr string) bool {
	for _, p := range t.proxies {
		if p.addr == addr {
			return true
		}
	}
	return false
}

// listen opens or closes a proxy's listener by whether its target runs. The caller holds the lock.
func (t *Table) listen(p *proxy) {
	_, up := t.targets[p.link.To][p.link.Listener]
	switch {
	case !up && p.listener != nil:
		p.listener.Close()
		p.listener, p.accepting = nil, false
	case up && p.listener == nil:
		l, err := net.Listen("tcp", p.addr)
		if err != nil {
			return // taken by a stranger: refused until the participant's next start
		}
		p.listener = l
	}
	if p.listener != nil && !p.accepting {
		p.accepting = true
		p.wg.Add(1)
		go p.accept(p.listener)
	}
}
