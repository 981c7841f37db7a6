package exec

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// quorumLog is what the core sees: the log, and the snapshots that hold what is before it.
type quorumLog struct {
	*log.Log
	snapshots *snapshotFiles
}

// OldestSnapshot is raft.LogView's.
func (l quorumLog) OldestSnapshot() (raft.SnapshotID, bool) {
	id, ok := l.snapshots.oldest()
	return raftID(id), ok
}

// LatestSnapshot is raft.LogView's.
func (l quorumLog) LatestSnapshot() (raft.SnapshotID, bool) {
	id, ok := l.snapshots.latest()
	return raftID(id), ok
}

// WholeSnapshot is raft.LogView's.
func (l quorumLog) WholeSnapshot() (raft.SnapshotID, bool) {
	id, ok := l.snapshots.latestWhole()
	return raftID(id), ok
}

// SnapshotStats are what metrics show of a node's snapshots.
type SnapshotStats struct {
	Count int
	// Latest names the newest one, zero when there is none.
	Latest      metadata.SnapshotID
	LatestBytes int64
	// LatestMs is when the last record in it was appended, in ms since 1970.
	LatestMs int64
	// Installed, Sent (to its last byte), SentBytes and ReceivedBytes count since the start.
	Installed, Sent, SentBytes, ReceivedBytes int64
}

// Snapshots is for metrics.
func (q *Quorum) Snapshots() SnapshotStats {
	s := SnapshotStats{Count: len(q.snapshots.files), Installed: q.installed, Sent: q.snapshots.sent, SentBytes: q.snapshots.sentBytes, ReceivedBytes: q.received}
	if s.Count > 0 {
		latest := q.snapshots.files[s.Count-1]
		s.Latest, s.LatestBytes, s.LatestMs = latest.id, latest.size, latest.timestampMs
	}
	return s
}

// State is a whole state of the metadata, as a snapshot has it.
type State struct {
	Image *metadata.Image
	// TimestampMs is when the last record was appended, in ms since 1970.
	TimestampMs int64
}

// holds says whether the log has the very record that a snapshot ends with, or begins behind it.
func (q *Quorum) holds(id metadata.SnapshotID) bool {
	if id.EndOffset == q.log.StartOffset() {
		// One that is empty must not remember epochs of a log that was there before, as a crash may leave them.
		known := q.log.LatestEpoch()
		return q.log.EndOffset() > id.EndOffset || known == ident.UnknownEpoch || known == id.Epoch
	}
	epoch, ok := q.log.EpochAt(id.EndOffset - 1)
	return ok && id.EndOffset > q.log.StartOffset() && id.EndOffset <= q.log.EndOffset() && epoch == id.Epoch
}

// loadSnapshots finds the newest snapshot that can be read and brings the log in line with it, as an install that was
// cut short would have gone on (camunda#12754, openraft#559). It returns the voter set of the snapshot.
func (q *Quorum) loadSnapshots(recovery *log.Recovery) (raft.VoterSet, error) {
	var err error
	if q.snapshots, err = openSnapshots(q.cfg.FS, q.cfg.Dir); err != nil {
		return nil, err
	}
	q.snapshots.serveRotten = q.cfg.Raft.Mutant == raft.MutateServeRotten
	header, err := q.loadLatest(recovery)
	if err != nil {
		return nil, err
	}
	start := q.log.StartOffset()
	latest, ok := q.snapshots.latest()
	if !ok {
		if start > 0 {
			return nil, fmt.Errorf("the metadata log in %s starts at offset %d and there is no snapshot that holds what is before: "+
				"restore the directory, or remove this voter and add it with a new one", q.cfg.Dir, start)
		}
		return nil, nil
	}
	if latest.EndOffset < start {
		return nil, fmt.Errorf("the metadata log in %s starts at offset %d, but the latest snapshot ends at %d: what is between is lost; "+
			"restore the directory, or remove this voter and add it with a new one", q.cfg.Dir, start, latest.EndOffset)
	}
	if !q.holds(latest) {
		recovery.Repairs = append(recovery.Repairs, fmt.Sprintf(
			"the metadata log, %d to %d, does not hold the end of snapshot %s: it begins anew there", start, q.log.EndOffset(), latest))
		if err := q.restartBehind(latest); err != nil {
			return nil, err
		}
	} else if err := q.trim(); err != nil {
		return nil, err
	}
	return snapshotVoters(header)
}

