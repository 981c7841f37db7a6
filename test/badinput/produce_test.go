package badinput

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/batch"
)

// Positions in a record batch of magic 2 (Kafka's DefaultRecordBatch).
const (
	atLength     = 8
	atMagic      = 16
	atCRC        = 17
	atAttributes = 21
	atLastDelta  = 23
	atNumRecords = 57
)

// changed is a batch with some bytes changed and, if asked, the checksum made right again.
func changed(b []byte, fixCRC bool, change func(b []byte)) []byte {
	b = slices.Clone(b)
	change(b)
	if fixCRC {
		binary.BigEndian.PutUint32(b[atCRC:], crc32.Checksum(b[atAttributes:], crc32.MakeTable(crc32.Castagnoli)))
	}
	return b
}

func TestCorruptBatchIsRefusedWithKafkasErrorAndNothingIsAppended(t *testing.T) {
	n := newNode(t)
	n.start()
	n.createTopic("orders", nil)
	good := batch.NewBuilder(0, -1, 1_700_000_000_000).Append([]byte("k"), []byte("v")).Append(nil, []byte("w")).Build()
	for name, test := range map[string]struct {
		records []byte
		want    *kerr.Error
	}{
		"wrong checksum":              {changed(good, false, func(b []byte) { b[len(b)-1] ^= 1 }), kerr.CorruptMessage},
		"wrong checksum field":        {changed(good, false, func(b []byte) { b[atCRC] ^= 1 }), kerr.CorruptMessage},
		"magic 1":                     {changed(good, false, func(b []byte) { b[atMagic] = 1 }), kerr.InvalidRecord},
		"magic 3":                     {changed(good, false, func(b []byte) { b[atMagic] = 3 }), kerr.CorruptMessage},
		"length below a header":       {changed(good, false, func(b []byte) { binary.BigEndian.PutUint32(b[atLength:], 5) }), kerr.CorruptMessage},
		"negative length":             {changed(good, false, func(b []byte) { binary.BigEndian.PutUint32(b[atLength:], 1<<31) }), kerr.CorruptMessage},
		"length beyond the request":   {changed(good, false, func(b []byte) { binary.BigEndian.PutUint32(b[atLength:], 1000) }), kerr.InvalidRecord},
		"truncated in the records":    {good[:len(good)-3], kerr.InvalidRecord},
		"truncated in the header":     {good[:30], kerr.InvalidRecord},
		"no bytes":                    {[]byte{}, kerr.InvalidRecord},
		"two batches":                 {append(slices.Clone(good), good...), kerr.InvalidRecord},
		"wrong number of records":     {changed(good, true, func(b []byte) { binary.BigEndian.PutUint32(b[atNumRecords:], 7) }), kerr.InvalidRecord},
		"negative last offset":        {changed(good, true, func(b []byte) { binary.BigEndian.PutUint32(b[atLastDelta:], 1<<31) }), kerr.CorruptMessage},
		"control batch":               {batch.NewBuilder(0, -1, 1).AppendControl(batch.Commit, nil).Build(), kerr.InvalidRecord},
		"unknown compression":         {changed(good, true, func(b []byte) { b[atAttributes+1] = 7 }), kerr.UnsupportedCompressionType},
		"larger than the topic takes": {batch.NewBuilder(0, -1, 1).Append(nil, make([]byte, 2<<20)).Build(), kerr.MessageTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			code, base := n.produceRaw(t, "orders", 0, test.records)
			if err := kerr.ErrorForCode(code); !errors.Is(err, test.want) || base != -1 {
				t.Errorf("answered %v, offset %d; want %v, -1", err, base, test.want)
			}
		})
	}
	for name, index := range map[string]int32{"nothing": 0, "orders": 1} {
		if code, _ := n.produceRaw(t, name, index, good); code != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("partition %d of %s, which is not there: code %d, want UNKNOWN_TOPIC_OR_PARTITION", index, name, code)
		}
	}
	if code, base := n.produceRaw(t, "orders", 0, good); code != 0 || base != 0 {
		t.Errorf("a good batch then: code %d, offset %d; want offset 0, since nothing was appended", code, base)
	}
	if got := n.consume("orders"); !slices.Equal(got, []string{"v", "w"}) {
		t.Errorf("the partition holds %q", got)
	}
}

// produceRaw sends these bytes as the records of a partition.
func (n *node) produceRaw(t *testing.T, topic string, index int32, records []byte) (code int16, base int64) {
	t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 9, -1, 10_000
	in := kmsg.NewProduceRequestTopic()
	in.Topic = topic
	part := kmsg.NewProduceRequestTopicPartition()
	part.Partition, part.Records = index, records
	in.Partitions = append(in.Partitions, part)
	req.Topics = append(req.Topics, in)
	resp, err := n.dial(t).exchange(req).into(kmsg.NewPtrProduceResponse())
	if err != nil {
		t.Fatal(err)
	}
	p := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	return p.ErrorCode, p.BaseOffset
}
