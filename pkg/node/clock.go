package node

import (
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
)

// clock gives the cores their time: monotonic, from the start of the process.
type clock struct{ start time.Time }

func newClock() clock { return clock{start: time.Now()} }

func (c clock) now() ident.Instant { return ident.Instant(time.Since(c.start)) }

// until is how long a timer has to wait for an instant; it has passed when that is not positive.
func (c clock) until(t ident.Instant) time.Duration {
	if t == ident.Never {
		return 1<<63 - 1
	}
	return t.Sub(c.now())
}

// wall turns an instant into a calendar time, for people and for protocol fields in milliseconds since 1970.
func (c clock) wall(t ident.Instant) time.Time { return c.start.Add(time.Duration(t)) }