// loadLatest reads the newest snapshot into q.state. One that is damaged is put aside when an older one, with the
// log behind it, still tells everything.
func (q *Quorum) loadLatest(recovery *log.Recovery) (metadata.SnapshotHeader, error) {
	for {
		latest, ok := q.snapshots.latest()
		if !ok {
			return metadata.SnapshotHeader{}, nil
		}
		image, header, err := q.snapshots.load(&q.snapshots.files[len(q.snapshots.files)-1])
		if err == nil {
			q.state = &State{image, header.LastContainedLogTimestamp}
			return header, nil
		}
		if errors.Is(err, fs.ErrNotExist) { // it went since it was listed (KAFKA-13098)
			q.snapshots.forget(latest)
			continue
		}
		if !errors.Is(err, metadata.ErrSnapshot) {
			return header, err
		}
		older := latest
		if n := len(q.snapshots.files); n > 1 {
			older = q.snapshots.files[n-2].id
		}
		if q.log.StartOffset() > 0 && (older == latest || older.EndOffset < q.log.StartOffset()) {
			return header, fmt.Errorf("%w; the log starts at offset %d and nothing else holds what is before: remove this voter and add it with a new directory",
				err, q.log.StartOffset())
		}
		recovery.Repairs = append(recovery.Repairs, fmt.Sprintf("a damaged snapshot is removed: %v", err))
		if err := q.snapshots.remove(func(f snapshotFile) bool { return f.id == latest }); err != nil {
			return header, err
		}
	}
}

func snapshotVoters(h metadata.SnapshotHeader) (raft.VoterSet, error) {
	if h.Voters == nil {
		return nil, nil
	}
	return voterSet(*h.Voters)
}

// restartBehind makes the log begin, empty, at the end of a snapshot.
func (q *Quorum) restartBehind(id metadata.SnapshotID) error {
	if err := q.log.TruncateFully(id.EndOffset); err != nil {
		return err
	}
	return q.snapshots.remove(func(f snapshotFile) bool { return f.id.Compare(id) < 0 })
}

// trim moves the log's start to the end of the oldest snapshot, unless that is the only one and the log goes back
// further: a replica that is less than a snapshot behind must not need one (braft#528).
func (q *Quorum) trim() error {
	if err := q.snapshots.remove(func(f snapshotFile) bool { return f.id.EndOffset < q.log.StartOffset() }); err != nil {
		return err
	}
	if q.cfg.Raft.Mutant == raft.MutateTrimAhead && q.node != nil {
		return q.log.SetStartOffset(q.node.HighWatermark())
	}
	oldest, ok := q.snapshots.oldest()
	if !ok || len(q.snapshots.files) < 2 && q.log.StartOffset() == 0 {
		return nil
	}
	return q.log.SetStartOffset(oldest.EndOffset)
}

