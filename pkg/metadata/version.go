package metadata

// A Level is what the finalized features allow to be written: a record's version follows from it (KIP-778).
type Level struct {
	MetadataVersion int16
	ELR             bool // eligible.leader.replicas.version is at least 1
}

// Pinned is the level that this build writes: metadata.version 4.1-IV1, no eligible leader replicas.
var Pinned = Level{MetadataVersion: 27}

// The metadata versions at which what is written changed.
const (
	MinMetadataVersion         int16 = 7  // 3.3-IV3; Kafka 4 reads nothing below it
	zkMigrationMetadataVersion int16 = 8  // 3.4-IV0
	directoriesMetadataVersion int16 = 17 // 3.7-IV2
	elrMetadataVersion         int16 = 23 // 4.0-IV1
	LatestMetadataVersion      int16 = 27 // 4.1-IV1, the last that this build reads
)

// VersionOf returns the version in which records of the given type are written at level l.
func (l Level) VersionOf(recordType int16) int16 {
	switch recordType {
	case TypeRegisterBroker:
		switch {
		case l.MetadataVersion >= directoriesMetadataVersion:
			return 3
		case l.MetadataVersion >= zkMigrationMetadataVersion:
			return 2
		}
		return 1
	case TypePartition, TypePartitionChange:
		switch {
		case l.ELR && l.MetadataVersion >= elrMetadataVersion:
			return 2
		case l.MetadataVersion >= directoriesMetadataVersion:
			return 1
		}
		return 0
	case TypeBrokerRegistrationChange:
		if l.MetadataVersion >= directoriesMetadataVersion {
			return 2
		}
		return 1
	}
	return 0
}

// Stamp gives every record the version in which level l writes it.
func (l Level) Stamp(records ...Record) {
	for _, r := range records {
		r.setVersion(l.VersionOf(r.RecordType()))
	}
}
