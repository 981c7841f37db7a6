package node

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/highwater-io/highwater/pkg/buffer"
)

// TestMain fails when a stopped node leaves a goroutine behind.
func TestMain(m *testing.M) {
	buffer.Poison() // whoever uses a request's or an answer's bytes after their release finds others
	goleak.VerifyTestMain(m)
}
