package cluster_test

import (
	"net"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"

	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/pkg/ident"
)

// closedAddress is one where nobody listens.
func closedAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return listener.Addr().String()
}

func TestConnectionToNobodySaysWhomItTriedAndEndsWithoutATrace(t *testing.T) {
	defer goleak.VerifyNone(t)
	changed := make(chan struct{}, 1)
	voter := closedAddress(t)
	open := cluster.OpenLive(nil, logr.Discard())
	connection := open(cluster.Target{
		ReplicaSet: logs, ClusterID: ident.UUID{1}, Voters: map[ident.NodeID]string{1000: voter}, Facts: map[ident.NodeID]string{0: closedAddress(t)},
	}, func(cluster.Change) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	defer connection.Close()
	if state := connection.State(); state.Reach != cluster.Starting || state.Image != nil {
		t.Errorf("before anybody was asked: %+v", state)
	}
	deadline := time.After(testscale.Duration(10 * time.Second))
	for connection.State().Reach != cluster.Disconnected {
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("still %s", connection.State().Reach)
		}
	}
	if tried := connection.State().Tried; len(tried) != 1 || tried[0] != voter {
		t.Errorf("tried %v, want %s", tried, voter)
	}
	// Nodes that moved are asked where they are now.
	moved := closedAddress(t)
	connection.Retarget(cluster.Target{
		ReplicaSet: logs, ClusterID: ident.UUID{1}, Voters: map[ident.NodeID]string{1000: moved}, Facts: map[ident.NodeID]string{0: closedAddress(t), 1: closedAddress(t)},
	})
	for tried := connection.State().Tried; len(tried) != 1 || tried[0] != moved; tried = connection.State().Tried {
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("tried %v, want %s", tried, moved)
		}
	}
	if err := connection.Admin().DeleteTopic(t.Context(), ident.UUID{2}); err == nil {
		t.Error("a request without a leader was taken for done")
	}
}
