package node

import (
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/node/exec"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// quorumCollector shows where this node stands in the metadata quorum, its log and its snapshots. What Kafka calls the
// raft-metrics, SnapshotEmitter, MetadataLoader and broker-metadata-metrics.
type quorumCollector struct {
	quorum    *quorum
	publisher *publisher
}

func metadataDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("highwater_metadata_"+name, help, nil, nil)
}

func quorumDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("highwater_quorum_"+name, help, labels, nil)
}

var (
	descMetadataStart       = metadataDesc("log_start_offset", "First offset of this node's metadata log; what is before is in its snapshots.")
	descMetadataEnd         = metadataDesc("log_end_offset", "End of this node's metadata log.")
	descMetadataEndEpoch    = metadataDesc("log_end_epoch", "Epoch of the last record of this node's metadata log, -1 when it is empty.")
	descMetadataCommitted   = metadataDesc("high_watermark", "End of what this node knows to be committed of the metadata log, -1 when nothing.")
	descMetadataBytes       = metadataDesc("log_bytes", "Size of this node's metadata log on disk, without snapshots.")
	descMetadataSnapshots   = metadataDesc("snapshots", "Snapshots of the metadata on this node's disk.")
	descMetadataSnapshotEnd = metadataDesc("snapshot_end_offset", "End of the latest snapshot on this node's disk, 0 when there is none.")
	descMetadataSnapshotLen = metadataDesc("snapshot_bytes", "Size of the latest snapshot on this node's disk.")
	descMetadataSnapshotAge = metadataDesc("snapshot_age_seconds", "Age of the latest snapshot on this node's disk, by the last record in it; 0 when there is none.")
	descMetadataApplied     = metadataDesc("applied_offset", "Last offset of the metadata log that this node has applied, -1 when none.")
	descMetadataAppliedAge  = metadataDesc("applied_age_seconds", "Age of the last record of the metadata log that this node has applied. The quorum writes one every half second.")
	descMetadataVersion     = metadataDesc("version", "Level of metadata.version that the cluster works at, 0 before this node knows it.")
	descInstalling          = metadataDesc("snapshot_installing", "1 while this node fetches and installs a snapshot of its leader's, else 0.")
	descInstallBytes        = metadataDesc("snapshot_install_bytes", "Bytes that are here of the snapshot that is being installed.")
	descInstallSize         = metadataDesc("snapshot_install_size_bytes", "Size of the snapshot that is being installed, 0 until the leader has told it.")
	descInstalls            = metadataDesc("snapshots_installed_total", "Snapshots of a leader that this node has installed.")
	descSnapshotReceived    = metadataDesc("snapshot_received_bytes_total", "Bytes of snapshots that this node has fetched from leaders, those of downloads that were given up included.")
	descSnapshotsSent       = metadataDesc("snapshots_sent_total", "Snapshots that this node, as leader, has sent to others to their last byte.")
	descSnapshotServed      = metadataDesc("snapshot_sent_bytes_total", "Bytes of snapshots that this node, as leader, has sent to others.")

	descQuorumState     = quorumDesc("state", "1 for the state that this node is in, 0 for the others.", "state")
	descQuorumEpoch     = quorumDesc("epoch", "Epoch of the metadata quorum that this node is in.")
	descQuorumLeader    = quorumDesc("leader_id", "Whom this node takes for the quorum's leader, -1 when for nobody.")
	descQuorumVoted     = quorumDesc("voted_id", "For whom this node voted in its epoch, -1 when for nobody.")
	descQuorumVoters    = quorumDesc("voters", "Members of the voter set.")
	descQuorumUnsettled = quorumDesc("uncommitted_voter_change", "1 while the voter set in use is not known to be committed, else 0.")
	descQuorumObservers = quorumDesc("observers", "Nodes that follow the metadata log and are no voters. Only the leader tells.")
	descQuorumLag       = quorumDesc("replica_lag", "Records that a node lacks of the leader's metadata log, by its last fetch. Only the leader tells.", "node")
	descQuorumMargin    = quorumDesc("replica_log_start_distance", "Records from the start of the leader's metadata log to the end of a node's, by its last fetch: below 0 the node needs a snapshot. Only the leader tells.", "node")
)

// quorumStates are the values of the label of descQuorumState: Kafka's current-state.
var quorumStates = map[raft.Role]string{
	raft.Unattached: "unattached", raft.Prospective: "prospective", raft.Candidate: "candidate", raft.Leader: "leader",
	raft.Follower: "follower", raft.Resigned: "resigned",
}

const stateObserver = "observer"

