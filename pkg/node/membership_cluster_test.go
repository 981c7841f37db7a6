package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/highwater-io/highwater/internal/testaddr"
	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/nodefact"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/quorum/raft/rpc"
	"github.com/highwater-io/highwater/pkg/vfs"
	"github.com/highwater-io/highwater/pkg/wire"
)

// changeVoters asks a voter for a change of the voters.
func (c *testCluster) changeVoters(id ident.NodeID, m raft.Message) error {
	ctx, cancel := context.WithTimeout(context.Background(), testscale.Duration(10*time.Second))
	defer cancel()
	conn, err := (&wire.Dialer{}).Dial(ctx, c.nodes[id].config.AdvertisedController)
	if err != nil {
		return err
	}
	defer conn.Close()
	resp, err := conn.Request(ctx, rpc.ToRequest(m))
	if err != nil {
		return err
	}
	answer, err := rpc.FromResponse(resp)
	if err != nil {
		return err
	}
	if r := answer.(*raft.ChangeVotersResponse); r.Code != raft.None {
		return fmt.Errorf("%w: %s", kerr.ErrorForCode(int16(r.Code)), r.Message)
	}
	return nil
}

// described is what DescribeQuorum tells.
type described struct {
	leader            ident.NodeID
	highWatermark     int64
	voters, observers []raft.ReplicaKey
	endpoints         map[ident.NodeID]string
}

// quorumState asks the quorum's leader, which one of the voters names.
func (c *testCluster) quorumState(voter ident.NodeID) (described, error) {
	leader := c.quorumLeader(voter)
	d := described{leader: leader, endpoints: map[ident.NodeID]string{}}
	if leader < 0 {
		return d, errors.New("no leader is known")
	}
	resp := c.describeQuorum(leader)
	p := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return d, err
	}
	d.highWatermark = p.HighWatermark
	for _, v := range p.CurrentVoters {
		d.voters = append(d.voters, raft.ReplicaKey{ID: ident.NodeID(v.ReplicaID), DirectoryID: v.ReplicaDirectoryID})
	}
	for _, o := range p.Observers {
		d.observers = append(d.observers, raft.ReplicaKey{ID: ident.NodeID(o.ReplicaID), DirectoryID: o.ReplicaDirectoryID})
	}
	for _, n := range resp.Nodes {
		for _, l := range n.Listeners {
			d.endpoints[ident.NodeID(n.NodeID)] = fmt.Sprintf("%s:%d", l.Host, l.Port)
		}
	}
	return d, nil
}

// waitVoters waits until the quorum has these voters, all of them, by id and directory.
func (c *testCluster) waitVoters(ask ident.NodeID, want ...raft.ReplicaKey) described {
	c.t.Helper()
	slices.SortFunc(want, raft.ReplicaKey.Compare)
	var d described
	c.eventually(fmt.Sprintf("voters %v", want), func() (err error) {
		if d, err = c.quorumState(ask); err == nil && !slices.Equal(d.voters, want) {
			err = fmt.Errorf("are %v, observers %v", d.voters, d.observers)
		}
		return err
	})
	return d
}

func (c *testCluster) key(id ident.NodeID) raft.ReplicaKey {
	return raft.ReplicaKey{ID: id, DirectoryID: c.nodes[id].config.DirectoryID}
}

// voter is what an AddRaftVoter says of a node.
func (c *testCluster) voter(id ident.NodeID) raft.Voter {
	c.t.Helper()
	endpoint, err := controllerEndpoint(c.nodes[id].config.AdvertisedController)
	if err != nil {
		c.t.Fatal(err)
	}
	return raft.Voter{Key: c.key(id), Endpoints: []raft.Endpoint{endpoint}}
}

// join makes the configuration of a node that is to be added as a voter.
func (c *testCluster) join(id ident.NodeID, directory ident.UUID) {
	c.t.Helper()
	config := c.baseConfig(id)
	config.DirectoryID = directory
	if err := os.WriteFile(config.FormatPermitFile, []byte(directory.String()), 0o644); err != nil {
		c.t.Fatal(err)
	}
	c.vote(&config)
	c.shared.Voters[len(c.shared.Voters)-1].Joins = true
	config.Shared = c.shared
	c.add(config)
}

// addVoter asks until the node is taken.
func (c *testCluster) addVoter(ask, id ident.NodeID) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("voter %d is taken", id), func() error {
		return c.changeVoters(c.quorumLeader(ask), &raft.AddVoterRequest{ClusterID: c.shared.ClusterID.String(), Voter: c.voter(id)})
	})
}

