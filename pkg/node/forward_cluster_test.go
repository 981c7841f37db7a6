package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/quorum/raft/rpc"
	"github.com/highwater-io/highwater/pkg/wire"
)

// Kafka's kafka-metadata-quorum sends voter changes to brokers (--bootstrap-server), which pass them on.
func TestDataNodePassesVoterChangesToTheLeader(t *testing.T) {
	c := newCluster(t, 3, 1)
	c.waitReady(1000, 1001, 1002, 0)
	ctx, cancel := context.WithTimeout(context.Background(), testscale.Duration(30*time.Second))
	defer cancel()
	client := c.client()
	defer client.Close()
	ask := func(req kmsg.Request) kmsg.Response {
		t.Helper()
		resp, err := client.Broker(0).RetriableRequest(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	leader := c.quorumLeader(1000)
	gone := 1000 + (leader-1000+1)%3
	remove := func() error {
		m := &raft.RemoveVoterRequest{Voter: raft.ReplicaKey{ID: gone, DirectoryID: c.nodes[gone].config.DirectoryID}}
		return kerr.ErrorForCode(ask(rpc.ToRequest(m)).(*kmsg.RemoveRaftVoterResponse).ErrorCode)
	}
	// An election in between, on a busy machine, makes it answer a retriable code.
	c.eventually("the voter is removed", func() error {
		if err := remove(); err != nil && !errors.Is(err, kerr.VoterNotFound) {
			return err
		}
		return nil
	})
	if err := remove(); !errors.Is(err, kerr.VoterNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	describe := kmsg.NewPtrDescribeQuorumRequest()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic = ident.MetadataTopic
	topic.Partitions = append(topic.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	describe.Topics = append(describe.Topics, topic)
	part := ask(describe).(*kmsg.DescribeQuorumResponse).Topics[0].Partitions[0]
	if part.ErrorCode != 0 || len(part.CurrentVoters) != 2 {
		t.Errorf("error %d, %d voters, want 2", part.ErrorCode, len(part.CurrentVoters))
	}
	for _, v := range part.CurrentVoters {
		if ident.NodeID(v.ReplicaID) == gone {
			t.Errorf("%d is a voter still", gone)
		}
	}
	// One more change, with nothing but the data node's word to find the leader.
	host, port, err := splitAddress(c.nodes[gone].config.AdvertisedController)
	if err != nil {
		t.Fatal(err)
	}
	add := &raft.AddVoterRequest{Voter: raft.Voter{
		Key:       raft.ReplicaKey{ID: gone, DirectoryID: c.nodes[gone].config.DirectoryID},
		Endpoints: []raft.Endpoint{{Name: "CONTROLLER", Host: host, Port: port}},
	}}
	c.eventually("the voter is added again", func() error {
		err := kerr.ErrorForCode(ask(rpc.ToRequest(add)).(*kmsg.AddRaftVoterResponse).ErrorCode)
		if errors.Is(err, kerr.DuplicateVoter) {
			return nil // of the try before, which was not answered in time
		}
		return err
	})
}

// The level of kraft.version stands in a control record, not in metadata; kafka-features shows what ApiVersions says.
func TestEveryNodeTellsTheFinalizedLevels(t *testing.T) {
	c := newCluster(t, 1, 1)
	c.waitReady(1000, 0)
	want := map[string]int16{metadata.FeatureMetadataVersion: int16(metadata.Pinned), "kraft.version": 1}
	for _, address := range []string{
		c.nodes[1000].config.AdvertisedController, c.nodes[0].config.AdvertisedInternal, c.nodes[0].config.AdvertisedExternal,
	} {
		c.eventually("the levels at "+address, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), testscale.Duration(5*time.Second))
			defer cancel()
			conn, err := (&wire.Dialer{}).Dial(ctx, address)
			if err != nil {
				return err
			}
			defer conn.Close()
			got := map[string]int16{}
			for _, f := range conn.Features().Finalized {
				got[f.Name] = f.Max
			}
			if !maps.Equal(got, want) {
				return fmt.Errorf("told %v, want %v", got, want)
			}
			return nil
		})
	}
}
