package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
)

// AdminTimeout bounds every admin call. It lies below the time between the renewal of the operator's lease and its
// end, so that a call of an operator that was deposed is over before the next one begins.
const AdminTimeout = 4 * time.Second

// NewTopic is a topic to be made. Either Assignments has the replicas of every partition, or Partitions and
// ReplicationFactor let the controller choose.
type NewTopic struct {
	Name              string
	Partitions        int32
	ReplicationFactor int32
	Assignments       [][]int32
	Configs           map[string]string
}

// ReplicaState is a voter or an observer of the metadata log as the quorum's leader sees it.
type ReplicaState struct {
	Voter
	LogEndOffset int64
	// Lag is how long ago it last had all of the log, by the leader's clock; negative when it never had.
	Lag time.Duration
}

// QuorumState is the metadata quorum as its leader sees it. The voter set may not be committed yet.
type QuorumState struct {
	Leader            ident.NodeID
	Voters, Observers []ReplicaState
}

// Admin changes a cluster. Every call is bounded by AdminTimeout and safe to repeat. Its errors are RefusedError when
// the controller said no, and anything else when it is not known what came of the call.
type Admin interface {
	// CreateTopic makes a topic. That it exists already is a RefusedError with kerr.TopicAlreadyExists.
	CreateTopic(ctx context.Context, topic NewTopic) error
	// GrowTopic gives a topic count partitions in all; assignments, when not empty, has the replicas of the new ones.
	GrowTopic(ctx context.Context, topic string, count int32, assignments [][]int32) error
	// AlterTopicConfig sets and removes keys of a topic.
	AlterTopicConfig(ctx context.Context, topic string, set map[string]string, remove []string) error
	// DeleteTopic deletes a topic by id. That it is gone already is no error.
	DeleteTopic(ctx context.Context, id ident.UUID) error
	// Quorum describes the metadata quorum.
	Quorum(ctx context.Context) (QuorumState, error)
	// AddVoter makes a node that follows the metadata log a voter; address is host:port of its CONTROLLER listener. That
	// it is one already, with this directory, is no error. A node that is not caught up or not reachable is an error
	// that another attempt may do away with.
	AddVoter(ctx context.Context, voter Voter, address string) error
	// RemoveVoter takes a voter out of the set. That it is none is no error.
	RemoveVoter(ctx context.Context, voter Voter) error
}

// RefusedError is a refusal by the controller.
type RefusedError struct {
	// Code is Kafka's, such as kerr.InvalidReplicationFactor.
	Code *kerr.Error
	// Message is what the controller added.
	Message string
}

// Error names Kafka's error and what the controller said.
func (e *RefusedError) Error() string {
	if e.Message == "" {
		return e.Code.Message + ": " + e.Code.Description
	}
	return e.Code.Message + ": " + e.Message
}

// Unwrap lets errors.Is find the code.
func (e *RefusedError) Unwrap() error { return e.Code }

// ErrNoQuorumLeader is returned when nobody is known to lead the quorum.
var ErrNoQuorumLeader = errors.New("the metadata quorum has no leader that is known")

// requester sends a request to the active controller.
type requester func(ctx context.Context, request kmsg.Request) (kmsg.Response, error)

// controllerAdmin is Admin by requests to the active controller.
type controllerAdmin struct{ request requester }

func ask[R kmsg.Response](ctx context.Context, a controllerAdmin, request kmsg.Request) (R, error) {
	var none R
	ctx, cancel := context.WithTimeout(ctx, AdminTimeout)
	defer cancel()
	answer, err := a.request(ctx, request)
	if err != nil {
		return none, fmt.Errorf("%s: %w", kmsg.NameForKey(request.Key()), err)
	}
	response, ok := answer.(R)
	if !ok {
		return none, fmt.Errorf("%s: answer of type %T", kmsg.NameForKey(request.Key()), answer)
	}
	return response, nil
}

// refusal turns a code into an error. What another attempt may do away with is no refusal.
func refusal(code int16, message *string) error {
	err := kerr.ErrorForCode(code)
	if err == nil {
		return nil
	}
	var known *kerr.Error
	if !errors.As(err, &known) || known.Retriable || code == kerr.NotController.Code {
		return err
	}
	refused := &RefusedError{Code: known}
	if message != nil {
		refused.Message = *message
	}
	return refused
}

