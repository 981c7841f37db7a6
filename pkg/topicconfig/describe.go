package topicconfig

import "github.com/twmb/franz-go/pkg/kmsg"

// Describe returns a topic's configs as DescribeConfigs (32) answers them: those of the given names, or all when
// names is nil, sorted by name. A name that is not in the table is left out, as in Kafka.
func (d Defaults) Describe(topic Get, names []string, synonyms, documentation bool) []kmsg.DescribeConfigsResponseResourceConfig {
	wanted := func(string) bool { return true }
	if names != nil {
		set := make(map[string]bool, len(names))
		for _, n := range names {
			set[n] = true
		}
		wanted = func(name string) bool { return set[name] }
	}
	var out []kmsg.DescribeConfigsResponseResourceConfig
	for _, key := range table {
		if !wanted(key.Name) {
			continue
		}
		value, source := d.Value(key, topic)
		entry := kmsg.NewDescribeConfigsResponseResourceConfig()
		entry.Name, entry.Value, entry.Source, entry.ConfigType = key.Name, &value, source, key.Type
		entry.IsDefault = source == kmsg.ConfigSourceDefaultConfig
		if documentation {
			entry.Documentation = &key.Doc
		}
		if synonyms {
			entry.ConfigSynonyms = d.synonyms(key, topic)
		}
		out = append(out, entry)
	}
	return out
}

// synonyms lists every place that gives the key a value, the one that counts first (KIP-226).
func (d Defaults) synonyms(key Key, topic Get) []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym {
	var out []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym
	add := func(name, value string, source kmsg.ConfigSource) {
		s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
		s.Name, s.Value, s.Source = name, &value, source
		out = append(out, s)
	}
	if topic != nil {
		if v, ok := topic(key.Name); ok {
			add(key.Name, v, kmsg.ConfigSourceDynamicTopicConfig)
		}
	}
	if v, ok := d[key.Name]; ok {
		add(key.Synonym, v, kmsg.ConfigSourceStaticBrokerConfig)
	}
	add(key.Synonym, key.Default, kmsg.ConfigSourceDefaultConfig)
	return out
}

// Created returns a new topic's configs as CreateTopics answers them from version 5 on (KIP-525), sorted by name.
func (d Defaults) Created(topic Get) []kmsg.CreateTopicsResponseTopicConfig {
	out := make([]kmsg.CreateTopicsResponseTopicConfig, 0, len(table))
	for _, key := range table {
		value, source := d.Value(key, topic)
		entry := kmsg.NewCreateTopicsResponseTopicConfig()
		entry.Name, entry.Value, entry.Source = key.Name, &value, int8(source)
		out = append(out, entry)
	}
	return out
}