// E-79 (KAFKA-16530, KAFKA-16531, KAFKA-17608): the leader removes itself, with the consent of two of the new three, and
// goes; E-80 (KAFKA-19850): it runs on and stays removed until somebody asks for it.
func TestVoterIsAddedAndTheLeaderRemoved(t *testing.T) {
	c := newCluster(t, 3, 1)
	c.waitReady(1000, 1001, 1002, 0)
	c.createTopic("before", 1, 1, nil)
	c.join(1003, testUUID(9, 1003))
	c.start(1003)
	leader := c.quorumLeader(1000)
	c.eventually("the newcomer follows, and is no voter", func() error {
		d, err := c.quorumState(1000)
		if err == nil && (!slices.Contains(d.observers, c.key(1003)) || len(d.voters) != 3) {
			err = fmt.Errorf("voters %v, observers %v", d.voters, d.observers)
		}
		return err
	})
	c.addVoter(1000, 1003)
	before := c.waitVoters(1003, c.key(1000), c.key(1001), c.key(1002), c.key(1003))
	if slices.Contains(before.observers, c.key(1003)) {
		t.Fatalf("the new voter is an observer still: %v", before.observers)
	}
	if err := c.changeVoters(leader, &raft.AddVoterRequest{Voter: c.voter(1003)}); !errors.Is(err, kerr.DuplicateVoter) {
		t.Fatalf("added twice: %v", err)
	}
	old := c.key(leader)
	if err := c.changeVoters(leader, &raft.RemoveVoterRequest{Voter: raft.ReplicaKey{ID: leader, DirectoryID: testUUID(3, 3)}}); !errors.Is(err, kerr.VoterNotFound) {
		t.Fatalf("removed under another directory: %v", err)
	}
	if err := c.changeVoters(leader, &raft.RemoveVoterRequest{Voter: old}); err != nil {
		t.Fatal(err)
	}
	var left []raft.ReplicaKey
	for _, id := range []ident.NodeID{1000, 1001, 1002, 1003} {
		if id != leader {
			left = append(left, c.key(id))
		}
	}
	after := c.waitVoters(1003, left...)
	if after.leader == leader || after.highWatermark < before.highWatermark {
		t.Fatalf("leader %d, high watermark %d, was %d", after.leader, after.highWatermark, before.highWatermark)
	}
	// It follows on, as an observer, and asks for nothing.
	for i := range 3 {
		c.createTopic(fmt.Sprint("after-", i), 1, 1, nil)
	}
	c.eventually("the removed one follows on, as an observer", func() error {
		d, err := c.quorumState(1003)
		if err == nil && (!slices.Contains(d.observers, old) || !slices.Equal(d.voters, left)) {
			err = fmt.Errorf("voters %v, observers %v", d.voters, d.observers)
		}
		return err
	})
	// So it does when it starts again.
	if err := c.stop(leader); err != nil {
		t.Fatal(err)
	}
	c.start(leader)
	c.waitReady(leader)
	c.createTopic("again", 1, 1, nil)
	c.waitVoters(1003, left...)
	// Two of the three are enough, whichever: the removed one counts no more.
	follower := left[slices.IndexFunc(left, func(k raft.ReplicaKey) bool { return k.ID != after.leader && k.ID != 1003 })].ID
	if err := c.stop(follower); err != nil {
		t.Fatal(err)
	}
	c.createTopic("later", 1, 1, nil)
	c.start(follower)
	// It comes back when somebody asks for it.
	c.addVoter(1003, leader)
	c.waitVoters(1003, append(slices.Clone(left), old)...)
}

// A voter that listens elsewhere after a restart says so itself, and the others find it there.
func TestVoterThatMovedIsFoundWhereItIs(t *testing.T) {
	c := newCluster(t, 3, 1)
	c.waitReady(1000, 1001, 1002, 0)
	leader := c.quorumLeader(1000)
	moved := 1000 + (leader-1000+1)%3
	if err := c.stop(moved); err != nil {
		t.Fatal(err)
	}
	n := c.nodes[moved]
	n.config.ControllerListener = testaddr.Free(t)
	n.config.AdvertisedController = n.config.ControllerListener
	c.start(moved)
	c.eventually("the voter set has the new address", func() error {
		d, err := c.quorumState(leader)
		if err == nil && d.endpoints[moved] != n.config.AdvertisedController {
			err = fmt.Errorf("it has %s, want %s", d.endpoints[moved], n.config.AdvertisedController)
		}
		return err
	})
	// With the third one gone an election needs it, and finds it.
	third := 3000 + 3 - leader - moved
	for _, id := range []ident.NodeID{third, leader} {
		if err := c.stop(id); err != nil {
			t.Fatal(err)
		}
	}
	c.start(third)
	c.eventually("the two elect a leader", func() error {
		if l := c.quorumLeader(moved); l != moved && l != third {
			return fmt.Errorf("the leader is %d", l)
		}
		return nil
	})
	c.createTopic("after", 1, 1, nil)
}

// wipe empties a stopped node's volume.
func (c *testCluster) wipe(id ident.NodeID) {
	c.t.Helper()
	if err := os.RemoveAll(filepath.Dir(c.nodes[id].config.DataDir)); err != nil {
		c.t.Fatal(err)
	}
}

