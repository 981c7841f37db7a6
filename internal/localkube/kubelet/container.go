package kubelet

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/highwater-io/highwater/internal/procs"
)

// maxTerminationBytes is how much of a termination message is kept, as in Kubernetes.
const maxTerminationBytes = 4096

// container is one container of a pod over all its restarts. The worker's goroutine owns it but for the fields
// that the worker's mu guards.
type container struct {
	w    *worker
	spec *corev1.Container
	init bool

	now     *instance                        // what runs
	last    *corev1.ContainerStateTerminated // how the last one ended
	runs    int32                            // how often it was started, over restarts of the local cluster too
	wait    time.Duration                    // what the next restart but this one waits
	due     time.Time                        // when it may start again
	problem string                           // reason why it can't be started
	message string

	// guarded by the worker's mu
	logs map[int32]runLog
}

// runLog is the output of one run.
type runLog struct {
	file string
	over <-chan struct{} // closed when nothing more comes
}

// instance is one run of a container.
type instance struct {
	proc   *procs.Process
	over   chan struct{} // closed when the process has ended and its output was read
	ctx    context.Context
	cancel context.CancelFunc
	probes sync.WaitGroup
	exec   *execution

	// guarded by the worker's mu
	started   bool
	ready     bool
	startedCh chan struct{}
}

func (i *instance) ended() bool {
	select {
	case <-i.over:
		return true
	default:
		return false
	}
}

func (i *instance) cancelProbes() { i.cancel() }

func newContainer(w *worker, spec *corev1.Container, statuses []corev1.ContainerStatus, init bool) *container {
	c := &container{w: w, spec: spec, init: init, logs: map[int32]runLog{}}
	// A pod of before the local cluster's restart: it counts as restarted.
	for _, s := range statuses {
		if s.Name != spec.Name {
			continue
		}
		c.last = s.LastTerminationState.Terminated
		if s.State.Terminated != nil {
			c.last = s.State.Terminated
		}
		c.runs = s.RestartCount
		if s.State.Running != nil {
			c.runs++
			c.last = &corev1.ContainerStateTerminated{
				ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "the local cluster was stopped while the container ran",
				StartedAt: s.State.Running.StartedAt, FinishedAt: metav1.Now(), ContainerID: s.ContainerID,
			}
		} else if s.State.Terminated != nil {
			c.runs++
		}
	}
	return c
}

// finished tells whether the container has ended and won't be started again.
func (c *container) finished(pod *corev1.Pod) bool {
	if c.now != nil || c.last == nil {
		return false
	}
	switch pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return true
	case corev1.RestartPolicyOnFailure:
		return c.last.ExitCode == 0
	default:
		return c.init && c.last.ExitCode == 0
	}
}

// ensure starts the container when it should run and may, and returns when to look again.
func (c *container) ensure(pod *corev1.Pod, volumes map[string]string) time.Duration {
	if c.now != nil || c.finished(pod) {
		return idle
	}
	if wait := time.Until(c.due); wait > 0 {
		return wait
	}
	if err := c.start(pod, volumes); err != nil {
		if c.message != err.Error() {
			c.w.k.o.Recorder.Event(pod, corev1.EventTypeWarning, "Failed", err.Error())
		}
		c.message = err.Error()
		return retryAfter
	}
	c.problem, c.message = "", ""
	return idle
}

func (c *container) start(pod *corev1.Pod, volumes map[string]string) error {
	c.problem = "CreateContainerConfigError"
	if c.init && ptr.Deref(c.spec.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
		return fmt.Errorf("init container %q is a sidecar, which the local cluster does not play", c.spec.Name)
	}
	run := c.runs
	dir := filepath.Join(c.w.dir, "containers", c.spec.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	x, err := c.prepare(pod, volumes, dir)
	if err != nil {
		return err
	}
	c.problem = "ErrImageNeverPull"
	if x.path, x.args, err = c.w.k.o.Images.resolve(c.spec.Image, x.command, x.args); err != nil {
		return err
	}
	c.problem = "RunContainerError"
	if err := os.WriteFile(x.terminationFile, nil, 0o666); err != nil {
		return err
	}
	logFile := filepath.Join(dir, fmt.Sprintf("%d.log", run))
	log, err := openLog(logFile)
	if err != nil {
		return err
	}
	proc, streams, err := c.spawn(x, log)
	if err != nil {
		log.close()
		return err
	}
	i := &instance{proc: proc, over: make(chan struct{}), exec: x, startedCh: make(chan struct{})}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	c.w.mu.Lock()
	c.logs[run] = runLog{file: logFile, over: i.over}
	if old, ok := c.logs[run-2]; ok {
		delete(c.logs, run-2)
		os.Remove(old.file)
		os.Remove(old.file + rotated)
	}
	c.w.mu.Unlock()
	c.now, c.runs = i, run+1
	c.w.k.group.Go(func() {
		<-proc.Done()
		streams.finish()
		log.close()
		i.cancel()
		close(i.over)
		c.w.poke()
	})
	c.startProbes(pod.DeepCopy(), i) // the worker goes on to change its own
	if !c.init {
		c.w.reachable()
	}
	c.w.k.o.Recorder.Eventf(pod, corev1.EventTypeNormal, "Started", "Started container %s", c.spec.Name)
	return nil
}

// spawn starts the process with its output going to the log.
func (c *container) spawn(x *execution, log *logWriter) (*procs.Process, *output, error) {
	var ours, theirs []*os.File
	for range 2 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(ours, theirs)
			return nil, nil, err
		}
		ours, theirs = append(ours, r), append(theirs, w)
	}
	pidFile := filepath.Join(c.w.k.o.PidDir, fmt.Sprintf("%s_%s_%s%s", c.w.key.Namespace, c.w.key.Name, c.spec.Name, procs.Suffix))
	proc, err := procs.Start(procs.Spec{
		Path: x.path, Args: x.args, Dir: x.dir, Env: x.env, Stdout: theirs[0], Stderr: theirs[1], PidFile: pidFile,
	})
	closeAll(theirs)
	if err != nil {
		closeAll(ours)
		return nil, nil, err
	}
	out := &output{files: ours}
	for n, stream := range []string{"stdout", "stderr"} {
		out.copies.Go(func() { log.copy(stream, ours[n]) })
	}
	return proc, out, nil
}

