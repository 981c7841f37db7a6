// Package ports divides the ports of one address among the parts of a local cluster. A pod's port is given out before
// the pod listens, and stays the pod's while its process is down, so nobody else may draw from the same range.
package ports

import "math/rand/v2"

// Range is a range of ports, First to Last, both included. All are below those that the system takes for outgoing
// connections (32768 and up on Linux), so that none is lost between a check and the server's own bind.
type Range struct{ First, Last int }

// Who draws from where.
var (
	Pods         = Range{20000, 23999}
	Proxies      = Range{24000, 29999}
	ControlPlane = Range{30000, 31999}
)

// Draw returns a port of the range at random.
func (r Range) Draw() int { return r.First + rand.IntN(r.Last-r.First+1) }
