package localkube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/highwater-io/highwater/internal/localkube/fault"
	"github.com/highwater-io/highwater/internal/procs"
)

// Other processes change faults over a unix socket in the cluster's directory.
func socketOf(dir string) string { return filepath.Join(dir, "control.sock") }

// FaultRequest is what a client asks of the fault proxies.
type FaultRequest struct {
	Action   string        `json:"action"` // cut, delay, via or heal
	From     string        `json:"from"`
	To       string        `json:"to"`
	Listener string        `json:"listener"`
	Delay    time.Duration `json:"delay,omitempty"`
	Via      string        `json:"via,omitempty"` // host:port
	OneWay   bool          `json:"oneWay,omitempty"`
}

type controlServer struct {
	server *http.Server
	done   sync.WaitGroup
}

func serveControl(c *Cluster) (*controlServer, error) {
	name := socketOf(c.dir)
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", name)
	if err != nil {
		return nil, fmt.Errorf("listen for control requests on %s: %w (a socket's path may have about 100 bytes: use a shorter directory)", name, err)
	}
	if err := os.Chmod(name, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /faults", func(w http.ResponseWriter, r *http.Request) {
		var req FaultRequest
		err := json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&req)
		if err == nil {
			err = c.Fault(req)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(c.faults.Rules())
	})
	mux.HandleFunc("GET /passed", func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		from, err := c.participant(query.Get("from"))
		if err == nil {
			var to string
			if to, err = c.participant(query.Get("to")); err == nil {
				_ = json.NewEncoder(w).Encode(c.faults.LastPassed(from, to, query.Get("listener")))
				return
			}
		}
		http.Error(w, err.Error(), http.StatusBadRequest)
	})
	mux.HandleFunc("GET /ports/{namespace}/{pod}/{port}", func(w http.ResponseWriter, r *http.Request) {
		addr, ok := c.PodAddress(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("port"))
		if !ok {
			http.Error(w, "the pod has no address yet, or no such port", http.StatusNotFound)
			return
		}
		fmt.Fprint(w, addr)
	})
	mux.HandleFunc("GET /kubectl", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, c.Kubectl()) })
	s := &controlServer{server: &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}}
	s.done.Go(func() { _ = s.server.Serve(l) })
	return s, nil
}

func (s *controlServer) close() {
	s.server.Close()
	s.done.Wait()
}

// Fault cuts, delays, reroutes or heals a link. From and To are participants: namespace/name of a pod, its name alone when only
// one namespace has it, the name of a child such as operator, or * for all. Listener is a port's name or *.
func (c *Cluster) Fault(r FaultRequest) error {
	from, err := c.participant(r.From)
	if err != nil {
		return err
	}
	to, err := c.participant(r.To)
	if err != nil {
		return err
	}
	if r.Listener == "" {
		return errors.New("name a listener, such as INTERNAL, or * for all")
	}
	switch r.Action {
	case "cut":
		c.faults.Cut(from, to, r.Listener, r.OneWay)
	case "delay":
		if r.Delay < 0 {
			return fmt.Errorf("a delay of %v is negative", r.Delay)
		}
		c.faults.Delay(from, to, r.Listener, r.Delay, r.OneWay)
	case "via":
		if _, _, err := net.SplitHostPort(r.Via); err != nil {
			return fmt.Errorf("the address to go by: %w", err)
		}
		c.faults.Via(from, to, r.Listener, r.Via)
	case "heal":
		c.faults.Heal(from, to, r.Listener, r.OneWay)
	default:
		return fmt.Errorf("unknown action %q: use cut, delay, via or heal", r.Action)
	}
	return nil
}

// participant resolves a name that a person typed.
func (c *Cluster) participant(name string) (string, error) {
	if name == fault.Any {
		return name, nil
	}
	all := c.kubelet.Participants()
	if slices.Contains(all, name) {
		return name, nil
	}
	var found []string
	for _, p := range all {
		if _, pod, ok := strings.Cut(p, "/"); ok && pod == name {
			found = append(found, p)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", fmt.Errorf("%q may be %s: name one of them", name, strings.Join(found, " or "))
	case strings.Contains(name, "/"):
		return name, nil // a pod that is to come
	}
	return "", fmt.Errorf("there is no pod %q; there are %s", name, strings.Join(all, ", "))
}

// Remote is a cluster that another process runs.
type Remote struct {
	dir    string
	client *http.Client
}

// Connect returns the cluster whose directory is dir.
func Connect(dir string) *Remote {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socketOf(dir))
		if err != nil {
			return nil, fmt.Errorf("no local cluster is up in %s (highwater dev starts one): %w", dir, err)
		}
		return conn, nil
	}
	return &Remote{dir: dir, client: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}, Timeout: 10 * time.Second}}
}

