// Package clustertest stands in for a cluster in tests of the controllers: the metadata is real, made of records by
// the same code as the product's, and the test decides what is committed.
package clustertest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/highwater-io/highwater/controllers/cluster"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

// Cluster is a cluster of which a test is the master. It is safe for concurrent use.
type Cluster struct {
	mu      sync.Mutex
	state   cluster.State
	image   *metadata.Image
	offset  ident.Offset
	targets []cluster.Target
	open    map[*connection]struct{}
	facts   *cluster.FactBook
	lives   map[ident.NodeID]byte // which incarnation of a node it is, from 1
	// tellings are what nodes have to tell of themselves; deaf, when acknowledgements do not reach them.
	tellings map[ident.NodeID]*telling
	deaf     bool
	quorum   cluster.QuorumState
	held     error // what AddVoter answers meanwhile
	calls    []string
	refuse   error
	made     func()
}

// New returns a cluster whose metadata can be read and is empty. It is quiet until Follow.
func New() *Cluster {
	c := &Cluster{
		state: cluster.State{Leader: ident.NoNode, Epoch: ident.UnknownEpoch},
		image: metadata.Empty(), offset: -1,
		open:     map[*connection]struct{}{},
		lives:    map[ident.NodeID]byte{},
		tellings: map[ident.NodeID]*telling{},
	}
	c.facts = c.newBook()
	return c
}

type connection struct {
	cluster *Cluster
	target  cluster.Target
	notify  func(cluster.Change)
}

// Open is a cluster.Opener that ends here whatever the target is.
func (c *Cluster) Open(target cluster.Target, notify func(cluster.Change)) cluster.Connection {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := &connection{c, target, notify}
	c.open[k] = struct{}{}
	c.targets = append(c.targets, target)
	return k
}

func (k *connection) State() cluster.State {
	k.cluster.mu.Lock()
	defer k.cluster.mu.Unlock()
	return k.cluster.state
}
func (k *connection) Retarget(target cluster.Target) {
	k.cluster.mu.Lock()
	defer k.cluster.mu.Unlock()
	k.target = target
	k.cluster.targets = append(k.cluster.targets, target)
}
func (k *connection) Admin() cluster.Admin { return admin{k.cluster} }
func (k *connection) Facts() *cluster.FactBook {
	k.cluster.mu.Lock()
	defer k.cluster.mu.Unlock()
	return k.cluster.facts
}
func (k *connection) Close() {
	k.cluster.mu.Lock()
	defer k.cluster.mu.Unlock()
	delete(k.cluster.open, k)
}

// Connections is how many are open.
func (c *Cluster) Connections() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// Targets are all targets that were connected to, in order.
func (c *Cluster) Targets() []cluster.Target {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.targets)
}

// Calls are the admin calls that were made, in order, as text.
func (c *Cluster) Calls() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}

// Refuse makes every admin call that changes something fail, until it is called with nil.
func (c *Cluster) Refuse(err error) {
	c.mu.Lock()
	c.refuse = err
	c.mu.Unlock()
	c.tell(nil, true)
}

// Follow lets a voter lead, and the operator read the metadata.
func (c *Cluster) Follow(leader ident.NodeID, epoch ident.Epoch) {
	c.mu.Lock()
	c.state = cluster.State{Image: c.image, Leader: leader, Epoch: epoch, Reach: cluster.Following, Since: time.Now(), Voters: c.voterSet()}
	c.quorum.Leader = leader
	c.mu.Unlock()
	c.tell(nil, true)
}

// Lose makes the quorum's leader unknown, as of the time given.
func (c *Cluster) Lose(reach cluster.Reach, since time.Time, tried ...string) {
	c.mu.Lock()
	c.state.Reach, c.state.Since, c.state.Tried = reach, since, tried
	c.state.Leader = ident.NoNode
	c.mu.Unlock()
	c.tell(nil, true)
}

// SetVoters is the voter set, committed, and what the quorum's leader says of each.
func (c *Cluster) SetVoters(voters ...cluster.ReplicaState) {
	c.mu.Lock()
	c.quorum.Voters = slices.Clone(voters)
	c.commitVoters()
	c.mu.Unlock()
	c.tell(nil, false)
}

// AppendVoters is the voter set that the quorum's leader has appended, and not committed yet.
func (c *Cluster) AppendVoters(voters ...cluster.ReplicaState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quorum.Voters = slices.Clone(voters)
}

// SetObservers is what the quorum's leader says of those who follow without a vote.
func (c *Cluster) SetObservers(observers ...cluster.ReplicaState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quorum.Observers = slices.Clone(observers)
}

// HoldVoters makes AddVoter answer an error, until it is called with nil.
func (c *Cluster) HoldVoters(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = err
}

