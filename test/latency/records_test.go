package main

import (
	"reflect"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// The codec that writes these is checked against files of Apache Kafka; here the other reader is checked against it.
func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	topic := ident.UUID{1, 2, 3}
	change := metadata.NewPartitionChange(1)
	change.PartitionID, change.TopicID, change.ISR = 4, topic, []ident.NodeID{2, 0}
	elected := metadata.NewPartitionChange(1)
	elected.PartitionID, elected.TopicID, elected.Leader = 4, topic, 2
	for name, test := range map[string]struct {
		record metadata.Record
		want   any
	}{
		"topic": {&metadata.TopicRecord{Name: "orders", TopicID: topic}, topicMade{"orders", topic}},
		"partition": {
			&metadata.PartitionRecord{Version: 1, PartitionID: 4, TopicID: topic, Replicas: []ident.NodeID{0, 1, 2}, ISR: []ident.NodeID{0, 1},
				Leader: 1, LeaderEpoch: 9, PartitionEpoch: 300, Directories: []ident.UUID{{1}, {2}, {3}}},
			partitionMade{topic: topic, index: 4, isr: []int32{0, 1}, epoch: 300},
		},
		"isr":         {change, partitionChange{topic: topic, index: 4, isr: []int32{2, 0}}},
		"leader":      {elected, partitionChange{topic: topic, index: 4}},
		"fenced":      {&metadata.BrokerRegistrationChangeRecord{BrokerID: 2, BrokerEpoch: 1 << 40, Fenced: 1}, fence{2}},
		"unfenced":    {&metadata.BrokerRegistrationChangeRecord{BrokerID: 2, BrokerEpoch: 1 << 40, Fenced: -1}, nil},
		"registered":  {&metadata.RegisterBrokerRecord{Version: 3, BrokerID: 1}, fence{1}},
		"old fence":   {&metadata.FenceBrokerRecord{ID: 1, Epoch: 5}, fence{1}},
		"old unfence": {&metadata.UnfenceBrokerRecord{ID: 1, Epoch: 5}, nil},
		"no-op":       {&metadata.NoOpRecord{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			raw := metadata.Encode(nil, test.record)
			got, err := decode(raw)
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("read %+v, %v; want %+v", got, err, test.want)
			}
		})
	}
}

func TestHistoryCountsEpochsAndKeepsISRChanges(t *testing.T) {
	id, other := [16]byte{1}, [16]byte{2}
	began := time.Now()
	h := &history{topic: "orders"}
	for _, record := range []any{
		fence{0}, topicMade{"orders", id}, partitionMade{topic: id, isr: []int32{2, 0, 1}, epoch: 0},
		partitionChange{topic: other, isr: []int32{1}}, partitionChange{topic: id, index: 1, isr: []int32{1}},
		partitionChange{topic: id}, partitionChange{topic: id, isr: []int32{0, 2}}, fence{1}, partitionChange{topic: id, isr: []int32{2, 0}},
		partitionChange{topic: id, isr: []int32{0, 1, 2}},
	} {
		h.add(commit{record: record, at: began.Add(time.Duration(len(h.fences)) * time.Second)})
	}
	if h.latest() != 4 {
		t.Errorf("epoch %d, want 4", h.latest())
	}
	first, _ := h.next(0)
	second, _ := h.next(first.epoch)
	if _, more := h.next(second.epoch); more || first.epoch != 2 || !reflect.DeepEqual(first.isr, []int32{0, 2}) || second.epoch != 4 {
		t.Errorf("changes %+v and %+v, more %v", first, second, more)
	}
	if fenced := h.fencedSince(began.Add(time.Millisecond)); !reflect.DeepEqual(fenced, []int32{1}) {
		t.Errorf("fenced %v, want [1]", fenced)
	}
}

func TestQuantiles(t *testing.T) {
	var times []time.Duration
	for i := range 24 {
		times = append(times, time.Duration(i+1))
	}
	if p50, p99 := quantile(times, 50), quantile(times, 99); p50 != 12 || p99 != 24 {
		t.Errorf("p50 %d, p99 %d of 1..24", p50, p99)
	}
}
