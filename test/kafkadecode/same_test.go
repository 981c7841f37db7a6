//go:build kafkadecode

package kafkadecode

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// same compares a struct of ours with the JSON that Kafka printed of it. Fields have Kafka's names but for the
// case of letters. Kafka leaves out tagged fields that have their default.
func same(ours reflect.Value, theirs map[string]any) error {
	left := map[string]any{}
	for k, v := range theirs {
		left[strings.ToLower(k)] = v
	}
	for i := range ours.NumField() {
		name := ours.Type().Field(i).Name
		if name == "Version" || name == "UnknownTags" {
			continue
		}
		v, ok := left[strings.ToLower(name)]
		delete(left, strings.ToLower(name))
		if !ok {
			if !isDefault(ours.Type().Name(), name, ours.Field(i)) {
				return fmt.Errorf("%s is %v, Kafka doesn't see it", name, ours.Field(i))
			}
			continue
		}
		if err := sameValue(ours.Field(i), v); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for k := range left {
		return fmt.Errorf("Kafka sees a field %q that we don't have", k)
	}
	return nil
}

// isDefault says whether a tagged field has the value that is not written.
func isDefault(record, field string, v reflect.Value) bool {
	if record == "PartitionChangeRecord" {
		switch field {
		case "Leader":
			return v.Int() == int64(metadata.NoLeaderChange)
		case "LeaderRecoveryState":
			return v.Int() == int64(metadata.NoLeaderRecoveryChanged)
		}
	}
	if v.Kind() == reflect.Slice && (record != "PartitionChangeRecord" || v.IsNil()) {
		return v.Len() == 0
	}
	return v.IsZero()
}

func sameValue(ours reflect.Value, theirs any) error {
	got := "null"
	switch v := theirs.(type) {
	case nil:
	case []any:
		return sameList(ours, v)
	case map[string]any:
		return same(ours, v)
	case json.Number:
		if ours.Kind() == reflect.Float64 {
			f, err := v.Float64()
			if err == nil && f != ours.Float() {
				err = fmt.Errorf("ours is %v, Kafka's %v", ours.Float(), f)
			}
			return err
		}
		got = v.String()
	case bool:
		got = strconv.FormatBool(v)
	case string:
		got = v
	}
	if want := text(ours); got != want {
		return fmt.Errorf("ours is %s, Kafka's %s", want, got)
	}
	return nil
}

func sameList(ours reflect.Value, theirs []any) error {
	if ours.Kind() != reflect.Slice || ours.Len() != len(theirs) {
		return fmt.Errorf("ours is %v, Kafka's %v", ours, theirs)
	}
	for i, v := range theirs {
		if err := sameValue(ours.Index(i), v); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return nil
}

func text(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case ident.UUID:
		return x.String()
	case []byte:
		return base64.StdEncoding.EncodeToString(x)
	case *string:
		if x == nil {
			return "null"
		}
		return *x
	}
	if v.Kind() == reflect.Slice && v.IsNil() {
		return "null"
	}
	return fmt.Sprint(v.Interface())
}
