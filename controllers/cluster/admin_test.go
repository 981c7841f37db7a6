package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
)

// answering is an Admin whose requests are answered by a function.
func answering(t *testing.T, answer func(kmsg.Request) kmsg.Response) Admin {
	return controllerAdmin{func(ctx context.Context, request kmsg.Request) (kmsg.Response, error) {
		if deadline, has := ctx.Deadline(); !has || time.Until(deadline) > AdminTimeout {
			t.Errorf("%s has no deadline of %s", kmsg.NameForKey(request.Key()), AdminTimeout)
		}
		return answer(request), nil
	}}
}

func TestCreateTopicAsksForFactorOrAssignmentsNeverBoth(t *testing.T) {
	var asked kmsg.CreateTopicsRequestTopic
	admin := answering(t, func(request kmsg.Request) kmsg.Response {
		asked = request.(*kmsg.CreateTopicsRequest).Topics[0]
		response := kmsg.NewPtrCreateTopicsResponse()
		topic := kmsg.NewCreateTopicsResponseTopic()
		topic.Topic = asked.Topic
		response.Topics = append(response.Topics, topic)
		return response
	})
	if err := admin.CreateTopic(t.Context(), NewTopic{Name: "t", Partitions: 2, ReplicationFactor: 3, Configs: map[string]string{"b": "2", "a": "1"}}); err != nil {
		t.Fatal(err)
	}
	if asked.NumPartitions != 2 || asked.ReplicationFactor != 3 || len(asked.ReplicaAssignment) != 0 || asked.Configs[0].Name != "a" || *asked.Configs[1].Value != "2" {
		t.Errorf("asked for %+v", asked)
	}
	if err := admin.CreateTopic(t.Context(), NewTopic{Name: "t", Partitions: 2, ReplicationFactor: 3, Assignments: [][]int32{{2, 0}, {1, 2}}}); err != nil {
		t.Fatal(err)
	}
	if asked.NumPartitions != -1 || asked.ReplicationFactor != -1 || asked.ReplicaAssignment[1].Partition != 1 || !cmp.Equal(asked.ReplicaAssignment[1].Replicas, []int32{1, 2}) {
		t.Errorf("asked for %+v", asked)
	}
}

func TestOnlyWhatAnotherAttemptCanNotMendIsARefusal(t *testing.T) {
	said := "because"
	for _, c := range []struct {
		code    *kerr.Error
		refused bool
	}{
		{kerr.InvalidReplicationFactor, true},
		{kerr.InvalidConfig, true},
		{kerr.TopicAlreadyExists, true},
		{kerr.PolicyViolation, true},
		{kerr.NotController, false},
		{kerr.RequestTimedOut, false},
		{kerr.NotLeaderForPartition, false},
	} {
		admin := answering(t, func(kmsg.Request) kmsg.Response {
			response := kmsg.NewPtrIncrementalAlterConfigsResponse()
			resource := kmsg.NewIncrementalAlterConfigsResponseResource()
			resource.ResourceName, resource.ErrorCode, resource.ErrorMessage = "t", c.code.Code, &said
			response.Resources = append(response.Resources, resource)
			return response
		})
		err := admin.AlterTopicConfig(t.Context(), "t", map[string]string{"a": "1"}, []string{"b"})
		var refused *RefusedError
		if errors.As(err, &refused) != c.refused || !errors.Is(err, c.code) {
			t.Errorf("%s: got %v, want a refusal: %v", c.code.Message, err, c.refused)
		}
		if c.refused && refused.Error() != c.code.Message+": because" {
			t.Errorf("refusal reads %q", refused.Error())
		}
	}
}

func TestDeletingATopicThatIsGoneIsNoError(t *testing.T) {
	id := ident.UUID{0: 3}
	for _, c := range []struct {
		code *kerr.Error
		fail bool
	}{{kerr.UnknownTopicID, false}, {kerr.TopicDeletionDisabled, true}} {
		admin := answering(t, func(request kmsg.Request) kmsg.Response {
			if asked := request.(*kmsg.DeleteTopicsRequest).Topics[0]; asked.TopicID != id || asked.Topic != nil {
				t.Errorf("asked for %+v, want the id alone", asked)
			}
			response := kmsg.NewPtrDeleteTopicsResponse()
			topic := kmsg.NewDeleteTopicsResponseTopic()
			topic.TopicID, topic.ErrorCode = id, c.code.Code
			response.Topics = append(response.Topics, topic)
			return response
		})
		if err := admin.DeleteTopic(t.Context(), id); (err != nil) != c.fail {
			t.Errorf("%s: got %v", c.code.Message, err)
		}
	}
}