// storeChunk writes a piece of a snapshot. What the leader sent wrong is refused; what the disk can't do is an error.
func (q *Quorum) storeChunk(e *raft.Effects) (raft.Event, error) {
	c := e.Chunk
	if c == nil {
		return nil, nil
	}
	if c.Position == 0 {
		if err := q.dropPartial(); err != nil {
			return nil, err
		}
		p, err := q.snapshots.begin(c.Snapshot)
		if err != nil {
			return nil, q.fail("begin a snapshot", err)
		}
		q.partial = p
	}
	p := q.partial
	if p == nil || p.id != c.Snapshot || p.size() != c.Position {
		return nil, q.fail("store a snapshot", fmt.Errorf("a piece of %s at byte %d does not continue what is here", c.Snapshot, c.Position))
	}
	q.received += int64(len(c.Bytes))
	if err := p.reader.Append(c.Bytes); err != nil {
		return raft.SnapshotRefused{Snapshot: c.Snapshot, Err: err}, q.dropPartial()
	}
	if n, err := p.file.WriteAt(c.Bytes, p.size()); err != nil || n < len(c.Bytes) {
		if err == nil {
			err = io.ErrShortWrite
		}
		return nil, q.fail("store a snapshot", err)
	}
	// The sync at the end must not find all of it to be written: no vote and no fetch is answered meanwhile.
	if err := p.file.WriteBack(p.size(), int64(len(c.Bytes))); err != nil {
		return nil, q.fail("store a snapshot", err)
	}
	_, _ = p.sums.Write(c.Bytes) // it takes everything
	return raft.ChunkStored{Snapshot: c.Snapshot, Position: p.size()}, nil
}

func (q *Quorum) dropSnapshot(e *raft.Effects) (raft.Event, error) {
	if !e.DropSnapshot {
		return nil, nil
	}
	return nil, q.dropPartial()
}

func (q *Quorum) dropPartial() error {
	p := q.partial
	if p == nil {
		return nil
	}
	q.partial = nil
	if err := q.snapshots.drop(p); err != nil {
		return q.fail("remove a partial snapshot", err)
	}
	return nil
}

// install makes the whole snapshot the state of this node. First the snapshot gets its name, durably; from there on a
// crash is followed by a start that goes on here (loadSnapshots).
func (q *Quorum) install(e *raft.Effects) (raft.Event, error) {
	if e.Install == nil {
		return nil, nil
	}
	id := *e.Install
	p := q.partial
	if p == nil || p.id != id {
		return nil, q.fail("install a snapshot", fmt.Errorf("snapshot %s is not here", id))
	}
	q.partial = nil
	image, header, err := q.snapshots.finish(p)
	var voters raft.VoterSet
	if err == nil {
		voters, err = snapshotVoters(header)
	}
	if errors.Is(err, metadata.ErrSnapshot) {
		return raft.SnapshotRefused{Snapshot: id, Err: err}, nil
	}
	if err != nil {
		return nil, q.fail("install snapshot "+id.String(), err)
	}
	if q.cfg.Raft.Mutant == raft.MutateInstallKeepsLog {
		err = q.snapshots.remove(func(f snapshotFile) bool { return f.id.Compare(fileID(id)) < 0 })
	} else if q.holds(fileID(id)) {
		err = q.log.SetStartOffset(id.End)
		if err == nil {
			err = q.snapshots.remove(func(f snapshotFile) bool { return f.id.Compare(fileID(id)) < 0 })
		}
	} else {
		err = q.restartBehind(fileID(id))
	}
	if err != nil {
		return nil, q.fail("install snapshot "+id.String(), err)
	}
	q.state = &State{image, header.LastContainedLogTimestamp}
	q.installed++
	return raft.SnapshotInstalled{Snapshot: id, Voters: voters}, nil
}

// TakeState returns, once, the state that a snapshot brought: at the start and after each install. Whoever follows the
// log goes on from its position, and must have it before it reads on.
func (q *Quorum) TakeState() (State, bool) {
	s := q.state
	q.state = nil
	if s == nil {
		return State{}, false
	}
	return *s, true
}

// PendingSnapshot is a snapshot between BeginSnapshot and EndSnapshot.
type PendingSnapshot struct {
	files  *snapshotFiles
	image  *metadata.Image
	header metadata.SnapshotHeader
	sums   blockSums
}

// ID names the snapshot.
func (p *PendingSnapshot) ID() metadata.SnapshotID { return p.image.SnapshotID() }

// Size is how long the file is, once it is written.
func (p *PendingSnapshot) Size() int64 { return p.sums.size }

