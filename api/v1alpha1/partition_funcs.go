package v1alpha1

// EffectiveTopic is the Kafka topic that p belongs to.
func (p *Partition) EffectiveTopic() string {
	if p.Spec.Topic != "" {
		return p.Spec.Topic
	}
	return p.Name
}

// WantedReplicationFactor is the replication factor that p asks for, or 0 when it leaves it to index 0.
func (p *Partition) WantedReplicationFactor() int32 {
	if p.Spec.ReplicationFactor != nil {
		return *p.Spec.ReplicationFactor
	}
	return int32(len(p.Spec.Assignment)) //nolint:gosec // the schema allows 32 items
}