// A voter that lost its volume does not start under its identity; the way back is another directory id.
func TestWipedVoterComesBackUnderAnotherDirectory(t *testing.T) {
	c := newCluster(t, 3, 1)
	c.waitReady(1000, 1001, 1002, 0)
	c.createTopic("before", 1, 1, nil)
	leader := c.quorumLeader(1000)
	wiped := 1000 + (leader-1000+1)%3
	third := 3000 + 3 - leader - wiped
	if err := c.stop(wiped); err != nil {
		t.Fatal(err)
	}
	old := c.key(wiped)
	if err := os.Remove(c.nodes[wiped].config.FormatPermitFile); err != nil {
		t.Fatal(err)
	}
	c.wipe(wiped)
	c.start(wiped)
	<-c.nodes[wiped].done
	var lost *VolumeError
	if err := c.nodes[wiped].err; !errors.As(err, &lost) || lost.Reason != VolumeLost {
		t.Fatalf("the wiped voter ends with %v", err)
	}
	// Only its metadata log gone is no better, whether it was one of the first voters or joined.
	for _, joined := range []bool{false, true} {
		config := c.nodes[third].config
		config.MetadataDir, config.DataDir = filepath.Join(t.TempDir(), "m"), filepath.Join(t.TempDir(), "d")
		config.FormatPermitFile = ""
		config.Shared.Voters = slices.Clone(config.Shared.Voters)
		for i := range config.Shared.Voters {
			config.Shared.Voters[i].Joins = joined && config.Shared.Voters[i].ID == third
		}
		for _, dir := range []string{config.MetadataDir, config.DataDir} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			id := log.MetaProperties{ClusterID: config.Shared.ClusterID.String(), NodeID: third, DirectoryID: config.DirectoryID}
			if err := log.WriteMetaProperties(vfs.OS(), dir, id); err != nil {
				t.Fatal(err)
			}
		}
		if err := Run(t.Context(), config, slog.New(slog.DiscardHandler)); !errors.As(err, &lost) || lost.Reason != VolumeLost {
			t.Fatalf("a voter without its metadata log (joined: %v) ends with %v", joined, err)
		}
	}

	if err := c.changeVoters(leader, &raft.RemoveVoterRequest{Voter: old}); err != nil {
		t.Fatal(err)
	}
	c.waitVoters(leader, c.key(leader), c.key(third))
	c.shared.Voters = slices.DeleteFunc(c.shared.Voters, func(v VoterConfig) bool { return v.ID == wiped })
	c.join(wiped, testUUID(8, wiped))
	c.start(wiped)
	c.addVoter(leader, wiped)
	c.waitVoters(leader, c.key(leader), c.key(third), c.key(wiped))
	// It counts: with the third one gone, nothing is committed without it.
	if err := c.stop(third); err != nil {
		t.Fatal(err)
	}
	c.createTopic("after", 1, 1, nil)
}

// While the permit stands a voter has formatted its volume, says so, and does nothing else: it may lose the volume once
// more and be none the worse. From the withdrawal on it may not.
func TestVoterTakesNoPartWhileItsPermitStands(t *testing.T) {
	c := emptyCluster(t)
	config := c.baseConfig(1000)
	c.vote(&config)
	config.AwaitWithdrawal = true
	c.add(config)
	c.startAll()
	waits := func() error {
		page, ready, err := c.told(1000)
		switch {
		case err != nil:
			return err
		case page.DirectoryID != config.DirectoryID || !strings.Contains(ready, "permit"):
			return fmt.Errorf("it tells of directory %s, and is %q", page.DirectoryID, ready)
		}
		return nil
	}
	c.eventually("it waits", waits)
	votes := filepath.Join(config.MetadataDir, log.DirName(ident.MetadataTopic, 0), exec.QuorumStateFile)
	if _, err := os.Stat(votes); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("it has voted: %v", err)
	}
	if err := c.stop(1000); err != nil {
		t.Fatalf("it stopped with %v", err)
	}
	c.wipe(1000)
	c.start(1000)
	c.eventually("it waits again", waits)
	if err := os.WriteFile(config.FormatPermitFile, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c.waitReady(1000)
	if _, err := os.Stat(votes); err != nil {
		t.Fatal(err)
	}
	if err := c.stop(1000); err != nil {
		t.Fatal(err)
	}
	c.wipe(1000)
	c.start(1000)
	<-c.nodes[1000].done
	var lost *VolumeError
	if err := c.nodes[1000].err; !errors.As(err, &lost) || lost.Reason != VolumeLost {
		t.Fatalf("it ends with %v", err)
	}
}

// told reads a node's page of facts and its readiness.
func (c *testCluster) told(id ident.NodeID) (page nodefact.Page, ready string, err error) {
	base := "http://" + c.nodes[id].config.HTTPListener
	resp, err := http.Get(base + "/facts")
	if err != nil {
		return page, "", err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
		return page, "", err
	}
	probe, err := http.Get(base + "/readyz")
	if err != nil {
		return page, "", err
	}
	defer probe.Body.Close()
	text := make([]byte, 512)
	n, _ := probe.Body.Read(text)
	return page, string(text[:n]), nil
}
