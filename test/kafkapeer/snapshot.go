package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/test/nodes"
)

// metadataDir is where a node has its metadata log within its data directory.
const metadataDir = ident.MetadataTopic + "-0"

// snapshot stops the broker in order, lets our logs be trimmed beyond it, and starts it again.
func (p *proof) snapshot(ctx context.Context) error {
	p.check("SIGTERM: a controlled shutdown; our controller moves its leaders and fences it", func() (string, error) {
		began := time.Now()
		if err := p.broker.stop(); err != nil {
			return "", err
		}
		took := time.Since(began)
		if fenced, err := p.isFenced(ctx, kafkaID); err != nil || !fenced {
			return "", errors.Join(err, errors.New("it has stopped and is not fenced"))
		}
		// Not by the end of its session: the shutdown itself moved them.
		return fmt.Sprintf("%.1f s", took.Seconds()), errors.Join(p.inSync(ctx, topicMixed, 0, 0, 0), p.inSync(ctx, topicMixed, 1, 0, 0))
	})
	p.check("our metadata log, as the broker has stored it, and the snapshots that the broker took of it, read by our decoder", func() (string, error) {
		found, err := readMetadata(filepath.Join(p.broker.data(), metadataDir), -1)
		if err == nil && found.images == 0 {
			err = errors.New("the broker took no snapshot")
		}
		return found.String(), err
	})
	raw, err := os.ReadFile(p.broker.log())
	if err != nil {
		return err
	}
	before := len(raw)
	end, err := p.brokersEnd()
	if err != nil {
		return err
	}
	churned := 0
	if !p.check("our log is trimmed beyond where the broker is", func() (string, error) {
		var start int64
		err := nodes.WaitFor(ctx, time.Minute, func(ctx context.Context) error {
			if err := createTopic(ctx, p.client, fmt.Sprintf("churn-%d", churned), nil, []int32{0, 1}, []int32{1, 0}, []int32{0, 1}); err != nil {
				return err
			}
			churned++ // of three partitions
			for _, voter := range p.ours.Voters {
				var err error
				if start, err = metric(ctx, voter, metricLogStart); err != nil {
					return err
				}
				if start <= end {
					return fmt.Errorf("the log of voter %d starts at %d", voter.ID, start)
				}
			}
			return nil
		})
		return fmt.Sprintf("starts at %d, the broker's ends at %d; %d topics more", start, end, churned), err
	}) {
		return errors.New("there is nothing to install")
	}
	if err := p.broker.start(); err != nil {
		return err
	}
	if !p.check("it starts, is unfenced and in sync", func() (string, error) {
		if err := p.waitUnfenced(ctx); err != nil {
			return "", err
		}
		return p.sameBytes(ctx, 0, 0)
	}) {
		return errors.New("the broker did not come back")
	}
	p.check("it has installed our snapshot by FetchSnapshot, the same byte for byte", func() (string, error) { return p.installed(before, end) })
	p.check("it knows every topic that our nodes know", func() (string, error) {
		ours, err := kadm.NewClient(p.client).ListTopicsWithInternal(ctx)
		if err != nil {
			return "", err
		}
		out, err := tool(ctx, topics, "--bootstrap-server", p.broker.external, "--list")
		if err != nil {
			return "", err
		}
		got, want := slices.Sorted(slices.Values(strings.Fields(out))), slices.Sorted(maps.Keys(ours))
		if !slices.Equal(got, want) {
			return "", fmt.Errorf("it lists %v, want %v", got, want)
		}
		return fmt.Sprintf("%d topics", len(want)), nil
	})
	p.check("still no load error", func() (string, error) { return p.loadErrors(ctx) })
	return nil
}

// brokersEnd is where the stopped broker's copy of the metadata log ends.
func (p *proof) brokersEnd() (int64, error) {
	raw, err := segments(filepath.Join(p.broker.data(), metadataDir))
	if err != nil {
		return 0, err
	}
	var end ident.Offset
	for b, err := range metadata.ReadBatches(raw) {
		if err != nil {
			return 0, err
		}
		end = b.LastOffset + 1
	}
	return int64(end), nil
}

// downloaded is what the broker logs when it has a snapshot.
var downloaded = regexp.MustCompile(`after downloading snapshot OffsetAndEpoch\[offset=(\d+), epoch=(\d+)\] from leader (\d+)`)

// installed finds the snapshot that the broker's log tells of, behind the bytes that it had before, and compares it
// with the file of the voter that it came from.
func (p *proof) installed(before int, end int64) (string, error) {
	raw, err := os.ReadFile(p.broker.log())
	if err != nil {
		return "", err
	}
	told := downloaded.FindSubmatch(raw[before:])
	if told == nil {
		return "", errors.New("its log tells of no snapshot that was downloaded")
	}
	offset, err1 := strconv.ParseInt(string(told[1]), 10, 64)
	epoch, err2 := strconv.ParseInt(string(told[2]), 10, 32)
	leader, err3 := strconv.ParseInt(string(told[3]), 10, 32)
	if err := errors.Join(err1, err2, err3); err != nil {
		return "", err
	}
	if offset <= end {
		return "", fmt.Errorf("it says %q, but had the log up to %d", told[0], end)
	}
	name := metadata.SnapshotID{EndOffset: ident.Offset(offset), Epoch: ident.Epoch(epoch)}.FileName()
	theirs, err1 := os.ReadFile(filepath.Join(p.broker.data(), metadataDir, name))
	ours, err2 := os.ReadFile(filepath.Join(p.ours.Node(int32(leader)).DataDir(), metadataDir, name))
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	if !bytes.Equal(theirs, ours) {
		return "", fmt.Errorf("%s has %d bytes at the broker and %d others at voter %d", name, len(theirs), len(ours), leader)
	}
	return fmt.Sprintf("%s, %d bytes, of voter %d", name, len(ours), leader), nil
}
