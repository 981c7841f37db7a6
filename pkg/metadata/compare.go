package metadata

import (
	"bytes"
	"iter"

	"github.com/highwater-io/highwater/pkg/ident"
)

// Compare returns a delta that leads from base to next, found by comparing them. It is for the two places where
// no records tell what changed: a node that replaced its state by a snapshot, and an observer that begins anew.
// It takes time in proportion to the images, but parts that both share are skipped.
func Compare(base, next *Image) *Delta {
	d := NewDelta(base)
	d.next = *next
	for t := range base.Topics() {
		if _, ok := next.topics.get(t.ID); !ok {
			d.deleted[t.ID] = t
		}
	}
	for t := range next.Topics() {
		old, _ := base.topics.get(t.ID)
		d.compareTopic(old, t)
	}
	differing(base.brokers, next.brokers, d.brokers, func(a, b *Broker) bool {
		return sameRecord(a.record(Pinned), b.record(Pinned))
	})
	differing(base.controllers, next.controllers, d.controllers, func(a, b *Controller) bool {
		return sameRecord(a.record(), b.record())
	})
	differing(base.configs, next.configs, d.configs, func(a, b Config) bool {
		return equalSeq(a.All(), b.All())
	})
	differing(base.features, next.features, d.features, func(a, b int16) bool { return a == b })
	d.otherChanges = !sameRecords(base.quotaRecords(), next.quotaRecords()) || !sameRecords(base.securityRecords(), next.securityRecords())
	return d
}

func (d *Delta) compareTopic(old, t *Topic) {
	if old == t {
		return
	}
	if old != nil && (old.Name != t.Name || old.NumPartitions() > t.NumPartitions()) {
		d.deleted[t.ID] = old // the same id, but another topic
		old = nil
	}
	if old == nil {
		d.topics[t.ID] = struct{}{}
	}
	for index, p := range t.Partitions() {
		id := ident.TopicPartition{Topic: t.ID, Index: index}
		if old != nil {
			if before, ok := old.Partition(index); ok && (before == p || before.equal(p)) {
				continue
			}
		}
		d.topics[t.ID] = struct{}{}
		d.partitions[id] = struct{}{}
	}
}

// differing puts the keys into out that only one of the maps has or for which the values differ.
func differing[K comparable, V any](base, next sorted[K, V], out map[K]struct{}, same func(a, b V) bool) {
	for k := range base.all() {
		if _, ok := next.get(k); !ok {
			out[k] = struct{}{}
		}
	}
	for k, v := range next.all() {
		if old, ok := base.get(k); !ok || !same(old, v) {
			out[k] = struct{}{}
		}
	}
}

func equalSeq(a, b iter.Seq2[string, string]) bool {
	next, stop := iter.Pull2(b)
	defer stop()
	for k, v := range a {
		if k2, v2, ok := next(); !ok || k != k2 || v != v2 {
			return false
		}
	}
	_, _, more := next()
	return !more
}

func sameRecord(a, b Record) bool { return bytes.Equal(Encode(nil, a), Encode(nil, b)) }

func sameRecords(a, b iter.Seq[Record]) bool {
	return bytes.Equal(encodeSeq(a), encodeSeq(b))
}

func encodeSeq(records iter.Seq[Record]) (out []byte) {
	for r := range records {
		out = Encode(out, r)
	}
	return out
}
