package wire

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/highwater-io/highwater/pkg/buffer"
)

func TestMain(m *testing.M) {
	buffer.Poison() // whoever uses a request's or an answer's bytes after their release finds others
	goleak.VerifyTestMain(m)
}
