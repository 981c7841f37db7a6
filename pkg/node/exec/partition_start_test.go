package exec

import (
	"errors"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/replication"
)

func TestDeletionIsToldOnceItsStartIsFlushed(t *testing.T) {
	r := newRig(t, 1, false)
	r.cfg.FlushApart = true
	r.open()
	r.ApplyMetadata(r.now, replication.MetadataChanged{Leader: 1, LeaderEpoch: 3, PartitionEpoch: 3, Replicas: []ident.NodeID{1}, ISR: []ident.NodeID{1}, MinISR: 1})
	r.drain()
	for _, v := range []string{"a", "b", "c"} {
		r.produce(1, records(v).Build())
	}
	r.DeleteRecords(r.now, replication.DeleteRecords{Token: 8, Before: 2, Timeout: time.Second})
	out := r.drain()
	if len(out.Deleted) != 0 || out.LogStart || !out.Flush || r.Log().StartOffset() != 2 {
		t.Fatalf("before the flush: %+v", out)
	}
	f, ok := r.BeginFlush(r.now)
	if !ok {
		t.Fatal("no flush")
	}
	r.DeleteRecords(r.now, replication.DeleteRecords{Token: 9, Before: 3, Timeout: time.Second}) // is not in it
	r.EndFlush(r.now, f, f.Sync())
	out = r.drain()
	if len(out.Deleted) != 1 || out.Deleted[0] != (replication.Deletion{Token: 8, LowWatermark: 2}) || !out.LogStart || !out.Flush {
		t.Fatalf("after the flush: %+v", out)
	}
	r.FailDir(r.now, errors.New("input/output error"))
	if out = r.drain(); len(out.Deleted) != 1 || out.Deleted[0].Token != 9 || out.Deleted[0].Code != replication.KafkaStorageError {
		t.Fatalf("the disk is gone: %+v", out)
	}
}