// output is the reading side of a process's streams.
type output struct {
	files  []*os.File
	copies sync.WaitGroup
}

// outputGrace is how long the streams of a process that has ended may stay open in hands that it left behind.
const outputGrace = 2 * time.Second

// finish returns when everything was read, or the grace has passed.
func (o *output) finish() {
	// A read that waits ends when its file is closed.
	impatient := time.AfterFunc(outputGrace, func() { closeAll(o.files) })
	o.copies.Wait()
	impatient.Stop()
	closeAll(o.files)
}

func closeAll(lists ...[]*os.File) {
	for _, files := range lists {
		for _, f := range files {
			f.Close()
		}
	}
}

// reap records how the instance ended and when the next may start.
func (c *container) reap(pod *corev1.Pod) {
	i := c.now
	c.now = nil
	i.probes.Wait()
	at, code, signal := i.proc.Ended()
	c.last = &corev1.ContainerStateTerminated{
		ExitCode: int32(code), Reason: "Completed", StartedAt: metav1.NewTime(i.proc.Started()), FinishedAt: metav1.NewTime(at),
		ContainerID: c.id(), Message: c.terminationMessage(i, code),
	}
	if code != 0 {
		c.last.Reason = "Error"
	}
	if signal != 0 {
		c.last.Signal = int32(signal)
	}
	if at.Sub(i.proc.Started()) >= 2*c.w.k.o.Backoff.Max {
		c.wait = 0
	}
	c.due = at.Add(c.wait)
	c.wait = min(max(2*c.wait, c.w.k.o.Backoff.Initial), c.w.k.o.Backoff.Max)
	if !c.init {
		c.w.reachable()
	}
	if !c.finished(pod) && time.Until(c.due) > 0 && pod.DeletionTimestamp == nil {
		c.w.k.o.Recorder.Eventf(pod, corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container %s in pod %s", c.spec.Name, pod.Name)
	}
}

// id is the running or last instance's.
func (c *container) id() string {
	return fmt.Sprintf("process://%s-%s-%d", c.w.uid, c.spec.Name, c.runs-1)
}

func (c *container) terminationMessage(i *instance, code int) string {
	data, _ := readAtMost(i.exec.terminationFile, maxTerminationBytes)
	text := strings.TrimSpace(string(data))
	if text == "" && code != 0 && c.spec.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
		c.w.mu.Lock()
		name := c.logs[c.runs-1].file
		c.w.mu.Unlock()
		text = lastLines(name, 80, maxTerminationBytes/2)
	}
	return text
}

func readAtMost(name string, n int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, n))
}

// log returns the file of the running or last instance's output, or of the one before that.
func (w *worker) log(name string, previous bool) (file string, running func() bool, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.all() {
		if c.spec.Name != name {
			continue
		}
		newest := int32(-1)
		for run := range c.logs {
			newest = max(newest, run)
		}
		if previous {
			newest--
		}
		run, ok := c.logs[newest]
		running = func() bool {
			select {
			case <-run.over:
				return false
			default:
				return true
			}
		}
		return run.file, running, ok
	}
	return "", nil, false
}

// terminate runs the preStop hook and then asks the process to end; it does not wait.
func (i *instance) terminate(c *container, pod *corev1.Pod, grace time.Duration) {
	pod = pod.DeepCopy() // the worker goes on to change its own
	c.w.k.group.Go(func() {
		if hook := c.spec.Lifecycle; hook != nil && hook.PreStop != nil {
			ctx, cancel := context.WithTimeout(context.Background(), grace)
			if err := c.hook(ctx, i, hook.PreStop); err != nil {
				c.w.k.o.Recorder.Eventf(pod, corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed: %v", err)
			}
			cancel()
		}
		i.proc.Signal(syscall.SIGTERM)
	})
}
