package cluster

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/nodefact"
)

// factNode is a node's fact stream as the nodes serve it.
type factNode struct {
	mu          sync.Mutex
	incarnation ident.UUID
	facts       []nodefact.Fact
	broken      bool
}

func (n *factNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	after, err := strconv.ParseInt(r.FormValue("after"), 10, 64)
	if err != nil || r.URL.Path != "/facts" || n.broken {
		http.Error(w, "broken", http.StatusInternalServerError)
		return
	}
	page := nodefact.Page{Incarnation: n.incarnation, Facts: []nodefact.Fact{}}
	for _, f := range n.facts {
		if f.Seq > after {
			page.Facts = append(page.Facts, f)
		}
	}
	_ = json.NewEncoder(w).Encode(page)
}

func (n *factNode) become(incarnation byte, facts int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.incarnation, n.facts = ident.UUID{0: incarnation}, nil
	for seq := range facts {
		n.facts = append(n.facts, nodefact.Fact{Seq: int64(seq) + 1, Kind: "ISRChange", LagOffsets: int64(incarnation)})
	}
}

func TestFactReaderResumesAndBeginsAnewWithAnotherProcess(t *testing.T) {
	node := &factNode{}
	server := httptest.NewServer(node)
	defer server.Close()
	var got []string
	reader := &factReader{
		address: strings.TrimPrefix(server.URL, "http://"), client: server.Client(), log: logr.Discard(),
		began:  func(incarnation ident.UUID) { got = append(got, "began/"+strconv.Itoa(int(incarnation[0]))) },
		opened: func(ident.UUID) {},
		take: func(incarnation ident.UUID, f nodefact.Fact) {
			got = append(got, strconv.Itoa(int(incarnation[0]))+"/"+strconv.FormatInt(f.Seq, 10))
		},
	}
	read := func(want string) {
		t.Helper()
		got = nil
		if err := reader.read(context.Background()); err != nil {
			t.Fatal(err)
		}
		if all := strings.Join(got, " "); all != want {
			t.Errorf("read %q, want %q", all, want)
		}
	}
	node.become(1, 2)
	read("began/1 1/1 1/2")
	read("")
	node.become(1, 3)
	read("1/3")
	// Another process with more facts than were read of the first: what lies below the old number must not be missed.
	node.become(2, 5)
	read("began/2")
	read("2/1 2/2 2/3 2/4 2/5")

	node.mu.Lock()
	node.broken = true
	node.mu.Unlock()
	if err := reader.read(context.Background()); err == nil || !strings.Contains(err.Error(), "500") {
		t.Errorf("got %v, want the status", err)
	}
}