// Kubeconfig is the file with which kubectl is cluster admin.
func (r *Remote) Kubeconfig() string { return filepath.Join(r.dir, "kubeconfig") }

// Kubectl is the path of a kubectl that fits the API server.
func (r *Remote) Kubectl(ctx context.Context) (string, error) {
	data, err := r.do(ctx, http.MethodGet, "/kubectl", nil)
	return string(data), err
}

// Fault cuts, delays, reroutes or heals a link.
func (r *Remote) Fault(ctx context.Context, f FaultRequest) error {
	body, err := json.Marshal(f)
	if err != nil {
		return err
	}
	_, err = r.do(ctx, http.MethodPost, "/faults", body)
	return err
}

// Faults returns the rules that hold.
func (r *Remote) Faults(ctx context.Context) ([]fault.Rule, error) {
	data, err := r.do(ctx, http.MethodGet, "/faults", nil)
	if err != nil {
		return nil, err
	}
	var rules []fault.Rule
	return rules, json.Unmarshal(data, &rules)
}

// LastPassed is when something that from sent to over connections to a listener last got through; the zero time when
// nothing ever did. Names are those of Fault, without *.
func (r *Remote) LastPassed(ctx context.Context, from, to, listener string) (time.Time, error) {
	query := url.Values{"from": {from}, "to": {to}, "listener": {listener}}
	data, err := r.do(ctx, http.MethodGet, "/passed?"+query.Encode(), nil)
	if err != nil {
		return time.Time{}, err
	}
	var at time.Time
	return at, json.Unmarshal(data, &at)
}

// PodAddress returns where a named port of a pod is reached.
func (r *Remote) PodAddress(ctx context.Context, namespace, pod, port string) (string, error) {
	data, err := r.do(ctx, http.MethodGet, "/ports/"+namespace+"/"+pod+"/"+port, nil)
	if err != nil {
		return "", fmt.Errorf("port %s of pod %s/%s: %w", port, namespace, pod, err)
	}
	return string(data), nil
}

func (r *Remote) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://local"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, errors.Unwrap(err) // url.Error would repeat a made-up address
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(data)))
	}
	return data, err
}

// Signal sends a signal to the processes of a pod or of a child (the operator), found by their pid files in the
// cluster's directory, also when the cluster's own process does not answer. It returns their pids.
func Signal(dir, name string, s syscall.Signal) ([]int, error) {
	refs, err := processes(dir, name)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, ref := range refs {
		if err := ref.Signal(s); err != nil {
			return pids, fmt.Errorf("signal %s: %w", name, err)
		}
		pids = append(pids, ref.Pid)
	}
	return pids, nil
}

// processes finds the living processes of a pod ([namespace/]name) or child.
func processes(dir, name string) ([]procs.Ref, error) {
	namespace, pod, ok := strings.Cut(name, "/")
	if !ok {
		namespace, pod = "*", name
	}
	// Kubernetes' names hold no underscore and nothing that a pattern treats apart.
	found, err := filepath.Glob(filepath.Join(dir, "pids", "pods", namespace+"_"+pod+"_*"+procs.Suffix))
	if err != nil {
		return nil, fmt.Errorf("%q is no pod's name: %w", name, err)
	}
	if !ok {
		found = append(found, filepath.Join(dir, "pids", name+procs.Suffix))
	}
	var refs []procs.Ref
	namespaces := map[string]bool{}
	for _, file := range found {
		ref, err := procs.ReadPidFile(file)
		if err == nil && ref.Alive() {
			first, _, _ := strings.Cut(filepath.Base(file), "_")
			namespaces[first] = true
			refs = append(refs, ref)
		}
	}
	switch {
	case len(refs) == 0:
		return nil, fmt.Errorf("no process of %q runs in the local cluster in %s", name, dir)
	case len(namespaces) > 1:
		return nil, fmt.Errorf("several namespaces have a pod %q: name it NAMESPACE/POD", name)
	}
	return refs, nil
}

// Signals by what they are for.
const (
	Pause  = syscall.SIGSTOP
	Resume = syscall.SIGCONT
	Kill   = syscall.SIGKILL
)