// BeginSnapshot prepares a snapshot of an image, which stands at a batch's end outside of metadata transactions. The
// caller writes it (Write) without the lock and reports by EndSnapshot. It is nil when there is nothing new in it, or
// when the image is not committed here.
func (q *Quorum) BeginSnapshot(s State) *PendingSnapshot {
	id := s.Image.SnapshotID()
	latest, ok := q.snapshots.latestWhole()
	if q.err != nil || id.EndOffset > q.node.HighWatermark() || ok && id.EndOffset <= latest.EndOffset {
		return nil
	}
	// At the log's start there is one already, unless that is damaged.
	if start := q.log.StartOffset(); id.EndOffset < start || id.EndOffset == start && !q.snapshots.hasDamaged(id) {
		return nil
	}
	voters := q.node.VotersBelow(id.EndOffset)
	header := metadata.SnapshotHeader{LastContainedLogTimestamp: s.TimestampMs}
	if voters.Offset != raft.BootstrapOffset {
		record := votersRecord(voters.Voters)
		header.KRaftVersion, header.Voters = kraftVersion, &record
	}
	return &PendingSnapshot{files: q.snapshots, image: s.Image, header: header}
}

// Write writes the file and makes it durable. It may run beside everything else.
func (p *PendingSnapshot) Write() error {
	part := p.ID().String() + writtenPart
	f, err := p.files.fs.OpenFile(filepath.Join(p.files.dir, part), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	p.sums = blockSums{}
	if err := metadata.WriteSnapshot(io.MultiWriter(io.NewOffsetWriter(f, 0), &p.sums), p.image, p.header); err != nil {
		_ = f.Close()
		return err
	}
	return p.files.publish(f, part, p.ID())
}

// SnapshotLimits say what is kept. At least two snapshots are, so that a replica that is a little behind does not need
// one, and the log from the end of the oldest.
type SnapshotLimits struct {
	// Bytes of all snapshots and the log together (metadata.max.retention.bytes).
	Bytes int64
	// OldestMs: what was last appended to before this time, in ms since 1970, is too old (metadata.max.retention.ms).
	OldestMs int64
}

// EndSnapshot takes the outcome of Write. After an error of the disk the node must stop.
func (q *Quorum) EndSnapshot(now ident.Instant, p *PendingSnapshot, writeErr error, limits SnapshotLimits) error {
	if writeErr != nil {
		return q.fail("write snapshot "+p.ID().String(), writeErr)
	}
	if q.err != nil {
		return q.err
	}
	if p.ID().EndOffset < q.log.StartOffset() { // another one was installed meanwhile
		if err := q.snapshots.removeFile(p.ID().FileName()); err != nil {
			return q.fail("remove a snapshot", err)
		}
		return nil
	}
	q.snapshots.add(p.ID(), &p.sums, p.header.LastContainedLogTimestamp)
	if err := q.dropDamaged(); err != nil {
		return q.fail("remove a damaged snapshot", err)
	}
	for len(q.snapshots.files) > 2 && q.tooMuch(limits) {
		oldest := q.snapshots.files[0]
		if oldest.inUse(now) {
			break
		}
		// The log first: one that starts above its oldest snapshot's end is what a start expects.
		if err := q.log.SetStartOffset(q.snapshots.files[1].id.EndOffset); err != nil {
			return q.fail("trim the log", err)
		}
		if err := q.snapshots.remove(func(f snapshotFile) bool { return f.id == oldest.id }); err != nil {
			return q.fail("remove a snapshot", err)
		}
	}
	if err := q.trim(); err != nil {
		return q.fail("trim the log", err)
	}
	return nil
}

func (q *Quorum) tooMuch(limits SnapshotLimits) bool {
	total := q.log.Size()
	for _, f := range q.snapshots.files {
		total += f.size
	}
	if limits.Bytes >= 0 && total > limits.Bytes {
		return true
	}
	return q.snapshots.files[0].timestampMs < limits.OldestMs
}