func timeoutMillis() int32 { return int32(AdminTimeout.Milliseconds()) }

func (a controllerAdmin) CreateTopic(ctx context.Context, topic NewTopic) error {
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = timeoutMillis()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic.Name, topic.Partitions, int16(topic.ReplicationFactor) //nolint:gosec // the schema allows 32
	if len(topic.Assignments) > 0 {
		t.NumPartitions, t.ReplicationFactor = -1, -1
	}
	for i, replicas := range topic.Assignments {
		assignment := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		assignment.Partition, assignment.Replicas = int32(i), replicas //nolint:gosec // the schema allows 10000
		t.ReplicaAssignment = append(t.ReplicaAssignment, assignment)
	}
	for _, key := range sortedKeys(topic.Configs) {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = key, kmsg.StringPtr(topic.Configs[key])
		t.Configs = append(t.Configs, config)
	}
	request.Topics = append(request.Topics, t)
	response, err := ask[*kmsg.CreateTopicsResponse](ctx, a, request)
	if err != nil {
		return err
	}
	for _, t := range response.Topics {
		if t.Topic == topic.Name {
			return wrap(refusal(t.ErrorCode, t.ErrorMessage), "create topic", topic.Name)
		}
	}
	return fmt.Errorf("create topic %s: the answer does not speak of it", topic.Name)
}

func (a controllerAdmin) GrowTopic(ctx context.Context, topic string, count int32, assignments [][]int32) error {
	request := kmsg.NewPtrCreatePartitionsRequest()
	request.TimeoutMillis = timeoutMillis()
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = topic, count
	for _, replicas := range assignments {
		assignment := kmsg.NewCreatePartitionsRequestTopicAssignment()
		assignment.Replicas = replicas
		t.Assignment = append(t.Assignment, assignment)
	}
	request.Topics = append(request.Topics, t)
	response, err := ask[*kmsg.CreatePartitionsResponse](ctx, a, request)
	if err != nil {
		return err
	}
	for _, t := range response.Topics {
		if t.Topic == topic {
			return wrap(refusal(t.ErrorCode, t.ErrorMessage), "grow topic", topic)
		}
	}
	return fmt.Errorf("grow topic %s: the answer does not speak of it", topic)
}

func (a controllerAdmin) AlterTopicConfig(ctx context.Context, topic string, set map[string]string, remove []string) error {
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	for _, key := range sortedKeys(set) {
		config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		config.Name, config.Op, config.Value = key, kmsg.IncrementalAlterConfigOpSet, kmsg.StringPtr(set[key])
		resource.Configs = append(resource.Configs, config)
	}
	for _, key := range remove {
		config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		config.Name, config.Op = key, kmsg.IncrementalAlterConfigOpDelete
		resource.Configs = append(resource.Configs, config)
	}
	request.Resources = append(request.Resources, resource)
	response, err := ask[*kmsg.IncrementalAlterConfigsResponse](ctx, a, request)
	if err != nil {
		return err
	}
	for _, r := range response.Resources {
		if r.ResourceName == topic {
			return wrap(refusal(r.ErrorCode, r.ErrorMessage), "configure topic", topic)
		}
	}
	return fmt.Errorf("configure topic %s: the answer does not speak of it", topic)
}

func (a controllerAdmin) DeleteTopic(ctx context.Context, id ident.UUID) error {
	request := kmsg.NewPtrDeleteTopicsRequest()
	request.TimeoutMillis = timeoutMillis()
	t := kmsg.NewDeleteTopicsRequestTopic()
	t.TopicID = id
	request.Topics = append(request.Topics, t)
	response, err := ask[*kmsg.DeleteTopicsResponse](ctx, a, request)
	if err != nil {
		return err
	}
	for _, t := range response.Topics {
		if t.TopicID == id || len(response.Topics) == 1 {
			if t.ErrorCode == kerr.UnknownTopicID.Code || t.ErrorCode == kerr.UnknownTopicOrPartition.Code {
				return nil
			}
			return wrap(refusal(t.ErrorCode, t.ErrorMessage), "delete topic", id.String())
		}
	}
	return fmt.Errorf("delete topic %s: the answer does not speak of it", id)
}

func wrap(err error, doing, topic string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", doing, topic, err)
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
