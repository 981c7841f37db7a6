package observer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/metadata"
	"github.com/highwater-io/highwater/pkg/wire"
)

// Defaults of a Config's fields.
const (
	DefaultMaxWait        = 500 * time.Millisecond
	DefaultMaxBytes       = 8 << 20
	DefaultAttemptTimeout = time.Second
	DefaultRequestTimeout = 1500 * time.Millisecond
	DefaultBackOffMin     = 50 * time.Millisecond
	DefaultBackOffMax     = 500 * time.Millisecond
)

// Step is one published step of the committed metadata: what lies between two images.
type Step struct {
	// Old and New are the images before and after; New's Position is that of the last record in it.
	Old, New *metadata.Image
	// Delta says what changed. It belongs to the consumer.
	Delta *metadata.Delta
	// Voters is the voter set as of New, nil while none was read; it is not to be changed. VotersChanged says that this
	// step brought it.
	Voters        []Voter
	VotersChanged bool
	// HighWatermark is the leader's, as far as known at this step.
	HighWatermark ident.Offset
	// Timestamp is when the last record of the step was appended, by the leader's clock, in ms since 1970.
	Timestamp int64
}

// Voter is a member of the voter set: a node with a certain directory (KIP-853).
type Voter struct {
	ID          ident.NodeID
	DirectoryID ident.UUID
}

// Config is what an Observer is made of. Bootstrap is required.
type Config struct {
	// Bootstrap returns addresses (host:port) of voters' CONTROLLER or data nodes' INTERNAL listeners. It is
	// asked before each round of attempts, so that the set may change.
	Bootstrap func() []string
	// ClusterID, when not empty, is checked by the leader (INCONSISTENT_CLUSTER_ID).
	ClusterID string
	// Dialer defaults to one without host table.
	Dialer *wire.Dialer
	// OnStep is called for each step, in order, on Run's goroutine: while it runs nothing is fetched.
	OnStep func(Step)
	// OnState is called when the state changes, on Run's goroutine.
	OnState func(State)
	Log     *slog.Logger

	// MaxWait is how long the leader may hold a fetch, MaxBytes how much it may answer.
	MaxWait  time.Duration
	MaxBytes int32
	// AttemptTimeout bounds connecting and asking one address while looking for the leader; RequestTimeout is
	// granted to a fetch beyond MaxWait.
	AttemptTimeout, RequestTimeout time.Duration
	// BackOffMin and BackOffMax bound the pause between rounds of attempts.
	BackOffMin, BackOffMax time.Duration
}

// Observer follows one cluster's metadata log.
type Observer struct {
	cfg      Config
	caughtUp chan struct{}
	follower follower // only Run's goroutine

	mu     sync.Mutex
	state  State
	image  *metadata.Image
	voters []Voter
}

