package node

import (
	"net/http"
	"testing"

	"go.uber.org/goleak"

	"github.com/highwater-io/highwater/pkg/buffer"
)

// TestMain fails when a stopped node leaves a goroutine behind.
func TestMain(m *testing.M) {
	buffer.Poison() // whoever uses a request's or an answer's bytes after their release finds others
	// A test that asks a node over HTTP leaves no idle connection, whose goroutines may outlive it.
	http.DefaultTransport.(*http.Transport).DisableKeepAlives = true
	goleak.VerifyTestMain(m)
}
