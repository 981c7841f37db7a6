package v1alpha1_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/internal/testenv"
)

const (
	partition  = "replicaSetRef: {name: logs}, "
	replicaSet = "replicas: 3, quorum: {voters: 3}, storage: {size: 1Gi}"
)

// row is an object that must be taken, or refused with a message that has wantError in it. Objects are made with
// dry-run, so rows do not meet; updated, when set, is the spec of an update to the object that spec made.
type row struct {
	rule      string
	kind      string
	name      string
	spec      string
	updated   string
	wantError string
}

var rows = []row{
	// Partition: the shape of a spec.
	{rule: "replication factor", kind: "Partition", spec: partition + "replicationFactor: 3, minInSyncReplicas: 2"},
	{rule: "assignment", kind: "Partition", spec: partition + "assignment: [2, 0, 1]"},
	{rule: "all fields", kind: "Partition", spec: partition + "topic: T.t_1-x, index: 3, replicationFactor: 3, minInSyncReplicas: 3, " +
		"uncleanLeaderElection: true, retention: {time: 1h30m, size: 10Gi}, config: {segment.bytes: '1048576'}, deletionPolicy: Delete"},
	{rule: "siblings inherit", kind: "Partition", spec: partition + "index: 1"},
	{rule: "index 0 decides", kind: "Partition", spec: partition + "index: 0", wantError: "set replicationFactor or assignment"},
	{rule: "index defaults to 0", kind: "Partition", spec: partition, wantError: "index 0 decides for the topic"},
	{rule: "not both", kind: "Partition", spec: partition + "replicationFactor: 1, assignment: [0]", wantError: "not both"},
	{rule: "replicaSetRef is required", kind: "Partition", spec: "replicationFactor: 1", wantError: "replicaSetRef: Required"},
	{rule: "replicaSetRef has a name", kind: "Partition", spec: "replicaSetRef: {name: ''}, replicationFactor: 1", wantError: "replicaSetRef.name"},
	{rule: "replicaSetRef.name is short", kind: "Partition", spec: "replicaSetRef: {name: " + strings.Repeat("a", 51) + "}, replicationFactor: 1", wantError: "Too long"},
	{rule: "replication factor at least 1", kind: "Partition", spec: partition + "replicationFactor: 0", wantError: "replicationFactor"},
	{rule: "replication factor at most 32", kind: "Partition", spec: partition + "replicationFactor: 33", wantError: "replicationFactor"},
	{rule: "assignment is not empty", kind: "Partition", spec: partition + "assignment: []", wantError: "assignment"},
	{rule: "assignment at most 32", kind: "Partition", spec: partition + "assignment: [" + numbers(33) + "]", wantError: "assignment"},
	{rule: "32 nodes are taken", kind: "Partition", spec: partition + "assignment: [" + numbers(32) + "]"},
	{rule: "assignment names each node once", kind: "Partition", spec: partition + "assignment: [0, 1, 0]", wantError: "each node once"},
	{rule: "assignment names no negative node", kind: "Partition", spec: partition + "assignment: [-1]", wantError: "assignment[0]"},
	{rule: "assignment names no voter", kind: "Partition", spec: partition + "assignment: [1000]", wantError: "assignment[0]"},
	{rule: "min ISR not above factor", kind: "Partition", spec: partition + "replicationFactor: 2, minInSyncReplicas: 3", wantError: "not be above replicationFactor"},
	{rule: "min ISR not above assignment", kind: "Partition", spec: partition + "assignment: [0, 1], minInSyncReplicas: 3", wantError: "nodes in assignment"},
	{rule: "min ISR at least 1", kind: "Partition", spec: partition + "replicationFactor: 1, minInSyncReplicas: 0", wantError: "minInSyncReplicas"},
	{rule: "min ISR at most 32", kind: "Partition", spec: partition + "index: 1, minInSyncReplicas: 33", wantError: "minInSyncReplicas"},
	{rule: "index not negative", kind: "Partition", spec: partition + "index: -1, replicationFactor: 1", wantError: "index"},
	{rule: "index at most 9999", kind: "Partition", spec: partition + "index: 10000", wantError: "index"},
	{rule: "topic is not empty", kind: "Partition", spec: partition + "topic: '', replicationFactor: 1", wantError: "topic"},
	{rule: "topic of the cluster itself", kind: "Partition", spec: partition + "topic: __consumer_offsets, replicationFactor: 1", wantError: "cluster's own"},
	{rule: "topic with one underscore", kind: "Partition", spec: partition + "topic: _schemas, replicationFactor: 1"},
	{rule: "topic characters", kind: "Partition", spec: partition + "topic: 'a b', replicationFactor: 1", wantError: "topic"},
	{rule: "topic is not a dot", kind: "Partition", spec: partition + "topic: '..', replicationFactor: 1", wantError: "not called"},
	{rule: "topic length", kind: "Partition", spec: partition + "replicationFactor: 1, topic: " + strings.Repeat("t", 250), wantError: "Too long"},
	{rule: "topic of 249", kind: "Partition", spec: partition + "replicationFactor: 1, topic: " + strings.Repeat("t", 249)},
	{rule: "name as topic of 250", kind: "Partition", name: strings.Repeat("n", 250), spec: partition + "replicationFactor: 1", wantError: "at most 249 characters"},
	{rule: "long name with a topic", kind: "Partition", name: strings.Repeat("n", 250), spec: partition + "topic: t, replicationFactor: 1"},
	{rule: "retention says something", kind: "Partition", spec: partition + "replicationFactor: 1, retention: {}", wantError: "retention"},
	{rule: "retention time is a duration", kind: "Partition", spec: partition + "replicationFactor: 1, retention: {time: 5 days}", wantError: "retention.time"},
	{rule: "retention time at least 1s", kind: "Partition", spec: partition + "replicationFactor: 1, retention: {time: 10ms}", wantError: "at least 1s"},
	{rule: "retention size above 0", kind: "Partition", spec: partition + "replicationFactor: 1, retention: {size: 0}", wantError: "above 0"},
	{rule: "retention time once", kind: "Partition", spec: partition + "replicationFactor: 1, retention: {time: 1h}, config: {retention.ms: '1'}", wantError: "retention or its key"},
	{rule: "retention size once", kind: "Partition", spec: partition + "replicationFactor: 1, retention: {size: 1Gi}, config: {retention.bytes: '1'}", wantError: "retention or its key"},
	{rule: "retention time beside bytes key", kind: "Partition", spec: partition + "replicationFactor: 1, retention: {time: 1h}, config: {retention.bytes: '1'}"},
	{rule: "config key has letters", kind: "Partition", spec: partition + "replicationFactor: 1, config: {Segment-Bytes: '1'}", wantError: "config keys are"},
	{rule: "config value length", kind: "Partition", spec: partition + "replicationFactor: 1, config: {a.b: " + strings.Repeat("v", 1025) + "}", wantError: "Too long"},
	{rule: "config has no min ISR", kind: "Partition", spec: partition + "replicationFactor: 1, config: {min.insync.replicas: '1'}", wantError: "use spec.minInSyncReplicas"},
	{rule: "config has no unclean election", kind: "Partition", spec: partition + "replicationFactor: 1, config: {unclean.leader.election.enable: 'true'}", wantError: "use spec.uncleanLeaderElection"},
	{rule: "deletion policy", kind: "Partition", spec: partition + "replicationFactor: 1, deletionPolicy: Keep", wantError: "deletionPolicy"},

	// Partition: what may change.
	{rule: "replicaSetRef stays", kind: "Partition", spec: partition + "replicationFactor: 1", updated: "replicaSetRef: {name: other}, replicationFactor: 1", wantError: "replicaSetRef.name is immutable"},
	{rule: "index stays", kind: "Partition", spec: partition + "index: 1", updated: partition + "index: 2", wantError: "index is immutable"},
	{rule: "topic stays", kind: "Partition", spec: partition + "topic: a, replicationFactor: 1", updated: partition + "topic: b, replicationFactor: 1", wantError: "topic is immutable"},
	{rule: "topic is not unset", kind: "Partition", spec: partition + "topic: a, replicationFactor: 1", updated: partition + "replicationFactor: 1", wantError: "topic is immutable"},
	{rule: "topic is not set later", kind: "Partition", spec: partition + "replicationFactor: 1", updated: partition + "topic: a, replicationFactor: 1", wantError: "topic is immutable"},
	{rule: "settings change", kind: "Partition", spec: partition + "replicationFactor: 3", updated: partition + "replicationFactor: 3, minInSyncReplicas: 2, config: {segment.bytes: '1'}, deletionPolicy: Delete"},

	// ReplicaSet: the shape of a spec.
	{rule: "least", kind: "ReplicaSet", spec: replicaSet},
	{rule: "all fields", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, mode: Dedicated, storage: {size: 2Gi, storageClassName: fast}, snapshots: {maxInterval: 30m}}, image: r/i:1, " +
		"storage: {size: 1Gi, storageClassName: slow, retention: Delete}, defaults: {replicaLagTimeMax: 4s, minInSyncReplicas: 2}, " +
		"resources: {requests: {cpu: 100m, memory: 1Gi}, limits: {memory: 2Gi}}, pods: {labels: {team: a}, annotations: {note: b}, nodeSelector: {disk: ssd}, " +
		"tolerations: [{key: k, value: v, effect: NoExecute, tolerationSeconds: 5}, {operator: Exists}], topologySpread: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]}"},
	{rule: "replicas are required", kind: "ReplicaSet", spec: "quorum: {voters: 3}, storage: {size: 1Gi}", wantError: "replicas: Required"},
	{rule: "replicas at least 1", kind: "ReplicaSet", spec: "replicas: 0, quorum: {voters: 3}, storage: {size: 1Gi}", wantError: "spec.replicas"},
	{rule: "replicas at most 1000", kind: "ReplicaSet", spec: "replicas: 1001, quorum: {voters: 3}, storage: {size: 1Gi}", wantError: "spec.replicas"},
	{rule: "quorum is required", kind: "ReplicaSet", spec: "replicas: 3, storage: {size: 1Gi}", wantError: "quorum: Required"},
	{rule: "voters are odd", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 2}, storage: {size: 1Gi}", wantError: "must be odd"},
	{rule: "voters at least 1", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 0}, storage: {size: 1Gi}", wantError: "quorum.voters"},
	{rule: "voters at most 9", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 11}, storage: {size: 1Gi}", wantError: "quorum.voters"},
	{rule: "mode", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, mode: Mixed}, storage: {size: 1Gi}", wantError: "quorum.mode"},
	{rule: "combined voters are data nodes", kind: "ReplicaSet", spec: "replicas: 1, quorum: {voters: 3, mode: Combined}, storage: {size: 1Gi}", wantError: "replicas must not be below quorum.voters"},
	{rule: "dedicated voters are not", kind: "ReplicaSet", spec: "replicas: 1, quorum: {voters: 3}, storage: {size: 1Gi}"},
	{rule: "combined voters have no volume of their own", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, mode: Combined, storage: {size: 1Gi}}, storage: {size: 1Gi}", wantError: "quorum.storage is for mode Dedicated"},
	{rule: "voter volume above 0", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, storage: {size: 0}}, storage: {size: 1Gi}", wantError: "above 0"},
	{rule: "voter class has a name", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, storage: {size: 1, storageClassName: ''}}, storage: {size: 1Gi}", wantError: "storageClassName"},
	{rule: "snapshots", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, snapshots: {maxNewRecordBytes: 64Mi, maxInterval: 30m, retention: {size: 1Gi, age: 24h}}}, storage: {size: 1Gi}"},
	{rule: "snapshots say something", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, snapshots: {}}, storage: {size: 1Gi}", wantError: "quorum.snapshots"},
	{rule: "snapshot bytes at least 1Ki", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, snapshots: {maxNewRecordBytes: 1023}}, storage: {size: 1Gi}", wantError: "between 1Ki and 1Gi"},
	{rule: "snapshot bytes of 1Ki", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, snapshots: {maxNewRecordBytes: 1024}}, storage: {size: 1Gi}"},
	{rule: "snapshot bytes at most 1Gi", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, snapshots: {maxNewRecordBytes: 2Gi}}, storage: {size: 1Gi}", wantError: "between 1Ki and 1Gi"},
	{rule: "snapshot bytes are a quantity", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, snapshots: {maxNewRecordBytes: many}}, storage: {size: 1Gi}", wantError: "maxNewRecordBytes"},
	{rule: "snapshot interval at least 1s", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, snapshots: {maxInterval: 999ms}}, storage: {size: 1Gi}", wantError: "between 1s and 168h"},
	{rule: "snapshot interval at most a week", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, snapshots: {maxInterval: 169h}}, storage: {size: 1Gi}", wantError: "between 1s and 168h"},
	{rule: "snapshot interval has a unit", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, snapshots: {maxInterval: '60'}}, storage: {size: 1Gi}", wantError: "maxInterval"},
	{rule: "snapshot retention says something", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, snapshots: {retention: {}}}, storage: {size: 1Gi}", wantError: "quorum.snapshots.retention"},
	{rule: "snapshot retention size at least 1Ki", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, snapshots: {retention: {size: 1}}}, storage: {size: 1Gi}", wantError: "between 1Ki and 1Ti"},
	{rule: "snapshot retention size at most 1Ti", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, snapshots: {retention: {size: 2Ti}}}, storage: {size: 1Gi}", wantError: "between 1Ki and 1Ti"},
	{rule: "snapshot retention age at least 1m", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, snapshots: {retention: {age: 59s}}}, storage: {size: 1Gi}", wantError: "between 1m and 8760h"},
	{rule: "snapshot retention age at most a year", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, snapshots: {retention: {age: 8761h}}}, storage: {size: 1Gi}", wantError: "between 1m and 8760h"},
	{rule: "storage is required", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3}", wantError: "storage: Required"},
	{rule: "size is required", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3}, storage: {}", wantError: "storage.size: Required"},
	{rule: "size above 0", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3}, storage: {size: '-1Gi'}", wantError: "above 0"},
	{rule: "size is a quantity", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3}, storage: {size: big}", wantError: "storage.size"},
	{rule: "class has a name", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3}, storage: {size: 1, storageClassName: ''}", wantError: "storageClassName"},
	{rule: "volume retention", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3}, storage: {size: 1Gi, retention: Keep}", wantError: "storage.retention"},
	{rule: "image has no space", kind: "ReplicaSet", spec: replicaSet + ", image: 'a b'", wantError: "spec.image"},
	{rule: "image has a name", kind: "ReplicaSet", spec: replicaSet + ", image: ''", wantError: "spec.image"},
	{rule: "lag time is a duration", kind: "ReplicaSet", spec: replicaSet + ", defaults: {replicaLagTimeMax: '30'}", wantError: "replicaLagTimeMax"},
	{rule: "lag time at least 500ms", kind: "ReplicaSet", spec: replicaSet + ", defaults: {replicaLagTimeMax: 100ms}", wantError: "between 500ms and 1h"},
	{rule: "lag time at most 1h", kind: "ReplicaSet", spec: replicaSet + ", defaults: {replicaLagTimeMax: 2h}", wantError: "between 500ms and 1h"},
	{rule: "default min ISR at least 1", kind: "ReplicaSet", spec: replicaSet + ", defaults: {minInSyncReplicas: 0}", wantError: "minInSyncReplicas"},
	{rule: "default min ISR at most 32", kind: "ReplicaSet", spec: replicaSet + ", defaults: {minInSyncReplicas: 33}", wantError: "minInSyncReplicas"},
	{rule: "flush policies", kind: "ReplicaSet", spec: replicaSet + ", defaults: {flush: Always}"},
	{rule: "flush policies are two", kind: "ReplicaSet", spec: replicaSet + ", defaults: {flush: Sometimes}", wantError: "defaults.flush"},
	{rule: "requests", kind: "ReplicaSet", spec: replicaSet + ", resources: {requests: {gpu: 1}}", wantError: "resources are cpu"},
	{rule: "limits", kind: "ReplicaSet", spec: replicaSet + ", resources: {limits: {hugepages-2Mi: 1}}", wantError: "resources are cpu"},
	{rule: "labels of the operator", kind: "ReplicaSet", spec: replicaSet + ", pods: {labels: {app.kubernetes.io/name: x}}", wantError: "not yours to set"},
	{rule: "labels of this group", kind: "ReplicaSet", spec: replicaSet + ", pods: {labels: {replication.highwater.dev/role: x}}", wantError: "not yours to set"},
	{rule: "no pod-template-hash", kind: "ReplicaSet", spec: replicaSet + ", pods: {labels: {pod-template-hash: x}}", wantError: "not yours to set"},
	{rule: "label text", kind: "ReplicaSet", spec: replicaSet + ", pods: {labels: {a: 'b c'}}", wantError: "pods.labels.a"},
	{rule: "annotations of this group", kind: "ReplicaSet", spec: replicaSet + ", pods: {annotations: {replication.highwater.dev/format-permit: x}}", wantError: "not yours to set"},
	{rule: "toleration without key", kind: "ReplicaSet", spec: replicaSet + ", pods: {tolerations: [{value: v}]}", wantError: "needs operator Exists"},
	{rule: "toleration with value", kind: "ReplicaSet", spec: replicaSet + ", pods: {tolerations: [{key: k, operator: Exists, value: v}]}", wantError: "has no value"},
	{rule: "toleration operator", kind: "ReplicaSet", spec: replicaSet + ", pods: {tolerations: [{key: k, operator: Lt}]}", wantError: "operator"},
	{rule: "toleration effect", kind: "ReplicaSet", spec: replicaSet + ", pods: {tolerations: [{key: k, effect: Run}]}", wantError: "effect"},
	{rule: "one spread for each key", kind: "ReplicaSet", spec: replicaSet + ", pods: {topologySpread: [{topologyKey: a}, {topologyKey: a}]}", wantError: "Duplicate"},
	{rule: "spread that can't be", kind: "ReplicaSet", spec: replicaSet + ", pods: {topologySpread: [{topologyKey: a, whenUnsatisfiable: Never}]}", wantError: "whenUnsatisfiable"},
	{rule: "name of 50", kind: "ReplicaSet", name: strings.Repeat("a", 50), spec: replicaSet},
	{rule: "name of 51", kind: "ReplicaSet", name: strings.Repeat("a", 51), spec: replicaSet, wantError: "at most 50"},
	{rule: "name begins with a letter", kind: "ReplicaSet", name: "1a", spec: replicaSet, wantError: "beginning with a letter"},
	{rule: "name has no dot", kind: "ReplicaSet", name: "a.b", spec: replicaSet, wantError: "small letters, digits and dashes"},

	// ReplicaSet: what may change.
	{rule: "snapshots change", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, snapshots: {maxInterval: 1h}}, storage: {size: 1Gi}", updated: "replicas: 3, quorum: {voters: 3, snapshots: {maxNewRecordBytes: 1Mi}}, storage: {size: 1Gi}"},
	{rule: "snapshots are unset", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, snapshots: {maxInterval: 1h}}, storage: {size: 1Gi}", updated: replicaSet},
	{rule: "replicas grow", kind: "ReplicaSet", spec: replicaSet, updated: "replicas: 4, quorum: {voters: 3}, storage: {size: 1Gi}"},
	{rule: "voters come", kind: "ReplicaSet", spec: replicaSet, updated: "replicas: 3, quorum: {voters: 5}, storage: {size: 1Gi}"},
	{rule: "voters go", kind: "ReplicaSet", spec: replicaSet, updated: "replicas: 3, quorum: {voters: 1}, storage: {size: 1Gi}"},
	{rule: "voters stay odd", kind: "ReplicaSet", spec: replicaSet, updated: "replicas: 3, quorum: {voters: 4}, storage: {size: 1Gi}", wantError: "must be odd"},
	{rule: "mode stays", kind: "ReplicaSet", spec: replicaSet, updated: "replicas: 3, quorum: {voters: 3, mode: Combined}, storage: {size: 1Gi}", wantError: "quorum.mode is immutable"},
	{rule: "mode is not unset", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, mode: Combined}, storage: {size: 1Gi}", updated: replicaSet, wantError: "quorum.mode is immutable"},
	{rule: "voter volume grows from what it is when unset", kind: "ReplicaSet", spec: replicaSet, updated: "replicas: 3, quorum: {voters: 3, storage: {size: 2Gi}}, storage: {size: 1Gi}"},
	{rule: "voter volume is not below what it is when unset", kind: "ReplicaSet", spec: replicaSet, updated: "replicas: 3, quorum: {voters: 3, storage: {size: 500Mi}}, storage: {size: 1Gi}", wantError: "quorum.storage.size can't be made smaller"},
	{rule: "voter volume grows", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, storage: {size: 2Gi, storageClassName: a}}, storage: {size: 1Gi}", updated: "replicas: 3, quorum: {voters: 3, storage: {size: 3Gi, storageClassName: a}}, storage: {size: 1Gi}"},
	{rule: "voter volume does not shrink", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, storage: {size: 2Gi}}, storage: {size: 1Gi}", updated: "replicas: 3, quorum: {voters: 3, storage: {size: 1Gi}}, storage: {size: 1Gi}", wantError: "quorum.storage.size can't be made smaller"},
	{rule: "voter volume is not unset", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, storage: {size: 2Gi}}, storage: {size: 1Gi}", updated: replicaSet, wantError: "quorum.storage.size can't be made smaller"},
	{rule: "voter class stays", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3, storage: {size: 2Gi, storageClassName: a}}, storage: {size: 1Gi}", updated: "replicas: 3, quorum: {voters: 3, storage: {size: 2Gi, storageClassName: b}}, storage: {size: 1Gi}", wantError: "quorum.storage.storageClassName is immutable"},
	{rule: "voter class is not set later", kind: "ReplicaSet", spec: replicaSet, updated: "replicas: 3, quorum: {voters: 3, storage: {size: 1Gi, storageClassName: b}}, storage: {size: 1Gi}", wantError: "quorum.storage.storageClassName is immutable"},
	{rule: "class stays", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3}, storage: {size: 1Gi, storageClassName: a}",
		updated: "replicas: 3, quorum: {voters: 3}, storage: {size: 1Gi, storageClassName: b}", wantError: "storageClassName is immutable"},
	{rule: "class is not unset", kind: "ReplicaSet", spec: "replicas: 3, quorum: {voters: 3}, storage: {size: 1Gi, storageClassName: a}", updated: replicaSet, wantError: "storageClassName is immutable"},
	{rule: "size grows", kind: "ReplicaSet", spec: replicaSet, updated: "replicas: 3, quorum: {voters: 3}, storage: {size: 1500Mi}"},
	{rule: "size does not shrink", kind: "ReplicaSet", spec: replicaSet, updated: "replicas: 3, quorum: {voters: 3}, storage: {size: 1000Mi}", wantError: "storage.size can't be made smaller: a volume only grows"},
	{rule: "size may be written otherwise", kind: "ReplicaSet", spec: replicaSet, updated: "replicas: 3, quorum: {voters: 3}, storage: {size: 1024Mi}"},
	{rule: "volume retention changes", kind: "ReplicaSet", spec: replicaSet, updated: "replicas: 3, quorum: {voters: 3}, storage: {size: 1Gi, retention: Delete}"},
}

