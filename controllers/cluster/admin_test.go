package cluster

import (
	"context"
	"errors"
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
		partition.CurrentVoters = append(partition.CurrentVoters, voter)
		topic.Partitions = append(topic.Partitions, partition)
		response.Topics = append(response.Topics, topic)
		return response
	})
	got, err := admin.Voters(t.Context())
	if diff := cmp.Diff([]VoterState{{ID: 1000, DirectoryID: ident.UUID{9}, LogEndOffset: 17}}, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
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
