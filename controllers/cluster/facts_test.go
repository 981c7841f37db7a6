package cluster_test

import (
	"testing"

	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

var topic = ident.UUID{0: 7}

func fact(replica ident.NodeID, epoch int32, reason string) nodefact.Fact {
	return nodefact.Fact{Kind: "ISRChange", TopicID: topic, Index: 1, Replica: replica, PartitionEpoch: epoch, Reason: reason, LagOffsets: int64(epoch)}
}

func TestFactBookFindsTheReasonOfTheNewestChange(t *testing.T) {
	const lag, back = cluster.ReasonLagTimeExceeded, "CaughtUp"
	for name, c := range map[string]struct {
		facts        []nodefact.Fact
		after, until int32
		want         int32 // epoch of the fact, 0 for none
	}{
		"none":                     {nil, 0, 10, 0},
		"the one":                  {[]nodefact.Fact{fact(2, 5, lag)}, 4, 5, 5},
		"of another replica":       {[]nodefact.Fact{fact(1, 5, lag)}, 4, 5, 0},
		"known before":             {[]nodefact.Fact{fact(2, 5, lag)}, 5, 9, 0},
		"not committed yet":        {[]nodefact.Fact{fact(2, 6, lag)}, 4, 5, 0},
		"newest of two":            {[]nodefact.Fact{fact(2, 5, lag), fact(2, 6, back), fact(2, 7, lag)}, 4, 9, 7},
		"out of order":             {[]nodefact.Fact{fact(2, 7, lag), fact(2, 6, back)}, 4, 9, 7},
		"came back, left unspoken": {[]nodefact.Fact{fact(2, 5, lag), fact(2, 6, back)}, 4, 9, 0},
	} {
		t.Run(name, func(t *testing.T) {
			book := cluster.NewFactBook()
			for _, f := range c.facts {
				if !book.Add(0, ident.UUID{}, f) {
					t.Fatalf("%+v was not taken", f)
				}
			}
			got, found := book.Shrink(ident.TopicPartition{Topic: topic, Index: 1}, 2, c.after, c.until)
			if found != (c.want != 0) || found && got.PartitionEpoch != c.want {
				t.Errorf("got %+v, %v, want the fact of epoch %d", got, found, c.want)
			}
		})
	}
}

func TestFactBookTakesOnlyChangesOfTheISR(t *testing.T) {
	book := cluster.NewFactBook()
	for _, kind := range []string{"ReplicaReset", "LogRecovered", "ISRChangeRefused"} {
		f := fact(2, 5, cluster.ReasonLagTimeExceeded)
		f.Kind = kind
		if book.Add(0, ident.UUID{}, f) {
			t.Errorf("a %s was taken", kind)
		}
	}
}

func TestFactBookIsBounded(t *testing.T) {
	book := cluster.NewFactBook()
	first := ident.TopicPartition{Topic: topic, Index: 1}
	for epoch := range int32(1000) {
		book.Add(0, ident.UUID{}, fact(2, epoch+1, cluster.ReasonLagTimeExceeded))
	}
	if _, found := book.Shrink(first, 2, 0, 900); found {
		t.Error("facts of one partition are kept without bound")
	}
	if _, found := book.Shrink(first, 2, 0, 1000); !found {
		t.Error("the newest fact was dropped")
	}
	for index := range int32(10_001) {
		f := fact(2, 1, cluster.ReasonLagTimeExceeded)
		f.Index = index + 2
		book.Add(0, ident.UUID{}, f)
	}
	if _, found := book.Shrink(first, 2, 0, 1000); found {
		t.Error("partitions are kept without bound")
	}
}
