package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/wire"
)

func (a controllerAdmin) Quorum(ctx context.Context) (QuorumState, error) {
	request := kmsg.NewPtrDescribeQuorumRequest()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic = ident.MetadataTopic
	topic.Partitions = append(topic.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	request.Topics = append(request.Topics, topic)
	response, err := ask[*kmsg.DescribeQuorumResponse](ctx, a, request)
	if err != nil {
		return QuorumState{}, err
	}
	if err := kerr.ErrorForCode(response.ErrorCode); err != nil {
		return QuorumState{}, fmt.Errorf("describe the quorum: %w", err)
	}
	if len(response.Topics) != 1 || len(response.Topics[0].Partitions) != 1 {
		return QuorumState{}, errors.New("describe the quorum: the answer is not about one partition")
	}
	partition := response.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(partition.ErrorCode); err != nil {
		return QuorumState{}, fmt.Errorf("describe the quorum: %w", err)
	}
	// The leader's own line tells the time by its clock; so does whoever fetched last when it is no voter any more.
	now := int64(0)
	for _, r := range slices.Concat(partition.CurrentVoters, partition.Observers) {
		now = max(now, r.LastFetchTimestamp)
	}
	states := func(replicas []kmsg.DescribeQuorumResponseTopicPartitionReplicaState) []ReplicaState {
		var all []ReplicaState
		for _, r := range replicas {
			s := ReplicaState{
				Voter: Voter{ident.NodeID(r.ReplicaID), ident.UUID(r.ReplicaDirectoryID)}, LogEndOffset: r.LogEndOffset, Lag: -1,
			}
			if r.LastCaughtUpTimestamp >= 0 {
				s.Lag = time.Duration(max(0, now-r.LastCaughtUpTimestamp)) * time.Millisecond
			}
			all = append(all, s)
		}
		return all
	}
	return QuorumState{
		Leader: ident.NodeID(partition.LeaderID), Voters: states(partition.CurrentVoters), Observers: states(partition.Observers),
	}, nil
}

func (a controllerAdmin) AddVoter(ctx context.Context, voter Voter, address string) error {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return err
	}
	request := kmsg.NewPtrAddRaftVoterRequest()
	// The answer has to be here before this call is given up.
	request.TimeoutMillis = timeoutMillis() * 3 / 4
	request.VoterID, request.VoterDirectoryID = int32(voter.ID), voter.DirectoryID
	listener := kmsg.NewAddRaftVoterRequestListener()
	listener.Name, listener.Host, listener.Port = string(wire.Controller), host, uint16(port)
	request.Listeners = append(request.Listeners, listener)
	response, err := ask[*kmsg.AddRaftVoterResponse](ctx, a, request)
	if err != nil {
		return err
	}
	if response.ErrorCode == kerr.DuplicateVoter.Code {
		quorum, err := a.Quorum(ctx)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(quorum.Voters, func(v ReplicaState) bool { return v.Voter == voter }) {
			return nil
		}
	}
	return wrap(explained(response.ErrorCode, response.ErrorMessage), "add voter", fmt.Sprint(voter.ID))
}

func (a controllerAdmin) RemoveVoter(ctx context.Context, voter Voter) error {
	request := kmsg.NewPtrRemoveRaftVoterRequest()
	request.VoterID, request.VoterDirectoryID = int32(voter.ID), voter.DirectoryID
	response, err := ask[*kmsg.RemoveRaftVoterResponse](ctx, a, request)
	if err != nil {
		return err
	}
	if response.ErrorCode == kerr.VoterNotFound.Code {
		return nil
	}
	return wrap(explained(response.ErrorCode, response.ErrorMessage), "remove voter", fmt.Sprint(voter.ID))
}

// explained is refusal, with the words of the leader also where another attempt may help: they tell what it waits for.
func explained(code int16, message *string) error {
	err := refusal(code, message)
	var refused *RefusedError
	if err == nil || errors.As(err, &refused) || message == nil {
		return err
	}
	return fmt.Errorf("%w: %s", err, *message)
}