func numbers(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprint(i))
	}
	return strings.Join(all, ", ")
}

func object(t *testing.T, kind, name, spec string) *unstructured.Unstructured {
	t.Helper()
	content := map[string]any{}
	if err := yaml.Unmarshal([]byte("spec: {"+strings.TrimSuffix(spec, ", ")+"}"), &content); err != nil {
		t.Fatalf("spec %q: %v", spec, err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion(hwv1alpha1.GroupVersion.String())
	u.SetKind(kind)
	u.SetName(name)
	u.SetNamespace("default")
	return u
}

func TestRulesOfTheSchema(t *testing.T) {
	strict := client.WithFieldValidation(api, metav1.FieldValidationStrict)
	for i, row := range rows {
		t.Run(row.kind+"/"+row.rule, func(t *testing.T) {
			name := row.name
			if name == "" {
				name = fmt.Sprintf("row-%d", i)
				if row.kind == hwv1alpha1.KindReplicaSet {
					name = fmt.Sprintf("r%d", i)
				}
			}
			made := object(t, row.kind, name, row.spec)
			var err error
			if row.updated == "" {
				err = strict.Create(t.Context(), made, client.DryRunAll)
			} else {
				if err := strict.Create(t.Context(), made); err != nil {
					t.Fatalf("create %s: %v", row.spec, err)
				}
				changed := object(t, row.kind, name, row.updated)
				changed.SetResourceVersion(made.GetResourceVersion())
				err = strict.Update(t.Context(), changed)
			}
			switch {
			case row.wantError == "" && err != nil:
				t.Errorf("refused: %v", err)
			case row.wantError != "" && err == nil:
				t.Errorf("taken, want it refused with %q", row.wantError)
			case row.wantError != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), row.wantError)):
				t.Errorf("refused with %v, want %q", err, row.wantError)
			}
		})
	}
}

