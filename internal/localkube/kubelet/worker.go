package kubelet

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// retryAfter is when something that failed and that no event will announce is tried again.
	retryAfter = time.Second
	idle       = time.Hour
	// stopGrace is what processes get to end when the whole local cluster stops.
	stopGrace = 5 * time.Second
)

// worker runs one pod. One goroutine (run) owns all of it but what mu guards.
type worker struct {
	k      *Kubelet
	key    types.NamespacedName
	uid    types.UID
	dir    string
	before *worker // the pod of the same name before this one; it must have ended first
	wake   chan struct{}
	gone   atomic.Bool // the object is gone
	done   chan struct{}

	address   *podAddress
	endpoint  endpoint
	projected map[string]payload
	tokens    map[string]string
	inits     []*container
	mains     []*container
	mountErr  string
	ending    time.Time // when the graceful end began

	mu sync.Mutex // guards the containers' fields that say so
}

func newWorker(k *Kubelet, pod *corev1.Pod, before *worker) *worker {
	w := &worker{
		k: k, key: client.ObjectKeyFromObject(pod), uid: pod.UID, before: before,
		dir:  filepath.Join(k.o.Dir, fmt.Sprintf("%s_%s_%s", pod.Namespace, pod.Name, pod.UID)),
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		projected: map[string]payload{}, tokens: map[string]string{},
	}
	for i := range pod.Spec.InitContainers {
		w.inits = append(w.inits, newContainer(w, &pod.Spec.InitContainers[i], pod.Status.InitContainerStatuses, true))
	}
	for i := range pod.Spec.Containers {
		w.mains = append(w.mains, newContainer(w, &pod.Spec.Containers[i], pod.Status.ContainerStatuses, false))
	}
	return w
}

// poke makes the worker look at its pod again soon.
func (w *worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *worker) all() []*container { return append(append([]*container{}, w.inits...), w.mains...) }

