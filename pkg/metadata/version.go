package metadata

// A Level is a metadata.version: it decides in which version a record is written (KIP-778).
type Level int16

// Pinned is the level that this build writes: metadata.version 4.1-IV1.
const Pinned Level = 27

// The metadata versions that are read: Kafka 4 begins at 3.3-IV3, and this build knows them up to 4.1-IV1.
const (
	MinMetadataVersion    int16 = 7
	LatestMetadataVersion int16 = int16(Pinned)
)

// The levels at which what is written changed.
const (
	zkMigrationLevel Level = 8  // 3.4-IV0
	directoriesLevel Level = 17 // 3.7-IV2
	elrLevel         Level = 23 // 4.0-IV1
)

// VersionOf returns the highest version of records of the given type at level l, which is the one that is written
// except where Stamp says otherwise. As in Kafka 4.1, the
// fields for eligible leader replicas are there from 4.0-IV1 on, whether the feature is on or not.
func (l Level) VersionOf(recordType int16) int16 {
	switch recordType {
	case TypeRegisterBroker:
		switch {
		case l >= directoriesLevel:
			return 3
		case l >= zkMigrationLevel:
			return 2
		}
		return 1
	case TypePartition, TypePartitionChange:
		switch {
		case l >= elrLevel:
			return 2
		case l >= directoriesLevel:
			return 1
		}
		return 0
	case TypeBrokerRegistrationChange:
		if l >= directoriesLevel {
			return 2
		}
		return 1
	}
	return 0
}

// Stamp gives every record the version in which Kafka writes it at level l: that of VersionOf, but a
// BrokerRegistrationChange has the lowest one that holds what it says.
func (l Level) Stamp(records ...Record) {
	for _, r := range records {
		r.setVersion(l.VersionOf(r.RecordType()))
		if change, ok := r.(*BrokerRegistrationChangeRecord); ok {
			switch {
			case len(change.LogDirs) > 0:
				change.Version = 2
			case change.InControlledShutdown != NoShutdownChange:
				change.Version = 1
			default:
				change.Version = 0
			}
		}
	}
}
