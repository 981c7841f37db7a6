package observer

import (
	"errors"
	"fmt"

	"github.com/highwater-io/highwater/pkg/batch"
	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
)

// maxPendingBytes bounds what is kept above the high watermark; beyond, it is dropped and fetched again.
const maxPendingBytes = 64 << 20

// fatalError is one after which the log can't be followed any more.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }
func (e *fatalError) Unwrap() error { return e.err }

// follower is the state of a replica without a disk: what was applied, and the uncommitted batches behind it. It
// applies only what lies below the high watermark, so that nothing it published is ever taken back.
type follower struct {
	loader  *metadata.Loader
	publish func(Step)

	epoch         ident.Epoch  // the highest quorum epoch heard of
	appliedEnd    ident.Offset // where the loader stands
	appliedEpoch  ident.Epoch  // the epoch of the last applied batch, 0 before the first
	voters        []Voter      // as of what was applied
	votersChanged bool         // since the last step
	highWatermark ident.Offset
	target        ident.Offset // the first high watermark heard of
	pending       []metadata.Batch
	pendingBytes  int
	maxPending    int
}

func newFollower(publish func(Step)) follower {
	return follower{
		loader: metadata.NewLoader(metadata.Empty(), -1), publish: publish, maxPending: maxPendingBytes,
		highWatermark: ident.UnknownOffset, target: ident.UnknownOffset,
	}
}

// end and lastEpoch are the position to fetch from. Kafka sends epoch 0 for an empty log.
func (f *follower) end() ident.Offset {
	if n := len(f.pending); n > 0 {
		return f.pending[n-1].LastOffset + 1
	}
	return f.appliedEnd
}

func (f *follower) lastEpoch() ident.Epoch {
	if n := len(f.pending); n > 0 {
		return f.pending[n-1].Epoch
	}
	return f.appliedEpoch
}

// position is what a fetch says about the fetcher.
type position struct {
	epoch         ident.Epoch // the quorum epoch it is asked in
	offset        ident.Offset
	lastEpoch     ident.Epoch
	highWatermark ident.Offset
}

func (f *follower) position() position {
	return position{f.epoch, f.end(), f.lastEpoch(), f.highWatermark}
}

func (f *follower) heard(epoch ident.Epoch) { f.epoch = max(f.epoch, epoch) }

func (f *follower) reachedTarget() bool {
	return f.target != ident.UnknownOffset && f.appliedEnd >= f.target
}

// take uses an answer without error code to a fetch at end.
func (f *follower) take(a answer) error {
	if a.diverging {
		return f.diverged(a)
	}
	if err := f.receive(a.records); err != nil {
		return err
	}
	if a.highWatermark != ident.UnknownOffset {
		f.highWatermark = max(f.highWatermark, a.highWatermark)
		if f.target == ident.UnknownOffset {
			f.target = a.highWatermark
		}
	}
	if err := f.apply(); err != nil {
		return err
	}
	if f.pendingBytes > f.maxPending {
		f.drop()
	}
	return nil
}

// diverged drops what was not committed. The leader must have what was: if that differs, either the quorum lost
// committed records or this is another cluster.
func (f *follower) diverged(a answer) error {
	if len(f.pending) == 0 {
		return &fatalError{fmt.Errorf("the leader's log differs from committed records: epoch %d ends at offset %d there, %d (epoch %d) was applied here",
			a.divergingEpoch, a.divergingEnd, f.appliedEnd, f.appliedEpoch)}
	}
	f.drop()
	return nil
}

// install replaces the state by a snapshot's and publishes the difference as one step. What is pending lies before the
// snapshot's end, or is fetched again.
func (f *follower) install(id metadata.SnapshotID, image *metadata.Image, header metadata.SnapshotHeader, highWatermark ident.Offset) {
	old := f.loader.Image()
	f.loader = metadata.NewLoader(image, header.LastContainedLogTimestamp)
	if header.Voters != nil {
		f.setVoters(*header.Voters)
	}
	f.appliedEnd, f.appliedEpoch = id.EndOffset, id.Epoch
	f.drop()
	f.highWatermark = max(f.highWatermark, id.EndOffset, highWatermark)
	if f.target == ident.UnknownOffset {
		f.target = f.highWatermark
	}
	f.tell(Step{Old: old, New: image, Delta: metadata.Compare(old, image)})
}

func (f *follower) tell(s Step) {
	s.Voters, s.VotersChanged, s.HighWatermark, s.Timestamp = f.voters, f.votersChanged, f.highWatermark, f.loader.Timestamp()
	f.votersChanged = false
	f.publish(s)
}

func (f *follower) setVoters(set batch.Voters) {
	f.voters, f.votersChanged = nil, true
	for _, v := range set.Voters {
		f.voters = append(f.voters, Voter{ID: v.ID, DirectoryID: v.DirectoryID})
	}
}

// noteVoters looks for a voter set among the control records of a batch that was applied (KIP-853).
func (f *follower) noteVoters(b metadata.Batch) error {
	for _, c := range b.Control {
		if c.Type != batch.VotersType {
			continue
		}
		voters, err := batch.DecodeVoters(c.Value)
		if err != nil {
			return fmt.Errorf("voters in the batch at offset %d: %w", b.BaseOffset, err)
		}
		f.setVoters(voters)
	}
	return nil
}

func (f *follower) drop() { f.pending, f.pendingBytes = nil, 0 }

// receive decodes fetched batches. A last one that is cut off is fetched again.
func (f *follower) receive(records []byte) error {
	for b, err := range metadata.ReadBatches(records) {
		switch {
		case errors.Is(err, batch.ErrTruncated):
			return nil
		case errors.Is(err, batch.ErrCorrupt):
			return err // Of this answer; the next may be whole.
		case err != nil:
			return &fatalError{err}
		case b.BaseOffset != f.end():
			return fmt.Errorf("a batch at offset %d was sent where %d comes next", b.BaseOffset, f.end())
		case b.Epoch < f.lastEpoch() || b.Epoch > f.epoch:
			return fmt.Errorf("the batch at offset %d has epoch %d, want %d to %d", b.BaseOffset, b.Epoch, f.lastEpoch(), f.epoch)
		}
		f.pending = append(f.pending, b)
		f.pendingBytes += b.SizeBytes
	}
	return nil
}

// apply publishes what is committed by now, as one step.
func (f *follower) apply() error {
	n := 0
	for ; n < len(f.pending) && f.pending[n].LastOffset < f.highWatermark; n++ {
		b := f.pending[n]
		if err := f.loader.Load(b); err != nil {
			return &fatalError{err}
		}
		if err := f.noteVoters(b); err != nil {
			return &fatalError{err}
		}
		f.appliedEnd, f.appliedEpoch = b.LastOffset+1, b.Epoch
		f.pendingBytes -= b.SizeBytes
	}
	if n == 0 {
		return nil
	}
	f.pending = append(f.pending[:0], f.pending[n:]...)
	clear(f.pending[len(f.pending):cap(f.pending)])
	old := f.loader.Image()
	before, _ := old.Position()
	delta, image := f.loader.Publish()
	if after, _ := image.Position(); after == before {
		return nil // Inside of a metadata transaction.
	}
	f.tell(Step{Old: old, New: image, Delta: delta})
	return nil
}
