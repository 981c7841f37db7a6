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
	none := metadata.Empty()
	for name, c := range map[string]struct {
		told   byte              // the incarnation that tells it
		images []*metadata.Image // as they follow each other; a nil one is not known
		wanted []bool            // after each
	}{
		"told before the node is fenced":           {2, []*metadata.Image{registered(t, 2, false), registered(t, 2, true)}, []bool{true, true}},
		"the metadata is not known yet":            {2, []*metadata.Image{nil, registered(t, 2, true)}, []bool{true, true}},
		"told by one that never registers":         {2, []*metadata.Image{none, none}, []bool{true, true}},
		"told while the earlier one has a session": {3, []*metadata.Image{registered(t, 2, false), registered(t, 2, true)}, []bool{true, true}},
		"it registers without its directory":       {3, []*metadata.Image{registered(t, 2, true), registered(t, 3, true)}, []bool{true, true}},
		"the next one serves":                      {2, []*metadata.Image{registered(t, 2, true), registered(t, 3, true), registered(t, 3, false)}, []bool{true, true, false}},
		"the next one serves, and is fenced":       {2, []*metadata.Image{registered(t, 2, true), registered(t, 3, false), registered(t, 3, true)}, []bool{true, false, false}},
		"the next one is the first to register":    {2, []*metadata.Image{none, registered(t, 3, false)}, []bool{true, false}},
	} {
		book := cluster.NewFactBook()
		for i, image := range c.images {
			if i == 0 || c.wanted[i] {
				tell(book, c.told) // a connection that is made anew reads it again
			}
			if fact, is := book.LogDirOffline(image, 1); is != c.wanted[i] || is && fact.Reason != nodefact.DiskFull {
				t.Errorf("%s: after step %d offline is %v %+v, want %v", name, i, is, fact, c.wanted[i])
			}
		}
	}
	book := cluster.NewFactBook()
	tell(book, 2)
	if _, is := book.LogDirOffline(none, 0); is {
		t.Error("another node's directory is offline")
	}
	book.Began(1, ident.UUID{2})
	if _, is := book.LogDirOffline(registered(t, 2, true), 1); !is {
		t.Error("a connection that was made anew took it back")
	}
	book.Began(1, ident.UUID{3})
	if _, is := book.LogDirOffline(registered(t, 2, true), 1); is {
		t.Error("the node answers in the next incarnation and has not told it")
	}
}

func TestFullDirectoryThatIsBrokenBesidesIsToldOfAsBroken(t *testing.T) {
	book := cluster.NewFactBook()
	for _, reason := range []string{nodefact.DiskFull, nodefact.IOError} {
		book.Add(1, ident.UUID{2}, nodefact.Fact{Kind: nodefact.LogDirOffline, Index: -1, Replica: 1, Reason: reason})
		if fact, is := book.LogDirOffline(registered(t, 1, true), 1); !is || fact.Reason != reason {
			t.Errorf("%+v %v, want %s", fact, is, reason)
		}
	}
	if _, is := book.LogDirOffline(registered(t, 3, false), 1); is {
		t.Error("the node serves in a later incarnation")
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
