package replication

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/highwater-io/highwater/pkg/ident"
)

// TestStories plays testdata/stories: each line a command, below it what the core wanted done. Node 1 is the
// replica under test; see command for the words. Rewrite the answers with -rewrite and read the difference.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		b := newBench(Config{})
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			b.command(t, d)
			return b.story()
		})
	})
}

func (b *bench) command(t *testing.T, d *datadriven.TestData) {
	arg := func(name string, standard int64) int64 {
		if d.HasArg(name) {
			d.ScanArgs(t, name, &standard)
		}
		return standard
	}
	nodes := func(name string) []ident.NodeID {
		var ids []ident.NodeID
		for _, a := range d.CmdArgs {
			if a.Key == name {
				for i := range a.Vals {
					var id int
					a.Scan(t, i, &id)
					ids = append(ids, ident.NodeID(id))
				}
			}
		}
		return ids
	}
	switch d.Cmd {
	case "metadata": // leader le pe replicas isr min
		b.step(MetadataChanged{
			Leader: ident.NodeID(arg("leader", 1)), LeaderEpoch: ident.Epoch(arg("le", 1)), PartitionEpoch: int32(arg("pe", 1)),
			Replicas: nodes("replicas"), ISR: nodes("isr"), MinISR: int(arg("min", 1)),
		})
	case "node": // id epoch fenced: what metadata says of a node from now on
		id := ident.NodeID(arg("id", 0))
		b.cluster[id] = Broker{Epoch: arg("epoch", 100+int64(id)), Fenced: d.HasArg("fenced")}
		b.out = Effects{}
	case "produce": // token records acks
		b.produce(Token(arg("token", 1)), int16(arg("acks", -1)), int(arg("records", 1)))
	case "fetch": // from offset [epoch le last]
		id := arg("from", 2)
		b.step(Fetch{
			Token: Token(id), Replica: ident.NodeID(id), BrokerEpoch: arg("epoch", 100+id), Offset: ident.Offset(arg("offset", 0)),
			LeaderEpoch: ident.Epoch(arg("le", int64(b.r.LeaderEpoch()))), LastFetchedEpoch: ident.Epoch(arg("last", -1)),
		})
	case "pass": // seconds
		b.wait(time.Duration(arg("seconds", 1)) * time.Second)
	case "accept":
		b.accept()
	case "refuse": // code
		b.refuse(Code(arg("code", 107)))
	default:
		d.Fatalf(t, "unknown command %q", d.Cmd)
	}
}

// story writes the effects of the last command and where the replica stands.
func (b *bench) story() string {
	var s strings.Builder
	for _, a := range b.out.Answers {
		switch {
		case a.Code != None:
			fmt.Fprintf(&s, "fetch answered: error %d\n", a.Code)
		case a.Diverging != NoEpochEnd:
			fmt.Fprintf(&s, "fetch answered: diverging at epoch %d end %d\n", a.Diverging.Epoch, a.Diverging.End)
		default:
			fmt.Fprintf(&s, "fetch answered: [%d, %d) high watermark %d\n", a.From, a.Below, a.HighWatermark)
		}
	}
	for _, c := range b.out.Completed {
		fmt.Fprintf(&s, "produce %d: code %d base %d\n", c.Token, c.Code, c.Base)
	}
	if p := b.out.Proposal; p != nil {
		fmt.Fprintf(&s, "AlterPartition le %d pe %d ISR %v\n", p.LeaderEpoch, p.PartitionEpoch, p.ISR)
	}
	for _, f := range b.out.Facts {
		fmt.Fprintf(&s, "fact %v replica %d %s pe %d lag %d offsets %v\n", f.Kind, f.Replica, f.Reason, f.PartitionEpoch, f.LagOffsets, f.LagTime)
	}
	m := b.r.Metadata()
	maximal := b.r.MaximalISR()
	slices.Sort(maximal)
	fmt.Fprintf(&s, "%v le %d pe %d ISR %v maximal %v end %d hw %d\n", b.r.Role(), m.LeaderEpoch, m.PartitionEpoch, m.ISR, maximal, b.log.end, b.r.HighWatermark())
	return s.String()
}