// Describe is prometheus.Collector's.
func (c quorumCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descMetadataStart, descMetadataEnd, descMetadataEndEpoch, descMetadataCommitted, descMetadataBytes, descMetadataSnapshots, descMetadataSnapshotEnd,
		descMetadataSnapshotLen, descMetadataSnapshotAge, descMetadataApplied, descMetadataAppliedAge, descMetadataVersion,
		descInstalling, descInstallBytes, descInstallSize, descInstalls, descSnapshotReceived, descSnapshotsSent, descSnapshotServed,
		descQuorumState, descQuorumEpoch, descQuorumLeader, descQuorumVoted, descQuorumVoters, descQuorumUnsettled, descQuorumObservers,
		descQuorumLag, descQuorumMargin,
	} {
		out <- d
	}
}

// quorumSeen is what a scrape sees, of one moment.
type quorumSeen struct {
	start, end, committed ident.Offset
	endEpoch              ident.Epoch
	logBytes              int64
	snapshots             exec.SnapshotStats
	install               raft.Install
	role                  raft.Role
	voter, unsettled      bool
	vote                  raft.VoteState
	leader                ident.NodeID
	voters                int
	description           raft.Description
	leads                 bool
}

func (q *quorum) see() quorumSeen {
	q.mu.Lock()
	defer q.mu.Unlock()
	log, core := q.exec.Log(), q.exec.Core()
	s := quorumSeen{
		start: log.StartOffset(), end: log.EndOffset(), endEpoch: log.LatestEpoch(), logBytes: log.Size(),
		committed: max(q.exec.HighWatermark(), ident.UnknownOffset), snapshots: q.exec.Snapshots(), install: core.Install(),
		role: core.Role(), voter: core.IsVoter(), vote: core.Vote(), leader: core.Leadership().Leader, voters: len(core.Voters()),
	}
	s.unsettled = core.VotersBelow(math.MaxInt64).Offset >= max(s.committed, 0)
	s.description, s.leads = core.Describe(q.node.clock.now())
	return s
}

// Collect is prometheus.Collector's.
func (c quorumCollector) Collect(out chan<- prometheus.Metric) {
	s := c.quorum.see()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v int64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	gauge(descMetadataStart, float64(s.start))
	gauge(descMetadataEnd, float64(s.end))
	gauge(descMetadataEndEpoch, float64(s.endEpoch))
	gauge(descMetadataCommitted, float64(s.committed))
	gauge(descMetadataBytes, float64(s.logBytes))
	gauge(descMetadataSnapshots, float64(s.snapshots.Count))
	gauge(descMetadataSnapshotEnd, float64(s.snapshots.Latest.EndOffset))
	gauge(descMetadataSnapshotLen, float64(s.snapshots.LatestBytes))
	gauge(descMetadataSnapshotAge, ageSeconds(s.snapshots.LatestMs))
	image := c.publisher.image()
	applied, _ := image.Position()
	gauge(descMetadataApplied, float64(applied))
	gauge(descMetadataAppliedAge, ageSeconds(c.publisher.applied.Load()))
	gauge(descMetadataVersion, float64(image.Feature(metadata.FeatureMetadataVersion)))
	if !s.install.Active {
		s.install.Bytes, s.install.Size = 0, 0
	}
	gauge(descInstalling, oneIf(s.install.Active))
	gauge(descInstallBytes, float64(s.install.Bytes))
	gauge(descInstallSize, float64(s.install.Size))
	counter(descInstalls, s.snapshots.Installed)
	counter(descSnapshotReceived, s.snapshots.ReceivedBytes)
	counter(descSnapshotsSent, s.snapshots.Sent)
	counter(descSnapshotServed, s.snapshots.SentBytes)

	for role, name := range quorumStates {
		gauge(descQuorumState, oneIf(s.role == role && s.voter), name)
	}
	gauge(descQuorumState, oneIf(!s.voter), stateObserver)
	gauge(descQuorumEpoch, float64(s.vote.Epoch))
	gauge(descQuorumLeader, float64(s.leader))
	gauge(descQuorumVoted, float64(s.vote.Voted.ID))
	gauge(descQuorumVoters, float64(s.voters))
	gauge(descQuorumUnsettled, oneIf(s.unsettled))
	if !s.leads {
		return
	}
	gauge(descQuorumObservers, float64(len(s.description.Observers)))
	seen := map[ident.NodeID]bool{}
	for _, replicas := range [][]raft.ReplicaState{s.description.Voters, s.description.Observers} {
		for _, r := range replicas {
			// A node that came back with another directory is there twice for a while; an operator reads as nobody.
			if r.LogEndOffset < 0 || r.Key.ID < 0 || seen[r.Key.ID] {
				continue
			}
			seen[r.Key.ID] = true
			node := strconv.Itoa(int(r.Key.ID))
			gauge(descQuorumLag, float64(max(0, s.end-r.LogEndOffset)), node)
			gauge(descQuorumMargin, float64(r.LogEndOffset-s.start), node)
		}
	}
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func ageSeconds(unixMs int64) float64 {
	if unixMs <= 0 {
		return 0
	}
	return max(0, time.Since(time.UnixMilli(unixMs)).Seconds())
}
