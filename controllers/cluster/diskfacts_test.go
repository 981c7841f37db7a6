package cluster_test

import (
	"testing"

	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

// registered is the metadata of a cluster in which node 1 is registered in an incarnation.
func registered(t *testing.T, incarnation byte, fenced bool) *metadata.Image {
	t.Helper()
	record := &metadata.RegisterBrokerRecord{BrokerID: 1, BrokerEpoch: 5, IncarnationID: ident.UUID{incarnation}, LogDirs: []ident.UUID{{9}}, Fenced: fenced}
	metadata.Pinned.Stamp(record)
	delta := metadata.NewDelta(metadata.Empty())
	if err := delta.Replay(record); err != nil {
		t.Fatal(err)
	}
	return delta.Image(5, 1)
}

func TestADirectoryIsOfflineUntilItsNodeServesInAnotherIncarnation(t *testing.T) {
	offline := nodefact.Fact{Kind: nodefact.LogDirOffline, Index: -1, Replica: 1, Reason: nodefact.DiskFull}
	tell := func(book *cluster.FactBook, incarnation byte) {
		if !book.Add(1, ident.UUID{incarnation}, offline) {
			t.Fatal("the fact was not taken")
		}
	}
	for name, c := range map[string]struct {
		told   func(*cluster.FactBook)
		image  *metadata.Image
		wanted bool
	}{
		"told before the node is fenced":            {func(b *cluster.FactBook) { tell(b, 2) }, registered(t, 2, false), true},
		"told, and fenced":                          {func(b *cluster.FactBook) { tell(b, 2) }, registered(t, 2, true), true},
		"told by one that has not registered yet":   {func(b *cluster.FactBook) { tell(b, 3) }, registered(t, 2, true), true},
		"told by one that never registered":         {func(b *cluster.FactBook) { tell(b, 3) }, metadata.Empty(), true},
		"the node serves in the next incarnation":   {func(b *cluster.FactBook) { tell(b, 2) }, registered(t, 3, false), false},
		"the node answers in the next incarnation":  {func(b *cluster.FactBook) { tell(b, 2); b.Began(1, ident.UUID{3}) }, registered(t, 2, true), false},
		"the connection was made anew, to the same": {func(b *cluster.FactBook) { tell(b, 2); b.Began(1, ident.UUID{2}) }, registered(t, 2, true), true},
		"another node's":                            {func(b *cluster.FactBook) { b.Add(0, ident.UUID{2}, offline) }, registered(t, 2, true), false},
		"the metadata is not known":                 {func(b *cluster.FactBook) { tell(b, 2) }, nil, true},
	} {
		book := cluster.NewFactBook()
		c.told(book)
		if fact, is := book.LogDirOffline(c.image, 1); is != c.wanted || is && fact.Reason != nodefact.DiskFull {
			t.Errorf("%s: offline %v %+v, want %v", name, is, fact, c.wanted)
		}
	}
}

func TestDamageIsKnownUntilTheReplicaIsRefilled(t *testing.T) {
	book := cluster.NewFactBook()
	at := ident.TopicPartition{Topic: topic, Index: 1}
	tell := func(kind string, from, to ident.Offset) {
		if !book.Add(2, ident.UUID{1}, nodefact.Fact{Kind: kind, TopicID: topic, Index: 1, From: from, To: to}) {
			t.Fatalf("a %s was not taken", kind)
		}
	}
	tell(nodefact.ReplicaDamaged, 300, 480)
	tell(nodefact.ReplicaDamaged, 120, 150)
	if fact, is := book.Damage(at, 2); !is || fact.From != 120 || fact.To != 480 {
		t.Errorf("%+v %v, want all that is damaged", fact, is)
	}
	if _, is := book.Damage(at, 1); is {
		t.Error("another node's replica is damaged")
	}
	tell(nodefact.ReplicaRefilled, 120, 480)
	if _, is := book.Damage(at, 2); is {
		t.Error("damaged after it was refilled")
	}
	tell(nodefact.ReplicaDamaged, 500, 510)
	book.Began(1, ident.UUID{2})
	if fact, is := book.Damage(at, 2); !is || fact.From != 500 {
		t.Errorf("%+v %v, want the new damage alone", fact, is)
	}
	book.Began(2, ident.UUID{2})
	if _, is := book.Damage(at, 2); is {
		t.Error("damaged by the word of a node that has started since")
	}
}

func TestDamageIsKeptWithABound(t *testing.T) {
	book := cluster.NewFactBook()
	for index := range int32(10_000) {
		book.Add(2, ident.UUID{1}, nodefact.Fact{Kind: nodefact.ReplicaDamaged, TopicID: topic, Index: index})
	}
	if book.Add(2, ident.UUID{1}, nodefact.Fact{Kind: nodefact.ReplicaDamaged, TopicID: topic, Index: 10_000}) {
		t.Error("one more than the bound was taken")
	}
}
