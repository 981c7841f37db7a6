package kubelet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"github.com/highwater-io/highwater/internal/localkube/ports"
)

// AddressMode says how pods get addresses of this machine.
type AddressMode string

const (
	// AddressAuto is own addresses where they can be bound, else the shared one.
	AddressAuto AddressMode = ""
	// AddressOwn gives each pod an address 127.x.y.z of its own, on which its containers' ports are as declared.
	AddressOwn AddressMode = "own"
	// AddressShared gives all pods 127.0.0.1 and maps each declared port to a free one.
	AddressShared AddressMode = "shared"
)

// kubeletPort is the kubelet's port on a Node's address, as on real Nodes.
const kubeletPort = 10250

// Network hands out addresses of loopback. Each cluster has a 127.x.y.0/24 of its own, so that clusters of several
// users and tests don't meet; the kubelet's listener on 127.x.y.1 is what claims it.
type Network struct {
	mode     AddressMode
	prefix   string // "127.x.y."
	listener net.Listener

	mu    sync.Mutex
	last  int // last octet given out
	used  map[string]bool
	ports map[int]bool
}

// NewNetwork claims a network for a cluster.
func NewNetwork(mode AddressMode) (*Network, error) {
	n := &Network{mode: mode, used: map[string]bool{}, ports: map[int]bool{}, last: 9}
	switch mode {
	case AddressAuto, AddressOwn, AddressShared:
	default:
		return nil, fmt.Errorf("unknown address mode %q: use %s or %s", mode, AddressOwn, AddressShared)
	}
	var err error
	if mode != AddressShared {
		for range 100 {
			// 127.0.y.z is left to others: local resolvers live there.
			n.prefix = fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), rand.IntN(256))
			if n.listener, err = net.Listen("tcp", net.JoinHostPort(n.Host(), strconv.Itoa(kubeletPort))); err == nil {
				n.mode = AddressOwn
				return n, nil
			}
			if !errors.Is(err, syscall.EADDRINUSE) {
				break
			}
		}
		if mode == AddressOwn {
			return nil, fmt.Errorf("bind an address of 127.0.0.0/8: %w (on macOS such addresses need an alias of lo0 each; use address mode %s)", err, AddressShared)
		}
	}
	n.mode, n.prefix = AddressShared, ""
	if n.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("listen for the API server's log requests: %w", err)
	}
	return n, nil
}

// Mode is AddressOwn or AddressShared.
func (n *Network) Mode() AddressMode { return n.mode }

// Host is the address of the Nodes and of the fault proxies.
func (n *Network) Host() string {
	if n.mode == AddressShared {
		return "127.0.0.1"
	}
	return n.prefix + "1"
}

// Close frees the network.
func (n *Network) Close() { n.listener.Close() }

// podAddress is where one pod is.
type podAddress struct {
	ip    string
	ports map[int32]int // declared port -> port to bind; nil when they are the same
}

// at returns the address of one of the pod's ports.
func (a podAddress) at(port int32) string {
	actual := int(port)
	if mapped, ok := a.ports[port]; ok {
		actual = mapped
	}
	return net.JoinHostPort(a.ip, strconv.Itoa(actual))
}

// allocate gives a pod an address. One that was freed comes back as late as possible, since a pod's peers may still
// hold what they knew of it.
func (n *Network) allocate(pod *corev1.Pod) (podAddress, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mode == AddressShared {
		a := podAddress{ip: n.Host(), ports: map[int32]int{}}
		for _, c := range pod.Spec.Containers {
			for _, p := range c.Ports {
				port, err := n.freePort()
				if err != nil {
					n.freeLocked(a)
					return podAddress{}, err
				}
				a.ports[p.ContainerPort] = port
			}
		}
		return a, nil
	}
	for range 244 {
		n.last++
		if n.last > 254 {
			n.last = 10
		}
		ip := n.prefix + strconv.Itoa(n.last)
		if !n.used[ip] {
			n.used[ip] = true
			return podAddress{ip: ip}, nil
		}
	}
	return podAddress{}, errors.New("no free pod address: a local cluster has 245")
}

func (n *Network) freePort() (int, error) {
	for range 200 {
		port := ports.Pods.Draw()
		if n.ports[port] {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(n.Host(), strconv.Itoa(port)))
		if err != nil {
			continue
		}
		l.Close()
		n.ports[port] = true
		return port, nil
	}
	return 0, fmt.Errorf("no free port on %s between %d and %d", n.Host(), ports.Pods.First, ports.Pods.Last)
}

func (n *Network) free(a podAddress) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.freeLocked(a)
}

func (n *Network) freeLocked(a podAddress) {
	delete(n.used, a.ip)
	for _, port := range a.ports {
		delete(n.ports, port)
	}
}
