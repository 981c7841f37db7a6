package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/highwater-io/highwater/test/devcluster"
	"github.com/highwater-io/highwater/test/workload"
)

// list asks for the metadata and compares it with the Partition's status.
func (k *kcat) list(ctx context.Context) error {
	k.Say("list metadata")
	out, err := k.run(ctx, nil, "-L", "-J")
	if err != nil {
		return err
	}
	type member struct {
		ID int32 `json:"id"`
	}
	var listed struct {
		Brokers []struct {
			ID   int32  `json:"id"`
			Name string `json:"name"`
		} `json:"brokers"`
		Topics []struct {
			Topic      string `json:"topic"`
			Partitions []struct {
				Partition int32    `json:"partition"`
				Leader    int32    `json:"leader"`
				Replicas  []member `json:"replicas"`
				ISRs      []member `json:"isrs"`
			} `json:"partitions"`
		} `json:"topics"`
	}
	if err := json.Unmarshal(out, &listed); err != nil {
		return fmt.Errorf("kcat -L -J: %w", err)
	}
	p, err := k.Partition(ctx, devcluster.SamplePartition)
	if err != nil {
		return err
	}
	var names []string
	for _, b := range listed.Brokers {
		names = append(names, b.Name)
	}
	slices.Sort(names)
	if got := strings.Join(names, ","); got != k.brokers {
		return fmt.Errorf("kcat lists brokers %s, want %s", got, k.brokers)
	}
	for _, t := range listed.Topics {
		if t.Topic != k.topic {
			continue
		}
		ids := func(members []member) (out []int32) {
			for _, m := range members {
				out = append(out, m.ID)
			}
			slices.Sort(out)
			return out
		}
		if len(t.Partitions) != 1 {
			return fmt.Errorf("kcat lists %d partitions of %s, want 1", len(t.Partitions), k.topic)
		}
		got := t.Partitions[0]
		want := slices.Sorted(slices.Values(p.Status.ISR))
		if got.Leader != *p.Status.Leader || !slices.Equal(ids(got.ISRs), want) || len(got.Replicas) != len(p.Status.Assignment) {
			return fmt.Errorf("kcat lists leader %d, ISR %v; the status says leader %d, ISR %v", got.Leader, ids(got.ISRs), *p.Status.Leader, want)
		}
		k.Say("  3 brokers; %s: leader %d, ISR %v, as the Partition's status says", t.Topic, got.Leader, ids(got.ISRs))
		return nil
	}
	return fmt.Errorf("kcat does not list topic %s", k.topic)
}

// codecs are all of librdkafka's, with kgo's numbers for them.
var codecs = []struct {
	name   string
	number uint8
}{{"none", 0}, {"gzip", 1}, {"snappy", 2}, {"lz4", 3}, {"zstd", 4}}

// messagesPerCodec is enough for several batches.
const messagesPerCodec = 500

func (k *kcat) produceWithEachCodec(ctx context.Context) error {
	k.Say("produce %d messages with each codec, acks=all", messagesPerCodec)
	random := rand.New(rand.NewPCG(1, 2))
	for _, codec := range codecs {
		began := time.Now()
		var messages []message
		for i := range messagesPerCodec {
			// Text that compresses, of very different lengths, the empty one among them.
			value := strings.Repeat(fmt.Sprintf("%s %d;", codec.name, random.IntN(1000)), i%97)
			messages = append(messages, message{key: fmt.Sprintf("%s-%d", codec.name, i), value: value, codec: codec.name, at: began})
		}
		k.paused = append(k.paused, len(k.written))
		if err := k.produce(ctx, messages, "-z", codec.name, "-X", "linger.ms=50"); err != nil {
			return err
		}
		// The next codec's messages have later timestamps.
		timer := time.NewTimer(50 * time.Millisecond)
		<-timer.C
	}
	return k.checkCodecs(ctx)
}

// checkCodecs looks, with another client, how the batches are stored: a broker that unpacked and packed them anew
// would also give back the same messages.
func (k *kcat) checkCodecs(ctx context.Context) error {
	records, err := workload.ReadAll(ctx, strings.Split(k.brokers, ","), k.topic)
	if err != nil {
		return err
	}
	if len(records) != len(k.written) {
		return fmt.Errorf("the partition holds %d records, kcat wrote %d", len(records), len(k.written))
	}
	byCodec := map[string]int{}
	for i, r := range records {
		at := slices.IndexFunc(codecs, func(c struct {
			name   string
			number uint8
		}) bool {
			return c.number == r.Attrs.CompressionType()
		})
		if name := codecs[at].name; name != k.written[i].codec {
			// librdkafka sends a batch plain when compressing makes it no smaller.
			if name != "none" {
				return fmt.Errorf("offset %d is stored with codec %s, kcat sent %s", i, name, k.written[i].codec)
			}
			continue
		}
		byCodec[k.written[i].codec]++
	}
	for _, c := range codecs {
		if byCodec[c.name] == 0 {
			return fmt.Errorf("no record is stored with codec %s", c.name)
		}
	}
	k.Say("  records stored by codec: %v", byCodec)
	return nil
}

func (k *kcat) consume(ctx context.Context) error {
	k.Say("consume")
	return k.expect(ctx, "from the beginning", "beginning", 0, len(k.written))
}

