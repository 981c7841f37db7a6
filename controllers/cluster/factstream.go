package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-logr/logr"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/nodefact"
	"github.com/highwater-io/highwater/pkg/wire"
)

const (
	// factWait is how long a node holds a request for facts open when it has none.
	factWait = 20 * time.Second
	// factPause is how long a reader leaves a node alone that did not answer.
	factPause = time.Second
	// maxFactPage bounds one answer; a node keeps some thousand facts of a few hundred bytes.
	maxFactPage = 16 << 20
)

// factReader follows the numbered facts of one node.
type factReader struct {
	address string
	client  *http.Client
	log     logr.Logger
	// began is told of each incarnation of the node before its facts are taken.
	began func(incarnation ident.UUID)
	// opened is told of the directory that the node has, with each answer.
	opened func(directory ident.UUID)
	take   func(incarnation ident.UUID, f nodefact.Fact)

	incarnation ident.UUID
	after       int64
}

// newFactClient returns a client that finds nodes by the host table.
func newFactClient(hosts *wire.HostTable) *http.Client {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	return &http.Client{
		Timeout: factWait + 10*time.Second,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return dialer.DialContext(ctx, network, hosts.Dial(address))
			},
			MaxIdleConnsPerHost: 1,
			IdleConnTimeout:     2 * factWait,
		},
	}
}

// run reads until ctx ends. A node that can't be reached is tried again: facts may be missed, never waited for.
func (r *factReader) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := r.read(ctx); err != nil && ctx.Err() == nil {
			r.log.V(1).Info("no facts from node", "address", r.address, "error", err.Error())
			select {
			case <-ctx.Done():
			case <-time.After(factPause):
			}
		}
	}
}

// read asks once for what comes after the last fact.
func (r *factReader) read(ctx context.Context) error {
	wait := factWait
	if r.incarnation.IsZero() {
		wait = 0 // who it is comes first
	}
	query := url.Values{"after": {strconv.FormatInt(r.after, 10)}, "wait": {wait.String()}}
	if !r.incarnation.IsZero() {
		query.Set("incarnation", r.incarnation.String()) // a node of another one answers at once
	}
	where := url.URL{Scheme: "http", Host: r.address, Path: "/facts", RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), http.NoBody)
	if err != nil {
		return err
	}
	response, err := r.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", where.String(), response.Status)
	}
	var page nodefact.Page
	if err := json.NewDecoder(io.LimitReader(response.Body, maxFactPage)).Decode(&page); err != nil {
		return fmt.Errorf("facts of %s: %w", r.address, err)
	}
	if page.Incarnation != r.incarnation {
		// Another process counts from one again. What it sent in answer to the old number may begin later.
		restarted := !r.incarnation.IsZero() && r.after > 0
		r.incarnation, r.after = page.Incarnation, 0
		r.began(page.Incarnation)
		if restarted {
			r.opened(page.DirectoryID)
			return nil
		}
	}
	r.opened(page.DirectoryID)
	for _, fact := range page.Facts {
		if fact.Seq > r.after {
			r.after = fact.Seq
			r.take(page.Incarnation, fact)
		}
	}
	return nil
}
