package controller

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/topicconfig"
)

// A refusal is an error for one topic or resource of a request.
type refusal struct {
	code    *kerr.Error
	message string
}

func refuse(code *kerr.Error, message string) *refusal { return &refusal{code, message} }

// put writes the refusal into a response's fields; nil leaves them at no error.
func (r *refusal) put(code *int16, message **string) {
	if r == nil {
		return
	}
	*code = r.code.Code
	if r.message != "" {
		*message = &r.message
	}
}

// CreateTopics (19) creates topics. Per topic, in this order: INVALID_REQUEST for a name that stands there twice,
// TOPIC_AUTHORIZATION_FAILED for the metadata topic, INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_CONFIG,
// and then INVALID_REQUEST, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR or INVALID_PARTITIONS. What is
// too large for one batch is POLICY_VIOLATION for all. The topics that are not refused are created together.
func (c *Controller) CreateTopics(now ident.Instant, request *kmsg.CreateTopicsRequest) Decision {
	response := request.ResponseKind().(*kmsg.CreateTopicsResponse)
	all := func(code *kerr.Error, message string) *kmsg.CreateTopicsResponse {
		response.Topics = nil
		for i := range request.Topics {
			response.Topics = append(response.Topics, refusedTopic(request.Topics[i].Topic, refuse(code, message)))
		}
		return response
	}
	if !c.active {
		return notController(all(kerr.NotController, ""))
	}
	c.enter(now)
	defer c.plan()
	t := c.begin()
	var names collisions
	seen := map[string]int{}
	for i := range request.Topics {
		seen[request.Topics[i].Topic]++
	}
	for i := range request.Topics {
		topic := &request.Topics[i]
		switch n := seen[topic.Topic]; {
		case n == 0: // answered with the first entry of that name
			continue
		case n > 1:
			seen[topic.Topic] = 0
			response.Topics = append(response.Topics, refusedTopic(topic.Topic, refuse(kerr.InvalidRequest, "Duplicate topic name.")))
			continue
		}
		if strings.ContainsAny(topic.Topic, "._") {
			names = names.of(c.appended.image)
		}
		refused := c.checkNewTopic(topic.Topic, names)
		var created kmsg.CreateTopicsResponseTopic
		if refused == nil {
			created, refused = t.createTopic(topic)
		}
		if refused != nil {
			created = refusedTopic(topic.Topic, refused)
		} else if names != nil && strings.ContainsAny(topic.Topic, "._") {
			names[collisionKey(topic.Topic)] = topic.Topic
		}
		response.Topics = append(response.Topics, created)
		if !t.withinLimits() {
			break // no need to go on with what is refused as a whole
		}
	}
	if code, why := t.refused(); code != nil {
		return c.answer(all(code, why))
	}
	if request.ValidateOnly {
		for i := range response.Topics {
			response.Topics[i].TopicID = ident.ZeroUUID // nothing of that id will be
		}
		return c.answer(response)
	}
	return t.commit(response)
}

func refusedTopic(name string, why *refusal) kmsg.CreateTopicsResponseTopic {
	answer := kmsg.NewCreateTopicsResponseTopic()
	answer.Topic, answer.NumPartitions, answer.ReplicationFactor = name, -1, -1
	why.put(&answer.ErrorCode, &answer.ErrorMessage)
	return answer
}

func (c *Controller) checkNewTopic(name string, names collisions) *refusal {
	if name == ident.MetadataTopic {
		return refuse(kerr.TopicAuthorizationFailed, "The metadata topic is the cluster's own.")
	}
	if why := checkTopicName(name); why != nil {
		return why
	}
	if _, ok := c.appended.image.Topic(name); ok {
		return refuse(kerr.TopicAlreadyExists, *text("Topic '%s' already exists.", name))
	}
	if other, ok := names[collisionKey(name)]; ok {
		return refuse(kerr.InvalidTopicException, *text("Topic '%s' collides with existing topic: %s", name, other))
	}
	return nil
}

