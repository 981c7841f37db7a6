package localkube

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/highwater-io/highwater/internal/localkube/kubelet"
	"github.com/highwater-io/highwater/internal/procs"
)

// stopTimeout is what a child, or a whole cluster, gets to stop by itself.
const stopTimeout = 30 * time.Second

// ChildSpec is a program that runs beside the pods, such as the operator.
type ChildSpec struct {
	// Name is its name in fault rules, of its log (logs/NAME.log) and its pid file (pids/NAME.pid).
	Name string
	Path string
	Args []string
	// Env is added to a few variables of this process: PATH, HOME, TMPDIR and those of the Go runtime.
	Env []string
	// Namespace and ServiceAccount say whose rights it has: KUBECONFIG names a file with a token. Without them it has
	// none.
	Namespace, ServiceAccount string
}

// Child is such a program, started anew with back-off whenever it ends.
type Child struct {
	spec    procs.Spec
	cancel  context.CancelFunc
	done    chan struct{}
	mu      sync.Mutex
	process *procs.Process
}

// StartChild runs a program until the cluster stops. It finds pods by a hosts file (HIGHWATER_HOSTS_FILE), and its
// traffic goes through the fault proxies as a pod's does.
func (c *Cluster) StartChild(ctx context.Context, s ChildSpec) (*Child, error) {
	hosts := filepath.Join(c.dir, "hosts", s.Name)
	if err := c.kubelet.AddParticipant(s.Name, hosts); err != nil {
		return nil, err
	}
	env := []string{kubelet.HostsVariable + "=" + hosts}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "GOMAXPROCS", "GOTRACEBACK", "GODEBUG", "GOCOVERDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	if s.ServiceAccount != "" {
		kubeconfig := filepath.Join(c.dir, s.Name+".kubeconfig")
		if err := c.ServiceAccountKubeconfig(ctx, s.Namespace, s.ServiceAccount, kubeconfig); err != nil {
			return nil, err
		}
		env = append(env, "KUBECONFIG="+kubeconfig, "POD_NAMESPACE="+s.Namespace)
	}
	log, err := os.OpenFile(filepath.Join(c.dir, "logs", s.Name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	child := &Child{done: make(chan struct{}), spec: procs.Spec{
		Path: s.Path, Args: s.Args, Dir: c.dir, Env: append(env, s.Env...), Stdout: log, Stderr: log, PidFile: c.pids(s.Name + procs.Suffix),
	}}
	if err := child.start(); err != nil {
		log.Close()
		return nil, err
	}
	running, cancel := context.WithCancel(context.Background())
	child.cancel = cancel
	go func() {
		defer log.Close()
		defer close(child.done)
		child.keep(running, func(err error) { c.log.Error(err, "start a child again", "name", s.Name) })
	}()
	c.children = append(c.children, child)
	return child, nil
}

func (c *Child) start() error {
	p, err := procs.Start(c.spec)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process = p
	return nil
}

// keep starts the program again when it ends: at once the first time, then after a second, two, four, up to a minute;
// it begins anew when the program ran for two minutes.
func (c *Child) keep(ctx context.Context, failed func(error)) {
	wait := time.Duration(0)
	for {
		p := c.current()
		select {
		case <-ctx.Done():
			p.Stop(stopTimeout)
			return
		case <-p.Done():
		}
		if time.Since(p.Started()) > 2*time.Minute {
			wait = 0
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		wait = min(max(2*wait, time.Second), time.Minute)
		if err := c.start(); err != nil {
			failed(err)
		}
	}
}

func (c *Child) current() *procs.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.process
}

// Pid is the process id of the program that runs or ran last.
func (c *Child) Pid() int { return c.current().Pid() }

// Stop ends the program for good.
func (c *Child) Stop() {
	c.cancel()
	<-c.done
}
