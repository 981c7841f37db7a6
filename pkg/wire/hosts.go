package wire

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
)

// HostTable maps addresses where no DNS does: the file that --hosts-file names, which only the local runtime
// writes. It is read again when it changed. Lines, with # for comments:
//
//	<name>[:<port>] <addr>[:<port>]   dial this instead (with a port on the left, only for that port)
//	listen <LISTENER> <addr:port>     bind here instead of where the flag says
//	advertise <LISTENER> <addr:port>  answer this to whoever asks for the listener's address
//
// A nil *HostTable maps nothing.
type HostTable struct {
	path string

	mu      sync.Mutex
	read    os.FileInfo // of the file as it was read
	entries hostEntries
	err     error
}

type hostEntries struct {
	dial              map[string]string
	listen, advertise map[Listener]string
}

// OpenHostTable reads the file at path; an empty path gives a nil table. The error names the line that is
// wrong.
func OpenHostTable(path string) (*HostTable, error) {
	if path == "" {
		return nil, nil
	}
	t := &HostTable{path: path}
	t.refresh()
	if t.err != nil {
		return nil, t.err
	}
	return t, nil
}

// Dial returns the address to connect to for addr (host:port).
func (t *HostTable) Dial(addr string) string {
	if t == nil {
		return addr
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refresh()
	to, ok := t.entries.dial[addr]
	if !ok {
		if to, ok = t.entries.dial[host]; !ok {
			return addr
		}
	}
	if _, _, err := net.SplitHostPort(to); err == nil {
		return to
	}
	return net.JoinHostPort(strings.Trim(to, "[]"), port)
}

// Listen returns where to bind l instead of the flag's address.
func (t *HostTable) Listen(l Listener) (string, bool) {
	return t.lookup(l, func(e *hostEntries) map[Listener]string { return e.listen })
}

// Advertise returns what to answer for l instead of the flag's address.
func (t *HostTable) Advertise(l Listener) (string, bool) {
	return t.lookup(l, func(e *hostEntries) map[Listener]string { return e.advertise })
}

// Err returns why the file couldn't be read when it last changed; the entries before that go on to count.
func (t *HostTable) Err() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

func (t *HostTable) lookup(l Listener, of func(*hostEntries) map[Listener]string) (string, bool) {
	if t == nil {
		return "", false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refresh()
	addr, ok := of(&t.entries)[l]
	return addr, ok
}

func (t *HostTable) refresh() {
	info, err := os.Stat(t.path)
	if err != nil {
		t.err = fmt.Errorf("hosts file: %w", err)
		return
	}
	if r := t.read; r != nil && t.err == nil && os.SameFile(r, info) && r.Size() == info.Size() && r.ModTime().Equal(info.ModTime()) {
		return
	}
	text, err := os.ReadFile(t.path)
	if err != nil {
		t.err = fmt.Errorf("hosts file: %w", err)
		return
	}
	entries, err := parseHosts(string(text))
	if err != nil {
		t.err = fmt.Errorf("hosts file %s: %w", t.path, err)
		return
	}
	t.read, t.entries, t.err = info, entries, nil
}

func parseHosts(text string) (hostEntries, error) {
	e := hostEntries{dial: map[string]string{}, listen: map[Listener]string{}, advertise: map[Listener]string{}}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case len(fields) == 2:
			e.dial[fields[0]] = fields[1]
		case len(fields) == 3 && (fields[0] == "listen" || fields[0] == "advertise"):
			l := Listener(fields[1])
			if TableFor(l) == nil && l != HTTP {
				return hostEntries{}, fmt.Errorf("line %d: %q is no listener, want %s, %s, %s or %s", number, fields[1], Controller, Internal, External, HTTP)
			}
			if _, _, err := net.SplitHostPort(fields[2]); err != nil {
				return hostEntries{}, fmt.Errorf("line %d: %w", number, err)
			}
			if fields[0] == "listen" {
				e.listen[l] = fields[2]
			} else {
				e.advertise[l] = fields[2]
			}
		default:
			return hostEntries{}, fmt.Errorf("line %d: want \"name address\", \"listen LISTENER address\" or \"advertise LISTENER address\"", number)
		}
	}
	return e, nil
}