// createTopic adds the records of one topic, or says why it can't be.
func (t *tx) createTopic(topic *kmsg.CreateTopicsRequestTopic) (kmsg.CreateTopicsResponseTopic, *refusal) {
	answer := kmsg.NewCreateTopicsResponseTopic()
	configs, why := creationConfigs(topic)
	if why != nil {
		return answer, why
	}
	s := t.state()
	config := func(key string) (string, bool) {
		for _, c := range configs {
			if c.Name == key {
				return *c.Value, true
			}
		}
		return "", false
	}
	if err := s.defaults.ValidateTogether(config); err != nil {
		return answer, refuse(kerr.InvalidConfig, err.Error())
	}
	assignments, why := t.c.assignments(s, topic)
	if why != nil {
		return answer, why
	}
	id := t.c.newTopicID(s.image)
	partitions := make([]metadata.Record, len(assignments))
	for i, replicas := range assignments {
		r := s.newPartition(ident.TopicPartition{Topic: id, Index: int32(i)}, replicas)
		switch {
		case r != nil:
			partitions[i] = r
		case len(topic.ReplicaAssignment) > 0:
			return answer, refuse(kerr.InvalidReplicaAssignment, *text("All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", i))
		}
	}
	// Kafka's order: configs come after the topic and before its partitions.
	t.add(&metadata.TopicRecord{Name: topic.Topic, TopicID: id})
	for i := range configs {
		t.add(&configs[i])
	}
	t.add(partitions...)
	answer.Topic, answer.TopicID = topic.Topic, id
	answer.NumPartitions, answer.ReplicationFactor = int32(len(assignments)), int16(len(assignments[0]))
	answer.Configs = s.defaults.Created(config)
	return answer, nil
}

// creationConfigs are the config records of a new topic, sorted by key.
func creationConfigs(topic *kmsg.CreateTopicsRequestTopic) ([]metadata.ConfigRecord, *refusal) {
	var out []metadata.ConfigRecord
	for _, config := range topic.Configs {
		if config.Value == nil {
			return nil, refuse(kerr.InvalidConfig, *text("Null value not supported for topic configs: %s", config.Name))
		}
		if err := topicconfig.Validate(config.Name, *config.Value); err != nil {
			return nil, refuse(kerr.InvalidConfig, err.Error())
		}
		if slices.ContainsFunc(out, func(r metadata.ConfigRecord) bool { return r.Name == config.Name }) {
			return nil, refuse(kerr.InvalidConfig, *text("config %s stands there twice", config.Name))
		}
		out = append(out, metadata.ConfigRecord{ResourceType: metadata.ResourceTopic, ResourceName: topic.Topic, Name: config.Name, Value: config.Value})
	}
	slices.SortFunc(out, func(a, b metadata.ConfigRecord) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// assignments returns the replicas of each partition of a new topic.
func (c *Controller) assignments(s *state, topic *kmsg.CreateTopicsRequestTopic) ([][]ident.NodeID, *refusal) {
	if len(topic.ReplicaAssignment) > 0 {
		return s.manualAssignments(topic)
	}
	factor, n := topic.ReplicationFactor, topic.NumPartitions
	if factor == -1 { // KIP-464
		factor = c.cfg.DefaultReplicationFactor
	}
	if n == -1 {
		n = c.cfg.DefaultNumPartitions
	}
	switch {
	case factor < 1:
		return nil, refuse(kerr.InvalidReplicationFactor, "Replication factor must be larger than 0, or -1 to use the default value.")
	case n < 1:
		return nil, refuse(kerr.InvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	case int64(n) > int64(c.cfg.MaxRecords):
		return nil, refuse(kerr.PolicyViolation, *text("Excessively large number of partitions per request: %d, the limit is %d.", n, c.cfg.MaxRecords))
	}
	return c.place(s, int(n), int(factor))
}

func (s *state) manualAssignments(topic *kmsg.CreateTopicsRequestTopic) ([][]ident.NodeID, *refusal) {
	switch {
	case topic.ReplicationFactor != -1:
		return nil, refuse(kerr.InvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1.")
	case topic.NumPartitions != -1:
		return nil, refuse(kerr.InvalidRequest, "A manual partition assignment was specified, but numPartitions was not set to -1.")
	}
	out := make([][]ident.NodeID, len(topic.ReplicaAssignment))
	want := 0
	for _, a := range topic.ReplicaAssignment {
		if a.Partition < 0 || int(a.Partition) >= len(out) {
			return nil, refuse(kerr.InvalidReplicaAssignment, "partitions should be a consecutive 0-based integer sequence")
		}
		if out[a.Partition] != nil {
			return nil, refuse(kerr.InvalidReplicaAssignment, *text("Found multiple manual partition assignments for partition %d", a.Partition))
		}
		replicas, why := s.checkAssignment(a.Replicas, want)
		if why != nil {
			return nil, why
		}
		out[a.Partition], want = replicas, len(replicas)
	}
	return out, nil
}
