package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// read is what was read of a metadata directory.
type read struct {
	files, records, images int
	types                  map[string]int // by name
	image                  *metadata.Image
	end                    int64 // of the image
}

func (r read) String() string {
	return fmt.Sprintf("%d records of %d types in %d files, written again byte for byte; %d snapshots equal to the replay of the log", r.records, len(r.types), r.files, r.images)
}

// readMetadata reads a metadata directory with our decoder. Every record, and every batch of records, must be the same
// bytes when we write it again, and every snapshot that the log reaches must hold what the replay of the log gives. The
// image is that of the log up to an offset (exclusive), or of all of it for -1.
func readMetadata(dir string, end int64) (read, error) {
	found := read{types: map[string]int{}}
	snapshots, err := filepath.Glob(filepath.Join(dir, "*.checkpoint"))
	if err != nil {
		return found, err
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) == 0 {
		return found, errors.Join(err, fmt.Errorf("%s holds no log", dir))
	}
	slices.Sort(snapshots)
	slices.Sort(logs)
	for _, name := range slices.Concat(snapshots, logs) {
		raw, err := os.ReadFile(name)
		if err == nil {
			err = found.writeAgain(raw)
		}
		if err != nil {
			return found, fmt.Errorf("%s: %w", name, err)
		}
		found.files++
	}
	log, err := segments(dir)
	if err != nil {
		return found, err
	}
	start, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(logs[0]), ".log"), 10, 64)
	if err != nil {
		return found, err
	}
	// What the log goes on from: nothing, or the snapshot that ends where it starts.
	from := metadata.Empty()
	for _, name := range snapshots {
		id, ok := metadata.ParseSnapshotName(filepath.Base(name))
		if !ok {
			return found, fmt.Errorf("%s is no snapshot's name", name)
		}
		if id == metadata.BootstrapID {
			continue // it has the voters alone
		}
		raw, err := os.ReadFile(name)
		if err != nil {
			return found, err
		}
		image, _, err := metadata.ReadSnapshot(raw, id)
		if err != nil {
			return found, fmt.Errorf("%s: %w", name, err)
		}
		if int64(id.EndOffset) == start {
			from = image
			continue
		}
		replayed, err := replay(from, log, id.EndOffset)
		if err != nil {
			return found, err
		}
		if !replayed.Equal(image) {
			return found, fmt.Errorf("%s holds another image than the log up to it", name)
		}
		found.images++
	}
	if found.image, err = replay(from, log, ident.Offset(end)); err != nil {
		return found, err
	}
	last, _ := found.image.Position()
	found.end = int64(last) + 1
	return found, nil
}

// writeAgain encodes everything in a file once more.
func (r *read) writeAgain(raw []byte) error {
	for len(raw) > 0 {
		one, rest, h, err := batch.Next(raw)
		if err != nil {
			return err
		}
		raw = rest
		decoded, err := metadata.ReadBatch(one)
		if err != nil {
			return err
		}
		if h.IsControl() {
			continue
		}
		i := 0
		for stored, err := range batch.Records(one) {
			if err != nil {
				return err
			}
			record := decoded.Records[i]
			name, _ := metadata.TypeName(record.RecordType())
			if again := metadata.Encode(nil, record); !bytes.Equal(again, stored.Value) {
				return fmt.Errorf("the %s at offset %d is %x, and %x when written again", name, stored.Offset, stored.Value, again)
			}
			r.types[name]++
			r.records++
			i++
		}
		if again := metadata.EncodeBatch(h.BaseOffset, h.LeaderEpoch, h.MaxTimestamp, decoded.Records...); !bytes.Equal(again, one) {
			return fmt.Errorf("the batch at offset %d is another when written again", h.BaseOffset)
		}
	}
	return nil
}

// replay applies a log on top of an image, up to an offset (exclusive) or all of it for -1.
func replay(from *metadata.Image, log []byte, end ident.Offset) (*metadata.Image, error) {
	loader := metadata.NewLoader(from, -1)
	for b, err := range metadata.ReadBatches(log) {
		if err != nil {
			return nil, err
		}
		if b.BaseOffset < loader.NextOffset() {
			continue
		}
		if end >= 0 && b.BaseOffset >= end {
			break
		}
		if err := loader.Load(b); err != nil {
			return nil, err
		}
	}
	_, image := loader.Publish()
	return image, nil
}

// ofEverything are records that the metadata of make-golden.sh's features must hold, so that the check has something
// to go wrong with.
var ofEverything = []string{
	"REGISTER_BROKER_RECORD", "UNREGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD", "PARTITION_CHANGE_RECORD",
	"REMOVE_TOPIC_RECORD", "DELEGATION_TOKEN_RECORD", "USER_SCRAM_CREDENTIAL_RECORD", "FEATURE_LEVEL_RECORD", "CLIENT_QUOTA_RECORD",
	"PRODUCER_IDS_RECORD", "BROKER_REGISTRATION_CHANGE_RECORD", "ACCESS_CONTROL_ENTRY_RECORD", "REMOVE_ACCESS_CONTROL_ENTRY_RECORD",
	"NO_OP_RECORD", "REMOVE_USER_SCRAM_CREDENTIAL_RECORD", "REMOVE_DELEGATION_TOKEN_RECORD", "REGISTER_CONTROLLER_RECORD", "CLEAR_ELR_RECORD",
}

// controllersFiles has a KRaft controller of Apache Kafka's write everything that has a record, beside a broker of its
// own, and reads what both have on their disks.
func (p *proof) controllersFiles(ctx context.Context) error {
	out := filepath.Join(p.dir, "controller")
	ctx, cancel := context.WithTimeout(ctx, testscale.Duration(5*time.Minute))
	defer cancel()
	p.say("a controller and a broker of Apache Kafka's: topics, configurations, elections, reassignments, users, ACLs, quotas, tokens")
	command := exec.CommandContext(ctx, script("make-golden.sh"), out, "features")
	log, err := os.Create(filepath.Join(p.dir, "controller.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	command.Stdout, command.Stderr = log, log
	// It ends what it has started.
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = testscale.Duration(time.Minute)
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w, see %s", command, err, log.Name())
	}
	for _, node := range []struct{ name, what string }{{"node1", "the controller's metadata log and snapshots"}, {"node2", "the broker's"}} {
		p.check(node.what, func() (string, error) {
			found, err := readMetadata(filepath.Join(out, "features", node.name, metadataDir), -1)
			if err == nil && found.images == 0 {
				err = errors.New("there is no snapshot of the log")
			}
			for _, name := range ofEverything {
				if node.name == "node1" && err == nil && found.types[name] == 0 {
					err = fmt.Errorf("it holds no %s", name)
				}
			}
			return found.String(), err
		})
	}
	return nil
}
