package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/highwater-io/highwater/internal/localkube/fault"
)

// Backoff says how long a container that ended waits before it runs again: not at all the first time, then Initial,
// doubled each time up to Max, and from the start again when it ran for twice Max. The zero value is that of
// KEP-4603, a second to a minute.
type Backoff struct {
	Initial, Max time.Duration
}

// Options say what the kubelets are given.
type Options struct {
	Client   client.Client // reads from Cache
	Uncached client.Client
	Cache    cache.Cache // started, or about to be
	Recorder record.EventRecorder
	Log      logr.Logger

	Dir     string // pods' directories
	PidDir  string // pid files of containers: <namespace>_<pod>_<container>.pid
	Nodes   int    // how many Nodes there are at least; those of an earlier run stay
	Images  Images
	Network *Network
	Faults  *fault.Table
	// DirectPeers leaves the fault proxies out of hosts files.
	DirectPeers bool
	Backoff     Backoff

	Cert, Key []byte // of the log server, PEM
	ClientCA  []byte // who may read logs, PEM
}

func (o *Options) serverLog() *log.Logger {
	return log.New(logWriterFunc(func(p []byte) { o.Log.V(1).Info("log server", "message", string(p)) }), "", 0)
}

type logWriterFunc func([]byte)

func (f logWriterFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

// Kubelet runs the pods of all Nodes of a local cluster.
type Kubelet struct {
	o      Options
	client client.Client
	log    logr.Logger
	ctx    context.Context
	cancel context.CancelFunc
	group  sync.WaitGroup
	server *http.Server
	nodes  map[string]bool

	mu       sync.Mutex
	workers  map[types.UID]*worker
	latest   map[types.NamespacedName]*worker // the last one of each name
	finished map[types.UID]bool               // ended here, object not yet gone
	stopped  bool

	hostsMu   sync.Mutex
	hostsWake chan struct{}
	endpoints map[string]endpoint
}

// Start registers the Nodes and runs the pods that are bound to them, those of an earlier run too.
func Start(ctx context.Context, o Options) (*Kubelet, error) {
	o.Backoff.Initial = cmp.Or(o.Backoff.Initial, time.Second)
	o.Backoff.Max = cmp.Or(o.Backoff.Max, time.Minute)
	k := &Kubelet{
		o: o, client: o.Client, log: o.Log, nodes: map[string]bool{},
		workers: map[types.UID]*worker{}, latest: map[types.NamespacedName]*worker{}, finished: map[types.UID]bool{},
		hostsWake: make(chan struct{}, 1), endpoints: map[string]endpoint{},
	}
	k.ctx, k.cancel = context.WithCancel(context.WithoutCancel(ctx))
	var err error
	if k.o.Nodes, err = atLeast(ctx, o.Uncached, o.Nodes); err != nil {
		k.cancel()
		return nil, err
	}
	for i := range k.o.Nodes {
		k.nodes[NodeName(i)] = true
	}
	if k.server, err = k.serve(); err != nil {
		k.cancel()
		return nil, err
	}
	if err = k.register(ctx); err == nil {
		err = k.watch(ctx)
	}
	if err != nil {
		k.Stop()
		return nil, err
	}
	k.group.Go(k.keepLeases)
	k.group.Go(k.keepHosts)
	return k, nil
}

// Stop ends all pods' processes, leaves their objects as they are, and returns when nothing runs any more.
func (k *Kubelet) Stop() {
	k.mu.Lock()
	k.stopped = true
	k.mu.Unlock()
	k.cancel()
	k.server.Close()
	k.group.Wait()
}

// watch starts a worker for each pod and wakes workers when something that their pods use changes.
func (k *Kubelet) watch(ctx context.Context) error {
	pods, err := k.o.Cache.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	_, err = pods.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { k.podChanged(o) },
		UpdateFunc: func(_, o any) { k.podChanged(o) },
		DeleteFunc: func(o any) { k.podGone(o) },
	})
	if err != nil {
		return err
	}
	wake := func(o any) {
		if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if object, ok := o.(client.Object); ok {
			k.wakeNamespace(object.GetNamespace())
		}
	}
	for _, kind := range []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}, &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}} {
		informer, err := k.o.Cache.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: wake, UpdateFunc: func(_, o any) { wake(o) }, DeleteFunc: wake,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (k *Kubelet) podChanged(o any) {
	pod, ok := o.(*corev1.Pod)
	if !ok || !k.nodes[pod.Spec.NodeName] {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped || k.finished[pod.UID] {
		return
	}
	w := k.workers[pod.UID]
	if w == nil {
		key := client.ObjectKeyFromObject(pod)
		w = newWorker(k, pod, k.latest[key])
		k.workers[pod.UID], k.latest[key] = w, w
		k.group.Go(w.run)
	}
	w.poke()
}

func (k *Kubelet) podGone(o any) {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.finished, pod.UID)
	if w := k.workers[pod.UID]; w != nil {
		w.gone.Store(true)
		w.poke()
	}
}

// finish forgets a worker that has ended.
func (k *Kubelet) finish(w *worker) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.workers, w.uid)
	if k.latest[w.key] == w {
		delete(k.latest, w.key)
	}
	if !w.gone.Load() {
		k.finished[w.uid] = true
	}
}

func (k *Kubelet) wakeNamespace(namespace string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.workers {
		if namespace == "" || w.key.Namespace == namespace {
			w.poke()
		}
	}
}

func (k *Kubelet) workerOf(namespace, name string) *worker {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.latest[types.NamespacedName{Namespace: namespace, Name: name}]
}

// PortAddress returns where a pod's named port is reached directly, without a fault proxy; false when the pod has
// no address yet.
func (k *Kubelet) PortAddress(namespace, pod, port string) (string, bool) {
	k.hostsMu.Lock()
	defer k.hostsMu.Unlock()
	addr, ok := k.endpoints[namespace+"/"+pod].addresses[listenerName(port)]
	return addr, ok
}