// New checks cfg and fills its defaults.
func New(cfg Config) (*Observer, error) {
	if cfg.Bootstrap == nil {
		return nil, errors.New("observer: no bootstrap addresses")
	}
	if cfg.Dialer == nil {
		cfg.Dialer = &wire.Dialer{}
	}
	if cfg.OnStep == nil {
		cfg.OnStep = func(Step) {}
	}
	if cfg.OnState == nil {
		cfg.OnState = func(State) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	for _, field := range []struct {
		value     *time.Duration
		byDefault time.Duration
	}{
		{&cfg.MaxWait, DefaultMaxWait},
		{&cfg.AttemptTimeout, DefaultAttemptTimeout},
		{&cfg.RequestTimeout, DefaultRequestTimeout},
		{&cfg.BackOffMin, DefaultBackOffMin},
		{&cfg.BackOffMax, DefaultBackOffMax},
	} {
		if *field.value < 0 {
			return nil, fmt.Errorf("observer: a time of %v is negative", *field.value)
		}
		if *field.value == 0 {
			*field.value = field.byDefault
		}
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	o := &Observer{
		cfg: cfg, caughtUp: make(chan struct{}), image: metadata.Empty(),
		state: State{Status: Searching, Leader: ident.NoNode, Epoch: ident.UnknownEpoch},
	}
	o.follower = newFollower(o.publish)
	return o, nil
}

// State returns how things stand.
func (o *Observer) State() State {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.state
}

// Image returns the newest published image, the empty one at first.
func (o *Observer) Image() *metadata.Image {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.image
}

// Voters returns the voter set as of Image, nil while none was read. It is not to be changed.
func (o *Observer) Voters() []Voter {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.voters
}

// CaughtUpOnce is closed when all has been applied that was committed when the leader was first reached. Before
// that an image may be older than what others saw long ago.
func (o *Observer) CaughtUpOnce() <-chan struct{} { return o.caughtUp }

// Run follows the log until ctx ends (it then returns ctx's error) or the log can't be followed any more: a
// record that this build doesn't know, or committed records that the leader doesn't have. It may be called once.
func (o *Observer) Run(ctx context.Context) error {
	backOff := o.cfg.BackOffMin
	for ctx.Err() == nil {
		leader := o.search(ctx)
		if leader != nil {
			began := time.Now()
			err := o.follow(ctx, leader)
			leader.conn.Close()
			var fatal *fatalError
			if errors.As(err, &fatal) {
				state := o.State()
				state.Status, state.Err, state.Attempts = Failed, fatal.err, nil
				o.setState(state)
				return fmt.Errorf("follow the metadata log of %s: %w", leader.addr, fatal.err)
			}
			if ctx.Err() == nil {
				o.cfg.Log.Debug("lost the metadata leader", "addr", leader.addr, "error", err)
			}
			if time.Since(began) > o.cfg.BackOffMax {
				backOff = o.cfg.BackOffMin
				continue // It worked for a while: look at once.
			}
		}
		pause := backOff - rand.N(backOff/2+1)
		backOff = min(2*backOff, o.cfg.BackOffMax)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return ctx.Err()
}

// follow fetches from a leader until that ends.
func (o *Observer) follow(ctx context.Context, l *leader) error {
	answer := l.first
	for {
		if err := o.take(ctx, l, answer); err != nil {
			return err
		}
		next, err := o.fetch(ctx, l.conn, o.follower.position(), o.cfg.MaxWait, o.cfg.MaxWait+o.cfg.RequestTimeout)
		if err != nil {
			return err
		}
		answer = next
	}
}

// take uses the answer of a leader.
func (o *Observer) take(ctx context.Context, l *leader, a answer) error {
	o.follower.heard(a.epoch)
	if a.code != 0 {
		return fmt.Errorf("%s answers %w", l.addr, a.err())
	}
	use := func() error { return o.follower.take(a) }
	if a.needsSnapshot {
		use = func() error { return o.loadSnapshot(ctx, l, a) }
	}
	if err := use(); err != nil {
		// Reached, but of no use. A connection that stands while nothing moves would hide that.
		o.setState(State{Status: Disconnected, Leader: l.id(a), Epoch: o.follower.epoch,
			Attempts: []Attempt{{Addr: l.addr, Reached: true, Err: err}}})
		return err
	}
	o.setState(State{Status: Connected, Leader: l.id(a), Epoch: o.follower.epoch, Addr: l.addr})
	if o.follower.reachedTarget() {
		select {
		case <-o.caughtUp:
		default:
			close(o.caughtUp)
		}
	}
	return nil
}

func (o *Observer) publish(s Step) {
	o.mu.Lock()
	o.image, o.voters = s.New, s.Voters
	o.mu.Unlock()
	o.cfg.OnStep(s)
}

func (o *Observer) setState(s State) {
	o.mu.Lock()
	changed := !s.same(o.state)
	o.state = s
	o.mu.Unlock()
	if changed {
		o.cfg.Log.Info("metadata quorum", "status", s.Status.String(), "leader", s.Leader, "epoch", s.Epoch, "addr", s.Addr,
			"tried", s.Tried(), "error", s.Err)
		o.cfg.OnState(s)
	}
}
