//go:build kafkadecode

package kafkadecode

import (
	"math/rand"
	"reflect"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// versions are all record types and versions that we write or can come to write.
var versions = []struct {
	make       func() metadata.Record
	maxVersion int64
}{
	{func() metadata.Record { return &metadata.RegisterBrokerRecord{} }, 3},
	{func() metadata.Record { return &metadata.UnregisterBrokerRecord{} }, 0},
	{func() metadata.Record { return &metadata.TopicRecord{} }, 0},
	{func() metadata.Record { return &metadata.PartitionRecord{} }, 2},
	{func() metadata.Record { return &metadata.ConfigRecord{} }, 0},
	{func() metadata.Record { return metadata.NewPartitionChange(0) }, 2},
	{func() metadata.Record { return &metadata.FenceBrokerRecord{} }, 0},
	{func() metadata.Record { return &metadata.UnfenceBrokerRecord{} }, 0},
	{func() metadata.Record { return &metadata.RemoveTopicRecord{} }, 0},
	{func() metadata.Record { return &metadata.DelegationTokenRecord{} }, 0},
	{func() metadata.Record { return &metadata.UserScramCredentialRecord{} }, 0},
	{func() metadata.Record { return &metadata.FeatureLevelRecord{} }, 0},
	{func() metadata.Record { return &metadata.ClientQuotaRecord{} }, 0},
	{func() metadata.Record { return &metadata.ProducerIDsRecord{} }, 0},
	{func() metadata.Record { return &metadata.BrokerRegistrationChangeRecord{} }, 2},
	{func() metadata.Record { return &metadata.AccessControlEntryRecord{} }, 0},
	{func() metadata.Record { return &metadata.RemoveAccessControlEntryRecord{} }, 0},
	{func() metadata.Record { return &metadata.NoOpRecord{} }, 0},
	{func() metadata.Record { return &metadata.ZkMigrationStateRecord{} }, 0},
	{func() metadata.Record { return &metadata.RemoveUserScramCredentialRecord{} }, 0},
	{func() metadata.Record { return &metadata.BeginTransactionRecord{} }, 0},
	{func() metadata.Record { return &metadata.EndTransactionRecord{} }, 0},
	{func() metadata.Record { return &metadata.AbortTransactionRecord{} }, 0},
	{func() metadata.Record { return &metadata.RemoveDelegationTokenRecord{} }, 0},
	{func() metadata.Record { return &metadata.RegisterControllerRecord{} }, 0},
	{func() metadata.Record { return &metadata.ClearELRRecord{} }, 0},
}

// allRecords fills every type in every version n times with random values. Fields that the version has no room for
// keep their default.
func allRecords(rng *rand.Rand, n int) (records []metadata.Record) {
	for _, v := range versions {
		for version := range v.maxVersion + 1 {
			for range n {
				r := v.make()
				s := reflect.ValueOf(r).Elem()
				for i := range s.NumField() {
					old := reflect.New(s.Field(i).Type()).Elem()
					old.Set(s.Field(i))
					fill(rng, s.Field(i), s.Type().Field(i).Name)
					s.FieldByName("Version").SetInt(version)
					if _, err := metadata.TryEncode(nil, r); err != nil {
						s.Field(i).Set(old)
					}
				}
				records = append(records, r)
			}
		}
	}
	return records
}

func fill(rng *rand.Rand, f reflect.Value, name string) {
	switch name {
	case "Version":
		return
	case "UnknownTags":
		if rng.Intn(4) == 0 {
			f.Set(reflect.ValueOf([]metadata.Tag{{Number: uint32(20 + rng.Intn(1<<20)), Value: []byte{1, 2, 3}}}))
		}
		return
	case "LeaderRecoveryState", "Fenced", "InControlledShutdown":
		if f.Kind() == reflect.Int8 {
			f.SetInt(int64(rng.Intn(2)))
			return
		}
	}
	switch f.Kind() {
	case reflect.Bool:
		f.SetBool(rng.Intn(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		f.SetInt(int64(rng.Uint64()) >> (64 - f.Type().Bits()))
	case reflect.Uint8, reflect.Uint16:
		f.SetUint(rng.Uint64() >> (64 - f.Type().Bits()))
	case reflect.Float64:
		f.SetFloat(rng.NormFloat64())
	case reflect.String:
		f.SetString([]string{"", "a", "ä-name", "name with \"quotes\""}[rng.Intn(4)])
	case reflect.Pointer:
		if rng.Intn(3) > 0 {
			f.Set(reflect.New(f.Type().Elem()))
			fill(rng, f.Elem(), name)
		}
	case reflect.Array:
		var id ident.UUID
		rng.Read(id[:])
		f.Set(reflect.ValueOf(id))
	case reflect.Struct:
		for i := range f.NumField() {
			fill(rng, f.Field(i), f.Type().Field(i).Name)
		}
	case reflect.Slice:
		n := rng.Intn(4)
		f.Set(reflect.MakeSlice(f.Type(), n, n))
		for i := range n {
			fill(rng, f.Index(i), name)
		}
	}
}
