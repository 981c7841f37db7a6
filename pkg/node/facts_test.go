package node

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

func TestFactsAreNumberedAndTheOldestGo(t *testing.T) {
	s := newFactStream(testUUID(1, 1))
	for i := range keptFacts + 10 {
		s.add(nodefact.Fact{Kind: nodefact.ISRChange, Index: int32(i)})
	}
	page := s.after(t.Context(), 0)
	if len(page.Facts) != keptFacts || page.Facts[0].Seq != 11 || page.Facts[keptFacts-1].Seq != keptFacts+10 {
		t.Fatalf("%d facts from %d on", len(page.Facts), page.Facts[0].Seq)
	}
	for i, f := range page.Facts {
		if f.Seq != int64(i+11) || f.Index != int32(i+10) {
			t.Fatalf("fact %d is %+v", i, f)
		}
	}
	if page = s.after(t.Context(), keptFacts+9); len(page.Facts) != 1 {
		t.Fatalf("%d facts after the last but one", len(page.Facts))
	}
	// A number of an earlier process, which counted further: from the oldest that is kept.
	if page = s.after(t.Context(), keptFacts+11); len(page.Facts) != keptFacts || page.Incarnation != testUUID(1, 1) {
		t.Fatalf("%d facts of %v", len(page.Facts), page.Incarnation)
	}
}

func TestReaderOfFactsWaitsForTheNext(t *testing.T) {
	s := newFactStream(testUUID(1, 1))
	s.add(nodefact.Fact{Kind: nodefact.ISRChange})
	const readers = 3
	pages := make(chan nodefact.Page, readers)
	for range readers {
		go func() { pages <- s.after(t.Context(), 1) }()
	}
	s.add(nodefact.Fact{Kind: nodefact.ReplicaReset})
	for range readers {
		if page := <-pages; len(page.Facts) != 1 || page.Facts[0].Kind != nodefact.ReplicaReset || page.Facts[0].Seq != 2 {
			t.Fatalf("%+v", page)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if page := s.after(over, 2); page.Facts == nil || len(page.Facts) != 0 {
		t.Fatalf("%+v, want an empty list", page)
	}
}

func TestHTTP(t *testing.T) {
	facts := newFactStream(testUUID(1, 1))
	facts.add(nodefact.Fact{Kind: nodefact.ISRChange, TopicID: ident.UUID{0: 3}, Topic: "orders", Replica: 2, Reason: "LagTimeExceeded", LagOffsets: 5, LagMillis: 7, Time: time.Unix(1, 0).UTC()})
	var notReady error
	s := newHTTPServer(func() error { return nil }, func() error { return notReady }, facts, newMetrics().registry)
	server := httptest.NewServer(s.server.Handler)
	defer server.Close()
	get := func(path string) (int, string) {
		t.Helper()
		resp, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"/livez":          {200, "ok"},
		"/readyz":         {200, "ok"},
		"/metrics":        {200, "highwater_build_info"},
		"/facts?after=-1": {400, "after"},
		"/facts?after=x":  {400, "after"},
		"/facts?wait=20":  {400, "wait"},
		"/facts?wait=-1s": {400, "wait"},
		"/facts?after=1":  {200, `"facts":[]`},
		"/facts?after=0":  {200, `"lagMillis":7`},
		"/nothing":        {404, ""},
		"/facts?after=1&wait=20s&incarnation=" + testUUID(1, 2).String(): {200, `"lagMillis":7`}, // at once
		"/facts?after=1&incarnation=" + testUUID(1, 1).String():          {200, `"facts":[]`},
		"/facts?after=1&incarnation=x":                                   {400, "incarnation"},
	} {
		if code, text := get(path); code != want.code || !strings.Contains(text, want.text) {
			t.Errorf("%s: %d %q", path, code, text)
		}
	}
	notReady = errors.New("the broker is fenced")
	if code, text := get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "the broker is fenced") {
		t.Errorf("%d %q", code, text)
	}
	if code, _ := get("/livez"); code != 200 {
		t.Error("a node that is not ready is alive")
	}
	_, text := get("/facts")
	var page nodefact.Page
	if err := json.Unmarshal([]byte(text), &page); err != nil {
		t.Fatal(err)
	}
	if page.Incarnation != testUUID(1, 1) || len(page.Facts) != 1 || page.Facts[0] != facts.facts[0] {
		t.Fatalf("%+v", page)
	}
}