// Opened lets a node tell which directory it has.
func (c *Cluster) Opened(id ident.NodeID, directory ident.UUID) {
	c.mu.Lock()
	c.facts.Opened(id, directory)
	c.mu.Unlock()
	c.tell(nil, false)
}

// voterSet and commitVoters: the lock is held.
func (c *Cluster) voterSet() []cluster.Voter {
	var set []cluster.Voter
	for _, v := range c.quorum.Voters {
		set = append(set, v.Voter)
	}
	return set
}

func (c *Cluster) commitVoters() {
	if c.state.Reach == cluster.Following {
		c.state.Voters = c.voterSet()
	}
}

// Fact hands in what a node tells of a topic, which is an ISRChange when its kind is not set.
func (c *Cluster) Fact(node ident.NodeID, topic string, f nodefact.Fact) {
	c.mu.Lock()
	if t, found := c.image.Topic(topic); found {
		f.TopicID = t.ID
	}
	if f.Kind == "" {
		f.Kind = nodefact.ISRChange
	}
	c.facts.Add(node, c.incarnation(node), f)
	c.mu.Unlock()
	c.tell([]string{topic}, false)
}

// LoseDirectory lets a node tell that it can't use its directory, and the quorum fence it when it is a data node.
func (c *Cluster) LoseDirectory(id ident.NodeID, reason, message string) {
	c.mu.Lock()
	c.facts.Add(id, c.incarnation(id), nodefact.Fact{Kind: nodefact.LogDirOffline, Index: -1, Replica: id, Reason: reason, Message: message})
	_, registered := c.image.Broker(id)
	c.mu.Unlock()
	c.tell(nil, true)
	if registered {
		c.Fence(id, true)
	}
}

// Begin lets a node begin another incarnation.
func (c *Cluster) Begin(id ident.NodeID) {
	c.mu.Lock()
	c.incarnation(id)
	c.lives[id]++
	c.facts.Began(id, c.incarnation(id))
	delete(c.tellings, id)
	c.mu.Unlock()
	c.tell(nil, true)
}

// Restart lets a data node begin another incarnation and serve in it.
func (c *Cluster) Restart(id ident.NodeID, directory ident.UUID) {
	c.Begin(id)
	c.Register(map[ident.NodeID]ident.UUID{id: directory})
}

// ForgetFacts is what a start of the operator does to the facts of nodes that it can't reach.
func (c *Cluster) ForgetFacts() {
	c.mu.Lock()
	c.facts = c.newBook()
	c.mu.Unlock()
	c.tell(nil, true)
}

// incarnation is the one that a node is in. The lock is held.
func (c *Cluster) incarnation(id ident.NodeID) ident.UUID {
	if c.lives[id] == 0 {
		c.lives[id] = 1
	}
	return ident.UUID{byte(id), c.lives[id]}
}

// Commit adds records to the metadata. Records that do not fit are a mistake of the test and panic.
func (c *Cluster) Commit(records ...metadata.Record) {
	c.mu.Lock()
	delta := metadata.NewDelta(c.image)
	for _, record := range records {
		metadata.Pinned.Stamp(record)
		if err := delta.Replay(record); err != nil {
			c.mu.Unlock()
			panic(err)
		}
		c.offset++
	}
	c.image = delta.Image(c.offset, max(c.state.Epoch, 1))
	if c.state.Reach == cluster.Following {
		c.state.Image = c.image
	}
	var topics []string
	for _, id := range delta.ChangedTopics() {
		if t, found := c.image.TopicByID(id); found {
			topics = append(topics, t.Name)
		}
	}
	for _, t := range delta.DeletedTopics() {
		topics = append(topics, t.Name)
	}
	for _, resource := range delta.ChangedConfigs() {
		topics = append(topics, resource.Name)
	}
	everything := len(delta.ChangedBrokers()) > 0
	c.mu.Unlock()
	c.tell(topics, everything)
}

func (c *Cluster) tell(topics []string, everything bool) {
	c.mu.Lock()
	notify := map[*connection]cluster.Target{}
	for k := range c.open {
		notify[k] = k.target
	}
	c.mu.Unlock()
	for k, target := range notify {
		k.notify(cluster.Change{ReplicaSet: target.ReplicaSet, Topics: topics, Everything: everything})
	}
}

// Register registers and unfences data nodes with their directories.
func (c *Cluster) Register(directories map[ident.NodeID]ident.UUID) {
	for _, id := range slices.Sorted(maps.Keys(directories)) {
		c.mu.Lock()
		incarnation := c.incarnation(id)
		c.mu.Unlock()
		c.Commit(&metadata.RegisterBrokerRecord{BrokerID: id, BrokerEpoch: int64(id) + 100, IncarnationID: incarnation, LogDirs: []ident.UUID{directories[id]}})
	}
}