func (w *worker) run() {
	defer close(w.done)
	if w.before != nil {
		<-w.before.done
		w.before = nil
	}
	for {
		if w.k.ctx.Err() != nil {
			w.stop(stopGrace)
			return
		}
		pod := w.pod()
		if pod == nil {
			w.kill() // deleted by force: nobody waits for a graceful end any more
			w.remove()
			return
		}
		var next time.Duration
		if pod.DeletionTimestamp != nil {
			if next = w.terminate(pod); next == 0 {
				w.remove()
				return
			}
		} else {
			next = w.sync(pod)
		}
		timer := time.NewTimer(next)
		select {
		case <-w.k.ctx.Done():
		case <-w.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// pod returns a copy of the pod that may be changed, nil when it is gone or another one has its name.
func (w *worker) pod() *corev1.Pod {
	if w.gone.Load() {
		return nil
	}
	var pod corev1.Pod
	if err := w.k.client.Get(context.Background(), w.key, &pod); err != nil || pod.UID != w.uid {
		return nil
	}
	return &pod
}

// sync brings the pod's processes and status to what its spec asks for and returns when to look again.
func (w *worker) sync(pod *corev1.Pod) time.Duration {
	if finishedPhase(pod.Status.Phase) {
		w.kill()
		return idle
	}
	w.reap(pod)
	next := w.advance(pod)
	w.writeStatus(pod)
	return next
}

// advance starts what is due.
func (w *worker) advance(pod *corev1.Pod) time.Duration {
	if w.address == nil {
		address, err := w.k.o.Network.allocate(pod)
		if err == nil {
			e := newEndpoint(pod, address, filepath.Join(w.dir, "hosts"))
			if err = w.k.publish(e); err == nil {
				w.mu.Lock()
				w.address, w.endpoint = &address, e
				w.mu.Unlock()
			} else {
				w.k.o.Network.free(address)
			}
		}
		if err != nil {
			w.fail(pod, "FailedCreatePodSandBox", err)
			return retryAfter
		}
	}
	pod.Status.PodIP, pod.Status.HostIP = w.address.ip, w.k.o.Network.Host()
	volumes, err := w.volumes(context.Background(), pod)
	if err != nil {
		w.fail(pod, "FailedMount", err) // what runs goes on with the volumes as they were
		return retryAfter
	}
	w.mountErr = ""
	for _, c := range w.inits {
		if c.finished(pod) && c.last.ExitCode == 0 {
			continue
		}
		return c.ensure(pod, volumes) // the next one waits for this one
	}
	next := idle
	for _, c := range w.mains {
		next = min(next, c.ensure(pod, volumes))
	}
	return next
}

// fail records what keeps the pod from running, with an event when it is new.
func (w *worker) fail(pod *corev1.Pod, reason string, err error) {
	if message := err.Error(); message != w.mountErr {
		w.mountErr = message
		w.k.o.Recorder.Event(pod, corev1.EventTypeWarning, reason, message)
	}
}

func (w *worker) running() bool {
	for _, c := range w.all() {
		if c.now != nil {
			return true
		}
	}
	return false
}

// reap takes notice of processes that have ended.
func (w *worker) reap(pod *corev1.Pod) {
	for _, c := range w.all() {
		if c.now != nil && c.now.ended() {
			c.reap(pod)
		}
	}
}

// terminate goes on with the pod's graceful end. It returns zero when that is over, else when to look again.
func (w *worker) terminate(pod *corev1.Pod) time.Duration {
	grace := time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 30)) * time.Second
	if w.ending.IsZero() {
		w.ending = time.Now()
		for _, c := range w.all() {
			if c.now != nil {
				w.k.o.Recorder.Eventf(pod, corev1.EventTypeNormal, "Killing", "Stopping container %s", c.spec.Name)
				c.now.cancelProbes()
				c.now.terminate(c, pod, grace)
			}
		}
	}
	w.reap(pod)
	// The grace period may be shortened while it runs, by another delete.
	left := time.Until(w.ending.Add(grace))
	if w.running() {
		if left <= 0 {
			w.kill()
			w.reap(pod)
		} else {
			w.writeStatus(pod)
			return left
		}
	}
	w.writeStatus(pod)
	zero := int64(0)
	err := w.k.client.Delete(context.Background(), pod, &client.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &w.uid},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		w.k.log.Error(err, "delete a pod that has ended", "pod", w.key)
		return retryAfter
	}
	return 0
}

// kill ends all processes at once and returns when they are gone.
func (w *worker) kill() {
	for _, c := range w.all() {
		if c.now != nil {
			c.now.cancelProbes()
			c.now.proc.Kill()
		}
	}
	for _, c := range w.all() {
		if c.now != nil {
			<-c.now.over
		}
	}
}

// stop ends all processes because the local cluster ends.
func (w *worker) stop(grace time.Duration) {
	var all sync.WaitGroup
	for _, c := range w.all() {
		if c.now != nil {
			c.now.cancelProbes()
			all.Go(func() { c.now.proc.Stop(grace); <-c.now.over })
		}
	}
	all.Wait()
	w.release()
}

// remove forgets the pod and all that it had.
func (w *worker) remove() {
	w.release()
	if err := os.RemoveAll(w.dir); err != nil {
		w.k.log.Error(err, "remove a pod's directory", "pod", w.key)
	}
	w.k.finish(w)
}

func (w *worker) release() {
	if w.address != nil {
		w.k.withdraw(w.endpoint.participant)
		w.k.o.Network.free(*w.address)
		w.mu.Lock()
		w.address = nil
		w.mu.Unlock()
	}
}

// reachable tells the fault proxies whether the pod's listeners can be there.
func (w *worker) reachable() {
	up := false
	for _, c := range w.mains {
		up = up || c.now != nil && !c.now.ended()
	}
	if up {
		w.k.o.Faults.SetTargets(w.endpoint.participant, w.endpoint.addresses)
	} else {
		w.k.o.Faults.SetTargets(w.endpoint.participant, nil)
	}
}

func finishedPhase(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }

// probeAddress returns where a port of the pod is.
func (w *worker) probeAddress(port int32) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.address == nil {
		return net.JoinHostPort(w.k.o.Network.Host(), strconv.Itoa(int(port)))
	}
	return w.address.at(port)
}
