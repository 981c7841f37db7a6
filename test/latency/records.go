package main

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
)

// The few of Apache Kafka's metadata records that are looked at, read by hand from the schemas in its source
// (metadata/src/main/resources/common/metadata), so that this program shares no decoder with what it measures.
const (
	typeRegisterBroker     = 0
	typeTopic              = 2
	typePartition          = 3
	typePartitionChange    = 5
	typeFenceBroker        = 7
	typeRegistrationChange = 17
	frameVersion           = 1
)

// topicMade says which id a topic has.
type topicMade struct {
	name string
	id   [16]byte
}

// partitionMade is a PartitionRecord.
type partitionMade struct {
	topic [16]byte
	index int32
	isr   []int32
	epoch int32
}

// partitionChange is a PartitionChangeRecord: each raises the partition's epoch by one. isr is nil when it stays.
type partitionChange struct {
	topic [16]byte
	index int32
	isr   []int32
}

// fence says that a node is fenced from here on: by a record that does so, or by registering anew.
type fence struct{ node int32 }

// decode returns what a record says, nil when nothing that is looked at.
func decode(value []byte) (any, error) {
	r := kbin.Reader{Src: value}
	if frame := r.Uvarint(); frame != frameVersion {
		return nil, fmt.Errorf("frame version %d", frame)
	}
	kind, version := r.Uvarint(), r.Uvarint()
	var found any
	switch kind {
	case typeTopic:
		found = topicMade{r.CompactString(), r.Uuid()}
	case typePartition:
		p := partitionMade{index: r.Int32(), topic: r.Uuid()}
		ids(&r) // replicas
		p.isr = ids(&r)
		ids(&r)   // removing
		ids(&r)   // adding
		r.Int32() // leader
		r.Int32() // leader epoch
		p.epoch = r.Int32()
		found = p
	case typePartitionChange:
		p := partitionChange{index: r.Int32(), topic: r.Uuid()}
		tags(&r, func(tag uint32, field *kbin.Reader) {
			if tag == 0 {
				p.isr = ids(field)
			}
		})
		found = p
	case typeFenceBroker, typeRegisterBroker:
		found = fence{r.Int32()}
	case typeRegistrationChange:
		f := fence{r.Int32()}
		r.Int64() // broker epoch
		fenced := false
		tags(&r, func(tag uint32, field *kbin.Reader) {
			if tag == 0 {
				fenced = field.Int8() == 1
			}
		})
		if fenced {
			found = f
		}
	default:
		return nil, nil
	}
	if !r.Ok() {
		return nil, fmt.Errorf("record of type %d, version %d is cut off", kind, version)
	}
	return found, nil
}

// ids reads a compact array of node ids, nil when it is null.
func ids(r *kbin.Reader) []int32 {
	n := r.CompactArrayLen()
	if n < 0 || !r.Ok() {
		return nil
	}
	out := make([]int32, 0, n)
	for range n {
		out = append(out, r.Int32())
	}
	return out
}

// tags reads a record's tagged fields.
func tags(r *kbin.Reader, each func(tag uint32, field *kbin.Reader)) {
	for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
		tag, size := r.Uvarint(), r.Uvarint()
		each(tag, &kbin.Reader{Src: r.Span(int(size))})
	}
}