func TestVotersAreReadWithTheirDirectories(t *testing.T) {
	admin := answering(t, func(kmsg.Request) kmsg.Response {
		response := kmsg.NewPtrDescribeQuorumResponse()
		topic, partition, voter := kmsg.NewDescribeQuorumResponseTopic(), kmsg.NewDescribeQuorumResponseTopicPartition(), kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
		voter.ReplicaID, voter.ReplicaDirectoryID, voter.LogEndOffset = 1000, [16]byte{9}, 17
		voter.LastFetchTimestamp, voter.LastCaughtUpTimestamp = 5000, 5000
		observer := voter
		observer.ReplicaID, observer.LastFetchTimestamp, observer.LastCaughtUpTimestamp = 1001, 4900, 3000
		never := voter
		never.ReplicaID, never.LastFetchTimestamp, never.LastCaughtUpTimestamp = 2, 4900, -1
		partition.LeaderID = 1000
		partition.CurrentVoters = append(partition.CurrentVoters, voter)
		partition.Observers = append(partition.Observers, observer, never)
		topic.Partitions = append(topic.Partitions, partition)
		response.Topics = append(response.Topics, topic)
		return response
	})
	got, err := admin.Quorum(t.Context())
	want := QuorumState{
		Leader: 1000,
		Voters: []ReplicaState{{Voter: Voter{1000, ident.UUID{9}}, LogEndOffset: 17}},
		Observers: []ReplicaState{
			{Voter: Voter{1001, ident.UUID{9}}, LogEndOffset: 17, Lag: 2 * time.Second},
			{Voter: Voter{2, ident.UUID{9}}, LogEndOffset: 17, Lag: -1},
		},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}

// A change of the voters that is repeated, since nobody knows what came of the first call, finds it done.
func TestChangesOfTheVotersAreSafeToRepeat(t *testing.T) {
	voter := Voter{1003, ident.UUID{9}}
	for name, c := range map[string]struct {
		code   *kerr.Error
		there  ident.UUID // the directory under which the quorum has the voter
		failed error
	}{
		"done":                          {},
		"there already":                 {code: kerr.DuplicateVoter, there: ident.UUID{9}},
		"there under another one":       {code: kerr.DuplicateVoter, there: ident.UUID{8}, failed: kerr.DuplicateVoter},
		"gone already":                  {code: kerr.VoterNotFound, failed: kerr.VoterNotFound},
		"not caught up":                 {code: kerr.RequestTimedOut, failed: kerr.RequestTimedOut},
		"does not know kraft.version 1": {code: kerr.InvalidRequest, failed: kerr.InvalidRequest},
	} {
		var code int16
		if c.code != nil {
			code = c.code.Code
		}
		message := "says why"
		admin := answering(t, func(request kmsg.Request) kmsg.Response {
			switch request := request.(type) {
			case *kmsg.AddRaftVoterRequest:
				if l := request.Listeners; len(l) != 1 || l[0].Name != "CONTROLLER" || l[0].Host != "h" || l[0].Port != 9093 || request.VoterDirectoryID != voter.DirectoryID {
					t.Errorf("asked %+v", request)
				}
				response := kmsg.NewPtrAddRaftVoterResponse()
				response.ErrorCode, response.ErrorMessage = code, &message
				return response
			case *kmsg.RemoveRaftVoterRequest:
				response := kmsg.NewPtrRemoveRaftVoterResponse()
				response.ErrorCode, response.ErrorMessage = code, &message
				return response
			}
			response := kmsg.NewPtrDescribeQuorumResponse()
			topic, partition, v := kmsg.NewDescribeQuorumResponseTopic(), kmsg.NewDescribeQuorumResponseTopicPartition(), kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
			v.ReplicaID, v.ReplicaDirectoryID = 1003, c.there
			partition.CurrentVoters = append(partition.CurrentVoters, v)
			topic.Partitions = append(topic.Partitions, partition)
			response.Topics = append(response.Topics, topic)
			return response
		})
		added, removed := admin.AddVoter(t.Context(), voter, "h:9093"), admin.RemoveVoter(t.Context(), voter)
		if !errors.Is(added, c.failed) || c.failed != nil && !strings.Contains(added.Error(), message) {
			t.Errorf("%s: adding: %v", name, added)
		}
		wantRemoved := c.failed
		if c.code == kerr.DuplicateVoter {
			wantRemoved = kerr.DuplicateVoter
		}
		if c.code == kerr.VoterNotFound {
			wantRemoved = nil
		}
		if !errors.Is(removed, wantRemoved) {
			t.Errorf("%s: removing: %v", name, removed)
		}
	}
}

func TestAnAnswerThatDoesNotSpeakOfTheTopicIsAnError(t *testing.T) {
	admin := answering(t, func(request kmsg.Request) kmsg.Response { return request.ResponseKind() })
	for name, err := range map[string]error{
		"create": admin.CreateTopic(t.Context(), NewTopic{Name: "t"}),
		"grow":   admin.GrowTopic(t.Context(), "t", 2, nil),
		"alter":  admin.AlterTopicConfig(t.Context(), "t", nil, nil),
		"delete": admin.DeleteTopic(t.Context(), ident.UUID{1}),
	} {
		if err == nil {
			t.Errorf("%s was taken for done", name)
		}
	}
}
