package node

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/highwater-io/highwater/pkg/ident"
)

// maxFactWait bounds how long one request for facts may wait.
const maxFactWait = 30 * time.Second

// httpServer serves probes, metrics and the fact stream. It has no authority over anything: all of it reads, but for
// the acknowledgement of facts, which drops what was kept to be told.
type httpServer struct {
	server *http.Server
}

// ready answers a probe: nil, or why not.
type ready func() error

func newHTTPServer(livez, readyz ready, facts *factStream, registry *prometheus.Registry) *httpServer {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", probe(livez))
	mux.HandleFunc("GET /readyz", probe(readyz))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /facts", func(w http.ResponseWriter, r *http.Request) { serveFacts(w, r, facts) })
	mux.HandleFunc("POST /facts/acknowledged", func(w http.ResponseWriter, r *http.Request) { acknowledgeFacts(w, r, facts) })
	return &httpServer{server: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}}
}

func (s *httpServer) serve(ctx context.Context, listener net.Listener) error {
	s.server.BaseContext = func(net.Listener) context.Context { return ctx }
	stop := context.AfterFunc(ctx, func() { _ = s.server.Close() })
	defer stop()
	if err := s.server.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("HTTP listener %s: %w", listener.Addr(), err)
	}
	return nil
}

func probe(check ready) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

// serveFacts answers GET /facts?after=SEQ&incarnation=ID&wait=20s: the facts above SEQ, waiting for the first of them.
// Who says of which incarnation the number is learns at once, and from the first fact on, that this is another one.
func serveFacts(w http.ResponseWriter, r *http.Request, facts *factStream) {
	after, wait := int64(0), time.Duration(0)
	var err error
	if text := r.FormValue("after"); text != "" {
		if after, err = strconv.ParseInt(text, 10, 64); err != nil || after < 0 {
			http.Error(w, "after: want the number of the last fact seen, 0 or more", http.StatusBadRequest)
			return
		}
	}
	if text := r.FormValue("wait"); text != "" {
		if wait, err = time.ParseDuration(text); err != nil || wait < 0 {
			http.Error(w, `wait: want a duration such as "20s"`, http.StatusBadRequest)
			return
		}
	}
	if text := r.FormValue("incarnation"); text != "" {
		incarnation, err := ident.ParseUUID(text)
		if err != nil {
			http.Error(w, "incarnation: want the uuid that came with the last fact seen", http.StatusBadRequest)
			return
		}
		if incarnation != facts.incarnation {
			after, wait = 0, 0
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), min(wait, maxFactWait))
	defer cancel()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(facts.after(ctx, after))
}

// acknowledgeFacts answers POST /facts/acknowledged?incarnation=ID&upto=SEQ: the reader has written down what it read of
// this incarnation, up to that number, and need not be told again. 409 says that this is another incarnation, which
// tells what there is by numbers of its own.
func acknowledgeFacts(w http.ResponseWriter, r *http.Request, facts *factStream) {
	incarnation, err := ident.ParseUUID(r.FormValue("incarnation"))
	if err != nil {
		http.Error(w, "incarnation: want the uuid that came with the facts", http.StatusBadRequest)
		return
	}
	upTo, err := strconv.ParseInt(r.FormValue("upto"), 10, 64)
	if err != nil || upTo < 0 {
		http.Error(w, "upto: want the number of the last fact that was written down, 0 or more", http.StatusBadRequest)
		return
	}
	if incarnation != facts.incarnation {
		http.Error(w, fmt.Sprintf("this is incarnation %s", facts.incarnation), http.StatusConflict)
		return
	}
	if err := facts.acknowledge(upTo); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
