package cluster

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"

	"github.com/highwater-io/highwater/pkg/ident"
)

// An acknowledgement is tried until the node has taken it; only the newest counts, and to another incarnation there is
// nothing to be said.
func TestAcknowledgementIsTriedUntilItIsTaken(t *testing.T) {
	for name, c := range map[string]struct {
		answers []int
		asked   int
	}{
		"taken":               {[]int{http.StatusNoContent}, 1},
		"its disk fails":      {[]int{http.StatusServiceUnavailable, http.StatusServiceUnavailable, http.StatusNoContent}, 3},
		"another incarnation": {[]int{http.StatusConflict}, 1},
		"an earlier version":  {[]int{http.StatusNotFound}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = append(asked, r.Method+" "+r.URL.String())
				w.WriteHeader(c.answers[len(asked)-1])
			}))
			defer server.Close()
			a := newFactAcknowledger(strings.TrimPrefix(server.URL, "http://"), server.Client(), logr.Discard())
			a.acknowledge(ident.UUID{0: 1}, 5)
			a.acknowledge(ident.UUID{0: 1}, 7)
			for i := range c.answers {
				if err := a.say(t.Context()); (err != nil) != (i < len(c.answers)-1) {
					t.Fatalf("answer %d: %v", c.answers[i], err)
				}
			}
			if err := a.say(t.Context()); err != nil || len(asked) != c.asked {
				t.Fatalf("asked %v, %v", asked, err)
			}
			if want := "POST /facts/acknowledged?incarnation=" + (ident.UUID{0: 1}).String() + "&upto=7"; asked[0] != want {
				t.Errorf("%s, want %s", asked[0], want)
			}
		})
	}
}

func TestAcknowledgerSaysItByItselfAndEnds(t *testing.T) {
	defer goleak.VerifyNone(t)
	taken := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		taken <- struct{}{}
	}))
	defer server.Close()
	a := newFactAcknowledger(strings.TrimPrefix(server.URL, "http://"), server.Client(), logr.Discard())
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { a.run(ctx) })
	a.acknowledge(ident.UUID{0: 1}, 5)
	<-taken
	cancel()
	running.Wait()
}
