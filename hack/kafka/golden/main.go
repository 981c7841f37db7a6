// Command golden drives a real Kafka so that its metadata log and its snapshots come to hold every kind of record
// that Kafka 4 writes. make-golden.sh starts the nodes and copies the files.
//
//	golden single BOOTSTRAP NODE1DIR
//	golden features BOOTSTRAP SASL_BOOTSTRAP NODE1DIR NODE2DIR NODESH
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "golden:", err)
		cancel()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	switch {
	case len(args) == 3 && args[0] == "single":
		single(newAdmin(ctx, args[1]), args[2])
	case len(args) == 6 && args[0] == "features":
		features(newAdmin(ctx, args[1]), args[2], args[3], args[4], args[5])
	default:
		return fmt.Errorf("unknown arguments %q", args)
	}
	return nil
}

// admin sends requests to one cluster. Its methods panic on an error: this program does one thing, from the start.
type admin struct {
	ctx  context.Context
	cl   *kgo.Client
	seed string
}

func newAdmin(ctx context.Context, seed string, opts ...kgo.Opt) *admin {
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(seed), kgo.RetryTimeout(40*time.Second))...)
	check(err)
	a := &admin{ctx: ctx, cl: cl, seed: seed}
	a.wait("the first answer", func() bool { return cl.Ping(ctx) == nil })
	return a
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func step(format string, args ...any) { fmt.Fprintf(os.Stderr, "  "+format+"\n", args...) }

// do sends a request and panics on any error code in the response.
func (a *admin) do(req kmsg.Request) kmsg.Response {
	resp, err := a.cl.Request(a.ctx, req)
	check(err)
	checkCodes(kmsg.NameForKey(req.Key()), reflect.ValueOf(resp))
	return resp
}

func checkCodes(what string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			checkCodes(what, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			checkCodes(what, v.Index(i))
		}
	case reflect.Struct:
		if code := v.FieldByName("ErrorCode"); code.IsValid() && code.Int() != 0 {
			panic(fmt.Errorf("%s: %w: %+v", what, kerr.ErrorForCode(int16(code.Int())), v.Interface()))
		}
		for i := range v.NumField() {
			checkCodes(what, v.Field(i))
		}
	}
}

// wait asks again and again until ready says yes.
func (a *admin) wait(what string, ready func() bool) {
	for !ready() {
		select {
		case <-a.ctx.Done():
			panic(fmt.Errorf("waiting for %s: %w", what, a.ctx.Err()))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// waitSnapshot waits for a snapshot that is newer than all that were there.
func (a *admin) waitSnapshot(nodeDir string) {
	list := func() []string {
		names, err := filepath.Glob(filepath.Join(nodeDir, "data/__cluster_metadata-0/*.checkpoint"))
		check(err)
		return names
	}
	before := list()
	step("waiting for a snapshot")
	a.wait("a snapshot", func() bool {
		return slices.ContainsFunc(list(), func(name string) bool { return !slices.Contains(before, name) })
	})
}

func (a *admin) createTopic(name string, partitions int32, assignment [][]int32, configs ...string) {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 20000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, 1
	if assignment != nil {
		t.NumPartitions, t.ReplicationFactor = -1, -1
		for i, replicas := range assignment {
			ra := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			ra.Partition, ra.Replicas = int32(i), replicas
			t.ReplicaAssignment = append(t.ReplicaAssignment, ra)
		}
	}
	for i := 0; i < len(configs); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = configs[i], &configs[i+1]
		t.Configs = append(t.Configs, c)
	}
	req.Topics = append(req.Topics, t)
	step("create topic %s", name)
	a.do(req)
}

func (a *admin) deleteTopic(name string) {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 20000
	t := kmsg.NewDeleteTopicsRequestTopic()
	t.Topic = &name
	req.TopicNames, req.Topics = []string{name}, append(req.Topics, t)
	step("delete topic %s", name)
	a.do(req)
}

// setConfig sets one config; a nil value deletes it.
func (a *admin) setConfig(resourceType kmsg.ConfigResourceType, resource, key string, value *string) {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = resourceType, resource
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = key, value
	if value == nil {
		c.Op = kmsg.IncrementalAlterConfigOpDelete
	}
	r.Configs = append(r.Configs, c)
	req.Resources = append(req.Resources, r)
	step("config %v %q: %s", resourceType, resource, key)
	a.do(req)
}

func (a *admin) partition(topic string, index int32) kmsg.MetadataResponseTopicPartition {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &topic
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(a.ctx, a.cl)
	check(err)
	for _, p := range resp.Topics[0].Partitions {
		if p.Partition == index {
			return p
		}
	}
	return kmsg.MetadataResponseTopicPartition{}
}

func (a *admin) waitISR(topic string, size int) {
	step("waiting for %s to have %d in sync", topic, size)
	a.wait("the ISR of "+topic, func() bool { return len(a.partition(topic, 0).ISR) == size })
}

// produce writes records of all shapes: every compression, keys, headers, empty and missing values.
func (a *admin) produce(topic string, opts ...kgo.Opt) {
	step("produce to %s", topic)
	for _, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(),
		kgo.Lz4Compression(), kgo.ZstdCompression()} {
		cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(a.seed), kgo.ProducerBatchCompression(codec),
			kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(topic))...)
		check(err)
		var records []*kgo.Record
		for i := range 8 {
			r := &kgo.Record{Value: []byte(fmt.Sprintf("record %d of %d, of a length that is worth compressing", i, 8))}
			if i%2 == 1 {
				r.Key = []byte(fmt.Sprint("key-", i))
				r.Headers = []kgo.RecordHeader{{Key: "h", Value: []byte("v")}}
			}
			if i == 7 {
				r.Value = nil
			}
			records = append(records, r)
		}
		check(cl.ProduceSync(a.ctx, records...).FirstErr())
		cl.Close()
	}
}

func nodeCommand(script, what, dir string) {
	step("%s node in %s", what, filepath.Base(dir))
	cmd := exec.Command(script, what, dir)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	check(cmd.Run())
}