// Fence fences or unfences a node.
func (c *Cluster) Fence(id ident.NodeID, fenced bool) {
	change := metadata.Unfence
	if fenced {
		change = metadata.Fence
	}
	c.Commit(&metadata.BrokerRegistrationChangeRecord{BrokerID: id, BrokerEpoch: int64(id) + 100, Fenced: change})
}

// ISR commits an ISR, and a leader unless it is metadata.NoLeaderChange.
func (c *Cluster) ISR(topic string, index int32, leader ident.NodeID, isr ...ident.NodeID) {
	c.Commit(&metadata.PartitionChangeRecord{
		TopicID: c.TopicID(topic), PartitionID: index, ISR: isr, Leader: leader, LeaderRecoveryState: metadata.NoLeaderRecoveryChanged,
	})
}

// Directory commits the directory of a node's replica; ident.LostDirectory says that it is damaged.
func (c *Cluster) Directory(topic string, index int32, node ident.NodeID, directory ident.UUID) {
	p, found := c.Partition(topic, index)
	if !found {
		panic(fmt.Sprintf("no partition %d of topic %s", index, topic))
	}
	directories := slices.Clone(p.Directories)
	directories[slices.Index(p.Replicas, node)] = directory
	c.Commit(&metadata.PartitionChangeRecord{
		TopicID: c.TopicID(topic), PartitionID: index, Directories: directories, Leader: metadata.NoLeaderChange, LeaderRecoveryState: metadata.NoLeaderRecoveryChanged,
	})
}

// TopicID is the id that a topic has, or would have.
func (c *Cluster) TopicID(topic string) ident.UUID {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, found := c.image.Topic(topic); found {
		return t.ID
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", topic, c.offset))
	return ident.UUID(sum[:16])
}

// Partition is what is committed.
func (c *Cluster) Partition(topic string, index int32) (metadata.Partition, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, found := c.image.Topic(topic); found {
		if p, found := t.Partition(index); found {
			return *p, true
		}
	}
	return metadata.Partition{}, false
}

// Config is a committed topic key.
func (c *Cluster) Config(topic, key string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.image.Config(metadata.ResourceTopic, topic).Get(key)
}

type admin struct{ *Cluster }

// call notes a call and answers the refusal that the test wants.
func (a admin) call(format string, args ...any) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, fmt.Sprintf(format, args...))
	return a.refuse
}

func (a admin) CreateTopic(_ context.Context, t cluster.NewTopic) error {
	if err := a.call("create %s: %d partitions, factor %d, assignments %v, configs %v", t.Name, t.Partitions, t.ReplicationFactor, t.Assignments, t.Configs); err != nil {
		return err
	}
	if _, found := a.Partition(t.Name, 0); found {
		return &cluster.RefusedError{Code: kerr.TopicAlreadyExists}
	}
	a.MakeTopic(t)
	a.mu.Lock()
	made := a.made
	a.mu.Unlock()
	if made != nil {
		made()
	}
	return nil
}

// OnCreated is called with every topic that the operator makes, before it is told.
func (c *Cluster) OnCreated(made func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = made
}

// MakeTopic commits a topic, also one that the operator did not ask for.
func (c *Cluster) MakeTopic(t cluster.NewTopic) {
	id := c.TopicID(t.Name)
	records := []metadata.Record{&metadata.TopicRecord{Name: t.Name, TopicID: id}}
	for _, key := range slices.Sorted(maps.Keys(t.Configs)) {
		value := t.Configs[key]
		records = append(records, &metadata.ConfigRecord{ResourceType: metadata.ResourceTopic, ResourceName: t.Name, Name: key, Value: &value})
	}
	count := max(int(t.Partitions), len(t.Assignments))
	for index := range count {
		var replicas []ident.NodeID
		if len(t.Assignments) > 0 {
			replicas = toIDs(t.Assignments[index])
		} else {
			replicas = firstNodes(t.ReplicationFactor)
		}
		records = append(records, partitionRecord(id, int32(index), replicas))
	}
	c.Commit(records...)
}

func (a admin) GrowTopic(_ context.Context, topic string, count int32, assignments [][]int32) error {
	if err := a.call("grow %s: %d partitions, assignments %v", topic, count, assignments); err != nil {
		return err
	}
	first, found := a.Partition(topic, 0)
	if !found {
		return &cluster.RefusedError{Code: kerr.UnknownTopicOrPartition}
	}
	a.mu.Lock()
	t, _ := a.image.Topic(topic)
	now := int32(t.NumPartitions())
	a.mu.Unlock()
	for index := now; index < count; index++ {
		replicas := first.Replicas
		if len(assignments) > 0 {
			replicas = toIDs(assignments[index-now])
		}
		a.Commit(partitionRecord(t.ID, index, replicas))
	}
	return nil
}

