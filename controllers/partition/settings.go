package partition

import (
	"maps"
	"slices"
	"strconv"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/topicconfig"
)

// settings are what belongs to the topic, as the Partition with index 0 says it.
type settings struct {
	replicationFactor int32
	policy            hwv1alpha1.DeletionPolicy
	configs           map[string]string
}

func settingsOf(authority *hwv1alpha1.Partition) settings {
	return settings{
		replicationFactor: authority.WantedReplicationFactor(),
		policy:            policyOf(authority),
		configs:           configsOf(authority),
	}
}

func policyOf(p *hwv1alpha1.Partition) hwv1alpha1.DeletionPolicy {
	if p.Spec.DeletionPolicy == nil {
		return hwv1alpha1.DeletionRetain
	}
	return *p.Spec.DeletionPolicy
}

// configsOf turns the fields of a spec into Kafka's topic keys.
func configsOf(p *hwv1alpha1.Partition) map[string]string {
	configs := map[string]string{}
	for key, value := range p.Spec.Config {
		configs[key] = string(value)
	}
	if n := p.Spec.MinInSyncReplicas; n != nil {
		configs[topicconfig.MinInsyncReplicas] = strconv.Itoa(int(*n))
	}
	if unclean := p.Spec.UncleanLeaderElection; unclean != nil {
		configs[topicconfig.UncleanLeaderElectionEnable] = strconv.FormatBool(*unclean)
	}
	if r := p.Spec.Retention; r != nil {
		if r.Time != nil {
			// The schema admits only what parses.
			if d, err := r.Time.Parse(); err == nil {
				configs[topicconfig.RetentionMs] = strconv.FormatInt(d.Milliseconds(), 10)
			}
		}
		if r.Size != nil {
			configs[topicconfig.RetentionBytes] = strconv.FormatInt(r.Size.Value(), 10)
		}
	}
	return configs
}

// disagreement names the first field in which a sibling says otherwise. What it leaves unset it inherits.
func (s settings) disagreement(sibling *hwv1alpha1.Partition) (field string, differs bool) {
	if wanted := sibling.WantedReplicationFactor(); wanted != 0 && wanted != s.replicationFactor {
		return "the replication factor", true
	}
	if policy := sibling.Spec.DeletionPolicy; policy != nil && *policy != s.policy {
		return "spec.deletionPolicy", true
	}
	own := configsOf(sibling)
	for _, key := range slices.Sorted(maps.Keys(own)) {
		if own[key] != s.configs[key] {
			return fieldOf(key), true
		}
	}
	return "", false
}

// fieldOf names the field of a spec that a topic key comes from.
func fieldOf(key string) string {
	switch key {
	case topicconfig.MinInsyncReplicas:
		return "spec.minInSyncReplicas"
	case topicconfig.UncleanLeaderElectionEnable:
		return "spec.uncleanLeaderElection"
	case topicconfig.RetentionMs, topicconfig.RetentionBytes:
		return "spec.retention"
	default:
		return "spec.config[" + key + "]"
	}
}

// configChange is what brings a topic's keys from what is committed to what is wanted. Keys that nobody asked for are
// removed only with exact, which is for topics that were made for their Partitions.
func configChange(image *metadata.Image, topic string, wanted map[string]string, exact bool) (set map[string]string, remove []string) {
	set = map[string]string{}
	committed := image.Config(metadata.ResourceTopic, topic)
	for key, value := range wanted {
		if now, has := committed.Get(key); !has || now != value {
			set[key] = value
		}
	}
	if exact {
		for key := range committed.All() {
			if _, has := wanted[key]; !has {
				remove = append(remove, key)
			}
		}
	}
	return set, remove
}

// effectiveMinISR is min.insync.replicas as the leader uses it.
func effectiveMinISR(image *metadata.Image, topic string, byDefault int32, replicas int) int32 {
	minISR := int64(byDefault)
	if text, set := image.Config(metadata.ResourceTopic, topic).Get(topicconfig.MinInsyncReplicas); set {
		if n, err := strconv.ParseInt(text, 10, 32); err == nil {
			minISR = n
		}
	}
	return int32(min(minISR, int64(replicas))) //nolint:gosec // at most the number of replicas
}

// effectiveFlush is the policy that the nodes act by.
func effectiveFlush(image *metadata.Image, topic string, byDefault hwv1alpha1.FlushPolicy) hwv1alpha1.FlushPolicy {
	defaults := topicconfig.Defaults{}
	if byDefault == hwv1alpha1.FlushAlways {
		defaults[topicconfig.FlushMessages] = "1"
	}
	// A value that can't be read counts as not set; the nodes report it.
	values, _ := defaults.Values(image.Config(metadata.ResourceTopic, topic).Get)
	if values.FlushMessages == 1 {
		return hwv1alpha1.FlushAlways
	}
	return hwv1alpha1.FlushPageCache
}
