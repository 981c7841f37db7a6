package cluster

import (
	"slices"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

// NodeMetadata is what a node told, in its present incarnation, of how it follows the metadata.
type NodeMetadata struct {
	// Told is nodefact.MetadataCurrent or nodefact.MetadataBehind; empty before either was heard.
	Told string
	// Installs of snapshots that were not acknowledged as ended, in order. Only the last may be under way.
	Installs []Install
	// Incarnation of the node, and the number of the newest end among Installs, 0 when none has ended: what to
	// acknowledge once all of it is written down.
	Incarnation ident.UUID
	EndsUpTo    int64
}

// UnderWay returns the install that is, nil when none is.
func (m *NodeMetadata) UnderWay() *Install {
	if n := len(m.Installs); n > 0 && m.Installs[n-1].End == nil {
		return &m.Installs[n-1]
	}
	return nil
}

// Install is what a node told of one install of a metadata snapshot.
type Install struct {
	ID         ident.UUID
	SnapshotID string
	StartedAt  time.Time
	// Bytes of TotalBytes were here at BytesPerSecond when that was last worth a change; TotalBytes is 0 until known.
	Bytes, TotalBytes, BytesPerSecond int64
	// Failures by reason, the newest last.
	Failures []InstallFailure
	// End is nil while the install is under way.
	End *InstallEnd

	shownAt time.Time
}

// InstallFailure is why a download was given up.
type InstallFailure struct{ Reason, Message string }

// InstallEnd is the end of an install.
type InstallEnd struct {
	At       time.Time
	Bytes    int64
	Duration time.Duration
}

// Progress is shown when it has come another tenth further, though not sooner than soonestProgress after the last time,
// and anyhow after latestProgress: each time is a write of a status.
const (
	soonestProgress = 3 * time.Second
	latestProgress  = 15 * time.Second
)

// addMetadata takes a fact of an install or of following, and says whether it is one that changes anything. The lock is
// held.
func (b *FactBook) addMetadata(node ident.NodeID, incarnation ident.UUID, f nodefact.Fact) bool {
	m := b.metadata[node]
	if m == nil || m.Incarnation != incarnation {
		m = &NodeMetadata{Incarnation: incarnation}
		b.metadata[node] = m
	}
	if f.Kind == nodefact.MetadataCurrent || f.Kind == nodefact.MetadataBehind {
		news := m.Told != f.Kind
		m.Told = f.Kind
		return news
	}
	i := slices.IndexFunc(m.Installs, func(i Install) bool { return i.ID == f.Install })
	if f.Kind == nodefact.SnapshotInstallStarted && i < 0 {
		m.Installs = append(m.Installs, Install{ID: f.Install, SnapshotID: f.SnapshotID, StartedAt: f.Time, TotalBytes: f.TotalBytes})
		return true
	}
	if i < 0 {
		return false // of an end that was acknowledged
	}
	install := &m.Installs[i]
	news := install.SnapshotID != f.SnapshotID
	install.SnapshotID = f.SnapshotID
	if f.TotalBytes > 0 {
		install.TotalBytes = f.TotalBytes
	}
	switch f.Kind {
	case nodefact.SnapshotInstallStarted:
		return news
	case nodefact.SnapshotInstallProgress:
		return install.progress(f) || news
	case nodefact.SnapshotInstallFailed:
		install.Failures = slices.DeleteFunc(install.Failures, func(known InstallFailure) bool { return known.Reason == f.Reason })
		install.Failures = append(install.Failures, InstallFailure{f.Reason, f.Message})
	case nodefact.SnapshotInstalled:
		install.End = &InstallEnd{At: f.Time, Bytes: f.Bytes, Duration: time.Duration(f.DurationMillis) * time.Millisecond}
		m.EndsUpTo = f.Seq
	}
	return true
}

func (i *Install) progress(f nodefact.Fact) bool {
	since := f.Time.Sub(i.shownAt)
	if i.shownAt.IsZero() || since >= latestProgress || since >= soonestProgress && tenth(f.Bytes, f.TotalBytes) != tenth(i.Bytes, i.TotalBytes) {
		i.Bytes, i.BytesPerSecond, i.shownAt = f.Bytes, f.BytesPerSecond, f.Time
		return true
	}
	return false
}

func tenth(part, of int64) int64 {
	if of <= 0 {
		return 0
	}
	return int64(float64(part) / float64(of) * 10)
}

// Metadata returns what a node told of how it follows the metadata.
func (b *FactBook) Metadata(node ident.NodeID) NodeMetadata {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.metadata[node]
	if m == nil {
		return NodeMetadata{}
	}
	copied := *m
	copied.Installs = slices.Clone(m.Installs)
	for i := range copied.Installs {
		copied.Installs[i].Failures = slices.Clone(copied.Installs[i].Failures)
	}
	return copied
}

// WrittenDown says that what a node told, as Metadata returned it, stands where it outlives the operator: ends of
// installs are acknowledged to the node, which forgets them.
func (b *FactBook) WrittenDown(node ident.NodeID, told NodeMetadata) {
	b.mu.Lock()
	m := b.metadata[node]
	if told.EndsUpTo == 0 || m == nil || m.Incarnation != told.Incarnation || m.EndsUpTo == 0 {
		b.mu.Unlock()
		return
	}
	m.Installs = slices.DeleteFunc(m.Installs, func(i Install) bool {
		return i.End != nil && slices.ContainsFunc(told.Installs, func(t Install) bool { return t.ID == i.ID && t.End != nil })
	})
	if m.EndsUpTo == told.EndsUpTo {
		m.EndsUpTo = 0
	}
	acknowledge := b.acknowledge
	b.mu.Unlock()
	if acknowledge != nil {
		acknowledge(node, told.Incarnation, told.EndsUpTo)
	}
}

// OnWrittenDown has the end of what was written down told: the incarnation of the node and the number up to which.
func (b *FactBook) OnWrittenDown(acknowledge func(node ident.NodeID, incarnation ident.UUID, upTo int64)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acknowledge = acknowledge
}
