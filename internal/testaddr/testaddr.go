// Package testaddr finds addresses for the servers of tests.
package testaddr

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Free is where nobody listens. It is on a loopback address of its own where there are such: on 127.0.0.1 any
// program's outgoing connection may take the port before the server does, or while it is down.
func Free(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)))
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
