package sim

import (
	"time"
)

// Traits of a schedule, which can be left out by name (Skip).
const (
	traitNoise    = "noise"     // messages are lost, doubled, late, out of order
	traitSlowDisk = "slow-disk" // some flushes take long
	traitSmall    = "small"     // fetches bring little at a time
	traitMeeting  = "meeting"   // election time-outs so short that candidates meet
	traitWire     = "wire"      // every message goes through Kafka's encoding
	traitSnapshot = "snapshots" // nodes take snapshots
	traitVoters   = "voters"    // voters come and go
	traitClocks   = "clocks"    // clocks jump and drift
	traitRot      = "rot"       // snapshots rot on the disks
	traitCalm     = "calm"      // one follower at a time is disturbed, nothing else
)

var traitNames = []string{traitNoise, traitSlowDisk, traitSmall, traitMeeting, traitWire, traitSnapshot, traitVoters, traitClocks, traitRot, traitCalm}

// traitChances are per thousand schedules.
var traitChances = []int{500, 300, 350, 350, 100, 750, 550, 350, 500, 60}

// quorumPlan is everything that is drawn of a schedule before it begins.
type quorumPlan struct {
	traits    map[string]bool
	voters    int
	faultTime time.Duration

	noise         Faults
	fetchMaxBytes int32
	snapshotBytes int // of new metadata make a snapshot due
	snapshotChunk int32
	voterLagMax   time.Duration

	faults, proposals []plannedEvent
}

// plannedEvent is a fault or a proposal. What it does follows from its own dice, and from how things stand then.
type plannedEvent struct {
	name string
	at   time.Duration
	dice Dice
}

// The streams of dice that a seed has, beside those of the world (0), the checker (3), the nodes (10 on) and the
// network.
const (
	planStream     = 2
	faultStream    = 1000
	proposalStream = 1_000_000
)

func newQuorumPlan(opts QuorumOptions) *quorumPlan {
	d := NewDice(opts.Seed, planStream)
	p := &quorumPlan{traits: map[string]bool{}, voters: 3, fetchMaxBytes: 1 << 20}
	for i, name := range traitNames {
		if drawn := d.Chance(traitChances[i]); drawn && !opts.Skip[name] {
			p.traits[name] = true
		}
	}
	if p.traits[traitCalm] {
		for _, name := range []string{traitNoise, traitSlowDisk, traitVoters, traitRot} {
			delete(p.traits, name)
		}
	}
	switch roll := d.IntN(100); {
	case roll < 30:
		p.voters = 5
	case roll < 35:
		p.voters = 1 // and grows
	}
	if opts.Voters != 0 {
		p.voters = opts.Voters
	}
	p.noise = Faults{
		DelayMin: 100 * time.Microsecond, DelayMax: d.Between(time.Millisecond, 20*time.Millisecond),
		Loss: d.IntN(60), Duplicate: d.IntN(60), Reorder: d.IntN(100),
	}
	if wild := d.Chance(300); wild {
		p.noise.Duplicate, p.noise.Reorder = 100+d.IntN(200), 100+d.IntN(300)
	}
	if small := int32(64 + d.IntN(400)); p.traits[traitSmall] {
		p.fetchMaxBytes = small
	}
	p.snapshotBytes = 500 + d.IntN(4000)
	if !p.traits[traitSnapshot] {
		p.snapshotBytes = 0
	}
	p.snapshotChunk = int32(64 + d.IntN(1000))
	p.voterLagMax = d.Between(300*time.Millisecond, 2*time.Second)
	p.faultTime = d.Between(4*time.Second, 10*time.Second)
	for at := d.Between(0, 500*time.Millisecond); at < p.faultTime; at += d.Between(20*time.Millisecond, 300*time.Millisecond) {
		p.faults = append(p.faults, opts.event('f', len(p.faults), at))
	}
	for at := time.Duration(0); at < p.faultTime; at += d.Between(time.Millisecond, 70*time.Millisecond) {
		p.proposals = append(p.proposals, opts.event('p', len(p.proposals), at))
	}
	return p
}

func (o QuorumOptions) event(kind byte, i int, at time.Duration) plannedEvent {
	stream := uint64(faultStream)
	if kind == 'p' {
		stream = proposalStream
	}
	return plannedEvent{name: eventName(kind, i), at: at, dice: NewDice(o.Seed, stream+uint64(i))}
}

// start puts the plan into the world's queue, without what is left out.
func (s *quorumSim) start() {
	for _, e := range s.plan.faults {
		s.planned(e, func() { s.fault(e) })
	}
	for _, e := range s.plan.proposals {
		s.planned(e, func() { s.proposal(e.dice) })
	}
}

func (s *quorumSim) planned(e plannedEvent, do func()) {
	if s.opts.Skip[e.name] {
		return
	}
	s.w.After(e.at, func() {
		if s.check.violation == "" && s.faulting {
			s.played = append(s.played, e.name)
			do()
		}
	})
}
