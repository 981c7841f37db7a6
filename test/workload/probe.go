package workload

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// probeValue is what probes write; Verify passes it over.
const probeValue = "probe"

// Probe tries one write with acks=all and returns what the cluster said, without trying again.
func Probe(ctx context.Context, seeds []string, topic string) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(seeds...), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.DisableIdempotentWrite(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordRetries(0), kgo.ProducerLinger(0),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: 0, Value: []byte(probeValue)}).FirstErr()
}

func endOffset(ctx context.Context, seeds []string, topic string) (int64, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	end, ok := ends.Lookup(topic, 0)
	if !ok {
		return 0, fmt.Errorf("partition 0 of %s: no end offset", topic)
	}
	return end.Offset, end.Err
}

// Addresses asks the cluster where its live nodes listen, by id.
func Addresses(ctx context.Context, seeds []string) (map[int32]string, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	brokers, err := kadm.NewClient(client).ListBrokers(ctx)
	if err != nil {
		return nil, err
	}
	addresses := map[int32]string{}
	for _, b := range brokers {
		addresses[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	return addresses, nil
}