func TestUnknownFieldIsRefusedByName(t *testing.T) {
	strict := client.WithFieldValidation(api, metav1.FieldValidationStrict)
	err := strict.Create(t.Context(), object(t, "Partition", "typo", partition+"replicationFacter: 3, index: 1"), client.DryRunAll)
	if err == nil || !strings.Contains(err.Error(), "replicationFacter") {
		t.Errorf("got %v, want an error that names the field", err)
	}
}

func TestDefaults(t *testing.T) {
	p := object(t, "Partition", "defaults", partition+"replicationFactor: 1")
	if err := api.Create(t.Context(), p, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	spec, _, _ := unstructured.NestedMap(p.Object, "spec")
	if spec["index"] != int64(0) || len(spec) != 3 {
		t.Errorf("a Partition's only default is index 0, got %v", spec)
	}
	r := object(t, "ReplicaSet", "defaults", replicaSet)
	if err := api.Create(t.Context(), r, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	if mode, _, _ := unstructured.NestedString(r.Object, "spec", "quorum", "mode"); mode != "Dedicated" {
		t.Errorf("quorum.mode defaults to %q, want Dedicated", mode)
	}
}

func TestScaleSubresourceHasReplicasAndSelector(t *testing.T) {
	r := object(t, "ReplicaSet", "scaled", replicaSet)
	if err := api.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	status := map[string]any{"replicas": int64(3), "selector": "a=b"}
	if err := unstructured.SetNestedMap(r.Object, status, "status"); err != nil {
		t.Fatal(err)
	}
	if err := api.Status().Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	scale := &unstructured.Unstructured{Object: map[string]any{}}
	scale.SetAPIVersion("autoscaling/v1")
	scale.SetKind("Scale")
	if err := api.SubResource("scale").Get(t.Context(), r, scale); err != nil {
		t.Fatal(err)
	}
	wanted, _, _ := unstructured.NestedInt64(scale.Object, "spec", "replicas")
	current, _, _ := unstructured.NestedInt64(scale.Object, "status", "replicas")
	selector, _, _ := unstructured.NestedString(scale.Object, "status", "selector")
	if wanted != 3 || current != 3 || selector != "a=b" {
		t.Errorf("scale: wanted %d, current %d, selector %q", wanted, current, selector)
	}
}

func TestSamplesAreTaken(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(testenv.Root(), "config", "samples", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	strict := client.WithFieldValidation(api, metav1.FieldValidationStrict)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sample := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &sample.Object); err != nil {
			t.Fatal(err)
		}
		sample.SetNamespace("default")
		if err := strict.Create(t.Context(), sample, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", filepath.Base(file), err)
		}
	}
}

// kubectl apply stores the whole object in an annotation of at most 262144 bytes.
func TestEachCRDIsSmallerThan200KB(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(testenv.Root(), "config", "crd", "bases", "*.yaml"))
	if err != nil || len(files) != 2 {
		t.Fatalf("want two CRDs, got %v: %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		asJSON, err := yaml.YAMLToJSON(text)
		if err != nil {
			t.Fatal(err)
		}
		if len(asJSON) >= 200_000 {
			t.Errorf("%s is %d bytes as JSON, want less than 200000", filepath.Base(file), len(asJSON))
		}
	}
}
