package node

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a stopped node leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