// consumeFrom begins at an offset, at a distance from the end, at a time, and at the end.
func (k *kcat) consumeFrom(ctx context.Context) error {
	n := len(k.written)
	middle := n/2 + 7
	if err := k.expect(ctx, "from offset "+strconv.Itoa(middle), strconv.Itoa(middle), middle, n-middle); err != nil {
		return err
	}
	if err := k.expect(ctx, "the last 25", "-25", n-25, 25); err != nil {
		return err
	}
	if err := k.expect(ctx, "10 from offset 3", "3", 3, 10, "-c", "10"); err != nil {
		return err
	}
	for _, from := range k.paused[1:] {
		at := k.written[from].at.UnixMilli()
		if err := k.expect(ctx, fmt.Sprintf("from time %d", at), fmt.Sprintf("s@%d", at), from, n-from); err != nil {
			return err
		}
	}
	from, to := k.paused[1], k.paused[3]
	if err := k.expect(ctx, "between two times", fmt.Sprintf("s@%d", k.written[from].at.UnixMilli()), from, to-from,
		"-o", fmt.Sprintf("e@%d", k.written[to].at.UnixMilli())); err != nil {
		return err
	}
	return k.expect(ctx, "from the end", "end", n, 0)
}

// idempotent writes with a producer id, whose sequence numbers the leader checks.
func (k *kcat) idempotent(ctx context.Context) error {
	k.Say("produce idempotently")
	from := len(k.written)
	var messages []message
	for i := range 1000 {
		messages = append(messages, message{key: strconv.Itoa(i), value: "idempotent " + strconv.Itoa(i), at: time.Now()})
	}
	if err := k.produce(ctx, messages, "-X", "enable.idempotence=true", "-X", "batch.num.messages=50"); err != nil {
		return err
	}
	if err := k.expect(ctx, "what was produced idempotently", strconv.Itoa(from), from, len(messages)); err != nil {
		return err
	}
	records, err := workload.ReadAll(ctx, strings.Split(k.brokers, ","), k.topic)
	if err != nil {
		return err
	}
	if plain := slices.IndexFunc(records[from:], func(r *kgo.Record) bool { return r.ProducerID < 0 }); plain >= 0 {
		return fmt.Errorf("offset %d has no producer id", from+plain)
	}
	return nil
}

// binary writes one message of random bytes, with headers, as a whole file.
func (k *kcat) binary(ctx context.Context) error {
	k.Say("produce one message of 900,000 random bytes with headers")
	content := make([]byte, 900_000)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(content)
	file, err := os.CreateTemp(k.Dir, "message-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(content)
	if err := file.Close(); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	if _, err := k.run(ctx, nil, "-P", "-t", k.topic, "-p", "0", "-z", "lz4", "-X", "acks=all", "-H", "origin=random", "-H", "empty=", file.Name()); err != nil {
		return err
	}
	offset := strconv.Itoa(len(k.written))
	k.written = append(k.written, message{})
	got, err := k.run(ctx, nil, "-C", "-t", k.topic, "-p", "0", "-e", "-q", "-o", offset, "-f", "%h\n%s")
	if err != nil {
		return err
	}
	if want := append([]byte("origin=random,empty=\n"), content...); !bytes.Equal(got, want) {
		return fmt.Errorf("the binary message came back as %d bytes, want %d; they differ from byte %d on", len(got), len(want), common(got, want))
	}
	k.Say("  the same byte for byte")
	return nil
}

// query asks for offsets: the first, the end, and those of times.
func (k *kcat) query(ctx context.Context) error {
	k.Say("query offsets")
	asks := []struct {
		at   int64
		want int
	}{{-2, 0}, {-1, len(k.written)}, {0, 0}}
	for _, from := range k.paused {
		asks = append(asks, struct {
			at   int64
			want int
		}{k.written[from].at.UnixMilli(), from})
	}
	for _, ask := range asks {
		out, err := k.run(ctx, nil, "-Q", "-t", fmt.Sprintf("%s:0:%d", k.topic, ask.at))
		if err != nil {
			return err
		}
		if got, want := strings.TrimSpace(string(out)), fmt.Sprintf("%s [0] offset %d", k.topic, ask.want); got != want {
			return fmt.Errorf("kcat -Q for %d says %q, want %q", ask.at, got, want)
		}
		k.Say("  %d: offset %d", ask.at, ask.want)
	}
	return nil
}

// refusals are errors that kcat must be told and not wait for.
func (k *kcat) refusals(ctx context.Context) error {
	k.Say("ask for what is not there")
	if out, err := k.run(ctx, nil, "-C", "-t", "no-such-topic", "-p", "0", "-e", "-q"); err == nil {
		return fmt.Errorf("kcat consumed a topic that does not exist: %q", out)
	} else if !strings.Contains(err.Error(), "Unknown topic or partition") && !strings.Contains(err.Error(), "Unknown partition") {
		return fmt.Errorf("a topic that does not exist: %w", err)
	}
	if _, err := k.run(ctx, bytes.Repeat([]byte("x"), 2_000_000), "-P", "-t", k.topic, "-p", "0", "-X", "acks=all", "-X", "message.max.bytes=4000000"); err == nil {
		return fmt.Errorf("a message of 2,000,000 bytes was taken, above the topic's max.message.bytes")
	} else if !strings.Contains(err.Error(), "too large") {
		return fmt.Errorf("a message that is too large: %w", err)
	}
	k.Say("  an unknown topic and a message too large are refused with Kafka's errors")
	return k.expect(ctx, "all but the binary one again", "beginning", 0, len(k.written)-1, "-c", strconv.Itoa(len(k.written)-1))
}
