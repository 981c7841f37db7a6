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

// IncrementalAlterConfigs (44) sets, deletes, extends and cuts topic configs (KIP-339); a resource takes all of its
// changes or none. Per resource: INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG. Configs of brokers
// come from the node's own configuration and are refused. Where a topic comes to allow unclean elections, its
// partitions without a leader get one at once.
func (c *Controller) IncrementalAlterConfigs(now ident.Instant, request *kmsg.IncrementalAlterConfigsRequest) Decision {
	response := request.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	answer := func(r *kmsg.IncrementalAlterConfigsRequestResource, why *refusal) {
		resource := kmsg.NewIncrementalAlterConfigsResponseResource()
		resource.ResourceType, resource.ResourceName = r.ResourceType, r.ResourceName
		why.put(&resource.ErrorCode, &resource.ErrorMessage)
		response.Resources = append(response.Resources, resource)
	}
	all := func(why *refusal) *kmsg.IncrementalAlterConfigsResponse {
		response.Resources = nil
		for i := range request.Resources {
			answer(&request.Resources[i], why)
		}
		return response
	}
	if !c.active {
		return notController(all(refuse(kerr.NotController, "")))
	}
	c.enter(now)
	defer c.plan()
	type key struct {
		kind kmsg.ConfigResourceType
		name string
	}
	seen := map[key]int{}
	for i := range request.Resources {
		seen[key{request.Resources[i].ResourceType, request.Resources[i].ResourceName}]++
	}
	t := c.begin()
	for i := range request.Resources {
		r := &request.Resources[i]
		if seen[key{r.ResourceType, r.ResourceName}] > 1 {
			answer(r, refuse(kerr.InvalidRequest, "Each resource must appear at most once."))
			continue
		}
		records, why := t.c.alterTopicConfigs(r)
		answer(r, why)
		t.add(records...)
		if !t.withinLimits() {
			break
		}
	}
	if code, why := t.refused(); code != nil {
		return c.answer(all(refuse(code, why)))
	}
	if request.ValidateOnly {
		return c.answer(response)
	}
	d := t.commit(response)
	for _, r := range d.Records {
		if r, ok := r.(*metadata.ConfigRecord); ok && r.Name == topicconfig.UncleanLeaderElectionEnable {
			c.unsettled = true
		}
	}
	return d
}

// alterTopicConfigs returns the records that a resource's changes take, sorted by key.
func (c *Controller) alterTopicConfigs(resource *kmsg.IncrementalAlterConfigsRequestResource) ([]metadata.Record, *refusal) {
	switch {
	case resource.ResourceType == kmsg.ConfigResourceTypeBroker || resource.ResourceType == kmsg.ConfigResourceTypeBrokerLogger:
		return nil, refuse(kerr.InvalidConfig, "Configs of brokers come from the nodes' own configuration (the ReplicaSet's spec) and can't be altered here.")
	case resource.ResourceType != kmsg.ConfigResourceTypeTopic:
		return nil, refuse(kerr.InvalidRequest, *text("Configs of resource type %d are not supported; only those of topics are.", resource.ResourceType))
	case resource.ResourceName == "":
		return nil, refuse(kerr.InvalidRequest, "Default topic resources are not allowed.")
	}
	if _, ok := c.appended.image.Topic(resource.ResourceName); !ok {
		return nil, refuse(kerr.UnknownTopicOrPartition, *text("The topic '%s' does not exist.", resource.ResourceName))
	}
	current := c.appended.image.Config(metadata.ResourceTopic, resource.ResourceName)
	var names []string
	var records []metadata.Record
	changed := map[string]*string{}
	changes := slices.Clone(resource.Configs)
	slices.SortStableFunc(changes, func(a, b kmsg.IncrementalAlterConfigsRequestResourceConfig) int {
		return strings.Compare(a.Name, b.Name)
	})
	for i := range changes {
		change := &changes[i]
		if slices.Contains(names, change.Name) {
			return nil, refuse(kerr.InvalidRequest, *text("Error due to duplicate config keys: %s", change.Name))
		}
		names = append(names, change.Name)
		value, why := c.newValue(change, current)
		if why != nil {
			return nil, why
		}
		old, set := current.Get(change.Name)
		if value == nil && !set || value != nil && set && *value == old {
			continue
		}
		records = append(records, &metadata.ConfigRecord{ResourceType: metadata.ResourceTopic, ResourceName: resource.ResourceName, Name: change.Name, Value: value})
		changed[change.Name] = value
	}
	if err := c.cfg.TopicDefaults.ValidateTogether(func(name string) (string, bool) {
		if value, ok := changed[name]; ok {
			if value == nil {
				return "", false
			}
			return *value, true
		}
		return current.Get(name)
	}); err != nil && len(changed) > 0 {
		return nil, refuse(kerr.InvalidConfig, err.Error())
	}
	return records, nil
}

// newValue is what a key's value becomes, nil when it is not set any more.
func (c *Controller) newValue(change *kmsg.IncrementalAlterConfigsRequestResourceConfig, current metadata.Config) (*string, *refusal) {
	key, known := topicconfig.Lookup(change.Name)
	if change.Op == kmsg.IncrementalAlterConfigOpDelete {
		if _, set := current.Get(change.Name); !known && !set {
			return nil, refuse(kerr.InvalidConfig, topicconfig.Validate(change.Name, "").Error())
		}
		return nil, nil
	}
	if change.Value == nil {
		return nil, refuse(kerr.InvalidRequest, *text("Null value not supported for: %s", change.Name))
	}
	value := *change.Value
	switch change.Op {
	case kmsg.IncrementalAlterConfigOpSet:
	case kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract:
		if !known {
			break // Validate says so
		}
		if !key.IsList() {
			return nil, refuse(kerr.InvalidConfig, *text("Can't append to or subtract from key %s because its type is not LIST.", change.Name))
		}
		now, _ := c.cfg.TopicDefaults.Value(key, current.Get)
		members := topicconfig.SplitList(now)
		for _, m := range topicconfig.SplitList(value) {
			at := slices.Index(members, m)
			switch {
			case change.Op == kmsg.IncrementalAlterConfigOpAppend && at < 0:
				members = append(members, m)
			case change.Op == kmsg.IncrementalAlterConfigOpSubtract && at >= 0:
				members = slices.Delete(members, at, at+1)
			}
		}
		value = strings.Join(members, ",")
	default:
		return nil, refuse(kerr.InvalidRequest, *text("Unknown config operation %d for: %s", change.Op, change.Name))
	}
	if err := topicconfig.Validate(change.Name, value); err != nil {
		return nil, refuse(kerr.InvalidConfig, err.Error())
	}
	return &value, nil
}
