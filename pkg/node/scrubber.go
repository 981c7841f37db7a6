package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/log"
	"github.com/highwater-io/highwater/pkg/node/exec"
)

// scrubber reads the sealed segments of all replicas and checks their checksums, which nobody else does: records go
// from the disk to the socket unseen. A pass over everything takes an interval (--scrub-interval); segments that a
// look-up found suspicious are checked at once.
type scrubber struct {
	broker *broker

	// reading is held by the loop that reads: a log has one scrub at a time, and who finds it taken waits here and
	// neither leaves the rest of that log out nor tries again and again.
	reading sync.Mutex

	mu       sync.Mutex
	suspects []*replica
	kick     chan struct{}
}

const (
	scrubStepBytes = 1 << 20   // between two pauses
	scrubMinRate   = 256 << 10 // bytes per second, however little there is to be read
)

func newScrubber(b *broker) *scrubber { return &scrubber{broker: b, kick: make(chan struct{}, 1)} }

// want has the suspect segments of a replica checked now. The replica's mutex is held.
func (s *scrubber) want(r *replica) {
	s.mu.Lock()
	if !slices.Contains(s.suspects, r) {
		s.suspects = append(s.suspects, r)
	}
	s.mu.Unlock()
	wakeUp(s.kick)
}

func (s *scrubber) nextSuspect() *replica {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.suspects) == 0 {
		return nil
	}
	r := s.suspects[0]
	s.suspects = s.suspects[1:]
	return r
}

// suspectLoop checks what is suspect, without a pause.
func (s *scrubber) suspectLoop(ctx context.Context) {
	for {
		for r := s.nextSuspect(); r != nil && ctx.Err() == nil; r = s.nextSuspect() {
			for ctx.Err() == nil && r.suspects() && s.step(r) > 0 {
			}
		}
		if !kicked(ctx, s.kick) {
			return
		}
	}
}

// run makes one pass after the other, the first when the node starts. Each begins an interval after the one before, or
// later when that took longer.
func (s *scrubber) run(ctx context.Context) {
	interval := s.broker.cfg.ScrubInterval
	for interval > 0 {
		next := time.Now().Add(interval)
		s.pass(ctx, interval)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(next)):
		}
	}
}

// pass checks all replicas once, spread over nine tenths of the interval.
func (s *scrubber) pass(ctx context.Context, interval time.Duration) {
	b := s.broker
	var replicas []*replica
	total := int64(0)
	b.eachReplica(func(r *replica) {
		replicas = append(replicas, r)
		total += r.partition.Log().Size()
	})
	slices.SortFunc(replicas, func(x, y *replica) int { return x.id.Compare(y.id) })
	rate := max(float64(total)/(0.9*interval.Seconds()), scrubMinRate)
	began := time.Now()
	read := int64(0)
	for _, r := range replicas {
		for {
			n := s.step(r)
			if n < 0 {
				break
			}
			read += n
			due := began.Add(time.Duration(float64(read) / rate * float64(time.Second)))
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(due)):
			}
		}
	}
	b.logger.Info("the checksums of all sealed segments were checked", "replicas", len(replicas), "bytes", read, "took", time.Since(began).Round(time.Second))
}

// step checks the next piece of a replica's log.
func (s *scrubber) step(r *replica) int64 {
	s.reading.Lock()
	defer s.reading.Unlock()
	return r.scrub(scrubStepBytes)
}

func (r *replica) suspects() (yes bool) {
	return r.do(func(_ ident.Instant, p *exec.Partition) { yes = p.Log().Suspects() }) && yes
}

// scrub checks some of the replica's log and returns how many bytes; -1 when all of it has been checked.
func (r *replica) scrub(limitBytes int64) int64 {
	var s *log.Scrub
	if !r.do(func(_ ident.Instant, p *exec.Partition) { s = p.BeginScrub(limitBytes) }) || s == nil {
		return -1
	}
	err := s.Run()
	r.broker.metrics.scrubbed.Add(float64(s.Bytes))
	r.mu.Lock()
	now := r.broker.clock.now()
	r.partition.EndScrub(now, s, err) // also when it was closed meanwhile: a file is held by it
	after := r.drain(now)
	r.mu.Unlock()
	r.act(after)
	return s.Bytes
}
