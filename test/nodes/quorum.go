package nodes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
)

// A Conn asks one node.
type Conn struct{ client *kgo.Client }

// Connect makes a connection to host:port, when the first request is sent.
func Connect(address string) (*Conn, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.DialTimeout(2*time.Second), kgo.RequestRetries(0), kgo.DisableClientMetrics())
	return &Conn{client}, err
}

// Close closes it.
func (c *Conn) Close() { c.client.Close() }

// Request sends a request to that very node.
func (c *Conn) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return c.client.SeedBrokers()[0].Request(ctx, req)
}

// Quorum is what the quorum's leader says of it.
type Quorum struct {
	Leader        *Node
	Epoch         int32
	HighWatermark int64
	// Ends are the log ends of all replicas, voters and observers, as they last fetched.
	Ends map[int32]int64
}

// Quorum asks the voters for who leads.
func (c *Cluster) Quorum(ctx context.Context) (Quorum, error) {
	var errs []error
	for _, n := range c.Voters {
		q, err := n.describeQuorum(ctx)
		if err == nil {
			return q, nil
		}
		errs = append(errs, fmt.Errorf("voter %d: %w", n.ID, err))
	}
	return Quorum{}, errors.Join(errs...)
}

func (n *Node) describeQuorum(ctx context.Context) (Quorum, error) {
	conn, err := Connect(n.Controller)
	if err != nil {
		return Quorum{}, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, p, err := DescribeQuorum(ctx, conn)
	if err != nil {
		return Quorum{}, err
	}
	q := Quorum{Leader: n, Epoch: p.LeaderEpoch, HighWatermark: p.HighWatermark, Ends: map[int32]int64{}}
	for _, r := range append(p.CurrentVoters, p.Observers...) {
		q.Ends[r.ReplicaID] = r.LogEndOffset
	}
	if p.LeaderID != n.ID || p.HighWatermark < 0 {
		return Quorum{}, fmt.Errorf("leader %d, high watermark %d", p.LeaderID, p.HighWatermark)
	}
	return q, nil
}

// DescribeQuorum asks for the state of the metadata quorum and returns the answer and its only partition.
func DescribeQuorum(ctx context.Context, of kmsg.Requestor) (*kmsg.DescribeQuorumResponse, *kmsg.DescribeQuorumResponseTopicPartition, error) {
	req := kmsg.NewPtrDescribeQuorumRequest()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic = ident.MetadataTopic
	topic.Partitions = append(topic.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, of)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, nil, errors.New("the answer is not about the metadata partition")
	}
	p := &resp.Topics[0].Partitions[0]
	return resp, p, kerr.ErrorForCode(p.ErrorCode)
}

// AwaitQuorum waits until a leader has committed something of its epoch.
func (c *Cluster) AwaitQuorum(ctx context.Context, within time.Duration) (q Quorum, err error) {
	err = Eventually(ctx, "the quorum has a leader", within, func(ctx context.Context) error {
		for _, n := range c.Voters {
			if n.Process == nil {
				continue
			}
			select {
			case <-n.Done():
				return fmt.Errorf("voter %d has ended, see %s", n.ID, n.Log())
			default:
			}
		}
		q, err = c.Quorum(ctx)
		return err
	})
	return q, err
}
