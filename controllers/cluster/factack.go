package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/highwater-io/highwater/pkg/ident"
)

// factAcknowledger tells one node up to which fact everything was written down. Only the newest counts, and it is tried
// until the node has taken it, or has begun another incarnation, which tells again what is still to be told.
type factAcknowledger struct {
	address string
	client  *http.Client
	log     logr.Logger
	kick    chan struct{}

	mu          sync.Mutex
	incarnation ident.UUID
	upTo        int64 // 0: nothing to be said
}

func newFactAcknowledger(address string, client *http.Client, log logr.Logger) *factAcknowledger {
	return &factAcknowledger{address: address, client: client, log: log, kick: make(chan struct{}, 1)}
}

// acknowledge has it said; it does not wait.
func (a *factAcknowledger) acknowledge(incarnation ident.UUID, upTo int64) {
	a.mu.Lock()
	a.incarnation, a.upTo = incarnation, upTo
	a.mu.Unlock()
	select {
	case a.kick <- struct{}{}:
	default:
	}
}

// run says what is to be said until ctx ends.
func (a *factAcknowledger) run(ctx context.Context) {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.kick:
		case <-again:
		}
		again = nil
		if err := a.say(ctx); err != nil && ctx.Err() == nil {
			a.log.V(1).Info("a node does not take the acknowledgement of its facts", "address", a.address, "error", err.Error())
			again = time.After(factPause)
		}
	}
}

// say sends what there is to be said. An error is worth another try.
func (a *factAcknowledger) say(ctx context.Context) error {
	a.mu.Lock()
	incarnation, upTo := a.incarnation, a.upTo
	a.mu.Unlock()
	if upTo == 0 {
		return nil
	}
	query := url.Values{"incarnation": {incarnation.String()}, "upto": {strconv.FormatInt(upTo, 10)}}
	where := url.URL{Scheme: "http", Host: a.address, Path: "/facts/acknowledged", RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, where.String(), http.NoBody)
	if err != nil {
		return err
	}
	response, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<10))
	if response.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("POST %s: %s", where.String(), response.Status)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.incarnation == incarnation && a.upTo == upTo {
		a.upTo = 0
	}
	return nil
}