func (a admin) AlterTopicConfig(_ context.Context, topic string, set map[string]string, remove []string) error {
	if err := a.call("alter %s: set %v, remove %v", topic, set, remove); err != nil {
		return err
	}
	var records []metadata.Record
	for _, key := range slices.Sorted(maps.Keys(set)) {
		value := set[key]
		records = append(records, &metadata.ConfigRecord{ResourceType: metadata.ResourceTopic, ResourceName: topic, Name: key, Value: &value})
	}
	for _, key := range remove {
		records = append(records, &metadata.ConfigRecord{ResourceType: metadata.ResourceTopic, ResourceName: topic, Name: key})
	}
	a.Commit(records...)
	return nil
}

func (a admin) DeleteTopic(_ context.Context, id ident.UUID) error {
	if err := a.call("delete %s", id); err != nil {
		return err
	}
	a.RemoveTopic(id)
	return nil
}

// RemoveTopic commits that a topic is gone.
func (c *Cluster) RemoveTopic(id ident.UUID) {
	c.mu.Lock()
	_, found := c.image.TopicByID(id)
	c.mu.Unlock()
	if found {
		c.Commit(&metadata.RemoveTopicRecord{TopicID: id})
	}
}

func (a admin) Quorum(context.Context) (cluster.QuorumState, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return cluster.QuorumState{
		Leader: a.quorum.Leader, Voters: slices.Clone(a.quorum.Voters), Observers: slices.Clone(a.quorum.Observers),
	}, nil
}

func (a admin) AddVoter(_ context.Context, voter cluster.Voter, address string) error {
	if err := a.call("add voter %d %s at %s", voter.ID, voter.DirectoryID, address); err != nil {
		return err
	}
	a.mu.Lock()
	i := slices.IndexFunc(a.quorum.Observers, func(o cluster.ReplicaState) bool { return o.Voter == voter })
	switch {
	case a.held != nil:
		defer a.mu.Unlock()
		return a.held
	case slices.ContainsFunc(a.quorum.Voters, func(v cluster.ReplicaState) bool { return v.ID == voter.ID }):
		defer a.mu.Unlock()
		return &cluster.RefusedError{Code: kerr.DuplicateVoter}
	case i < 0:
		defer a.mu.Unlock()
		return kerr.RequestTimedOut
	}
	a.quorum.Voters = append(slices.Clone(a.quorum.Voters), a.quorum.Observers[i])
	slices.SortFunc(a.quorum.Voters, func(x, y cluster.ReplicaState) int { return int(x.ID - y.ID) })
	a.quorum.Observers = slices.Delete(slices.Clone(a.quorum.Observers), i, i+1)
	a.commitVoters()
	a.mu.Unlock()
	a.tell(nil, false)
	return nil
}

func (a admin) RemoveVoter(_ context.Context, voter cluster.Voter) error {
	if err := a.call("remove voter %d %s", voter.ID, voter.DirectoryID); err != nil {
		return err
	}
	a.mu.Lock()
	i := slices.IndexFunc(a.quorum.Voters, func(v cluster.ReplicaState) bool { return v.Voter == voter })
	if i >= 0 {
		a.quorum.Observers = append(slices.Clone(a.quorum.Observers), a.quorum.Voters[i])
		a.quorum.Voters = slices.Delete(slices.Clone(a.quorum.Voters), i, i+1)
		if a.quorum.Leader == voter.ID && len(a.quorum.Voters) > 0 {
			a.quorum.Leader = a.quorum.Voters[0].ID
			a.state.Leader, a.state.Epoch = a.quorum.Leader, a.state.Epoch+1
		}
		a.commitVoters()
	}
	a.mu.Unlock()
	a.tell(nil, false)
	return nil
}

func partitionRecord(topic ident.UUID, index int32, replicas []ident.NodeID) *metadata.PartitionRecord {
	return &metadata.PartitionRecord{
		TopicID: topic, PartitionID: index, Replicas: replicas, ISR: replicas, Leader: replicas[0],
		Directories: make([]ident.UUID, len(replicas)),
	}
}

func firstNodes(n int32) []ident.NodeID {
	var ids []ident.NodeID
	for id := range n {
		ids = append(ids, ident.NodeID(id))
	}
	return ids
}

func toIDs(ints []int32) []ident.NodeID {
	var ids []ident.NodeID
	for _, id := range ints {
		ids = append(ids, ident.NodeID(id))
	}
	return ids
}
