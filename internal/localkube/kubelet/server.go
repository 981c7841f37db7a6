package kubelet

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// serve answers the API server's requests to the Nodes' kubelets, of which kubectl logs is played.
func (k *Kubelet) serve() (*http.Server, error) {
	cert, err := tls.X509KeyPair(k.o.Cert, k.o.Key)
	if err != nil {
		return nil, fmt.Errorf("the kubelet's certificate: %w", err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(k.o.ClientCA)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.serveLogs)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "the local cluster plays kubectl logs, not "+r.URL.Path+
			"; processes run on this machine, so look at them directly (docs/local-cluster.md)", http.StatusNotImplemented)
	})
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, ErrorLog: k.o.serverLog(),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert},
	}
	k.group.Go(func() { _ = server.ServeTLS(k.o.Network.listener, "", "") })
	return server, nil
}

func (k *Kubelet) serveLogs(w http.ResponseWriter, r *http.Request) {
	o, previous, err := parseLogQuery(r.URL.Query(), time.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	name := r.PathValue("container")
	worker := k.workerOf(r.PathValue("namespace"), r.PathValue("pod"))
	if worker == nil {
		http.Error(w, "the pod does not run here", http.StatusNotFound)
		return
	}
	file, running, ok := worker.log(name, previous)
	if !ok {
		what := "container"
		if previous {
			what = "previous terminated container"
		}
		http.Error(w, fmt.Sprintf("%s %q in pod %q not found", what, name, r.PathValue("pod")), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err := readLog(r.Context(), flushWriter{w}, file, o, running); errors.Is(err, fs.ErrNotExist) {
		http.Error(w, fmt.Sprintf("container %q has not started", name), http.StatusBadRequest)
	}
}

// flushWriter lets readLog push out what a follower waits for.
type flushWriter struct{ http.ResponseWriter }

func (f flushWriter) Flush() { _ = http.NewResponseController(f.ResponseWriter).Flush() }

func parseLogQuery(q url.Values, now time.Time) (o LogOptions, previous bool, err error) {
	o.Tail = -1
	number := func(name string, into *int64) {
		if s := q.Get(name); s != "" && err == nil {
			if *into, err = strconv.ParseInt(s, 10, 64); err != nil || *into < 0 {
				err = fmt.Errorf("%s=%q is not a number", name, s)
			}
		}
	}
	var since int64
	number("tailLines", &o.Tail)
	number("limitBytes", &o.LimitBytes)
	number("sinceSeconds", &since)
	if since > 0 {
		o.Since = now.Add(-time.Duration(since) * time.Second)
	}
	if s := q.Get("sinceTime"); s != "" && err == nil {
		o.Since, err = time.Parse(time.RFC3339, s)
	}
	o.Follow = q.Get("follow") == "true"
	o.Timestamps = q.Get("timestamps") == "true"
	switch q.Get("stream") {
	case "Stdout":
		o.Stream = "stdout"
	case "Stderr":
		o.Stream = "stderr"
	}
	return o, q.Get("previous") == "true", err
}
