package localkube

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestPodRunsBecomesReadyAndEndsGracefully(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	pod := e.pod("a")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{
		{Name: "POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
		{Name: "BOTH", Value: "$(POD)@$(IP) $$(POD) $(NONE)"},
	}
	e.create(pod)
	pod = e.ready("a")
	if pod.Spec.NodeName == "" || pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "" {
		t.Errorf("node %q, phase %s, IP %q", pod.Spec.NodeName, pod.Status.Phase, pod.Status.PodIP)
	}
	if got, want := e.call("a", "/env", "name", "BOTH"), "a@"+pod.Status.PodIP+" $(POD) $(NONE)"; got != want {
		t.Errorf("BOTH is %q, want %q", got, want)
	}
	pids, err := Signal(e.c.Dir(), e.ns+"/a", 0)
	if err != nil || len(pids) != 1 {
		t.Fatalf("the pod's processes: %v, %v", pids, err)
	}
	e.call("a", "/stubborn", "to", "true")
	e.must(e.k.Delete(t.Context(), pod))
	e.eventually("the pod to be terminating and to run", func() error {
		pod, err := e.get("a")
		if err == nil && pod.DeletionTimestamp == nil {
			err = fmt.Errorf("not terminating")
		}
		return err
	})
	if _, err := Signal(e.c.Dir(), e.ns+"/a", 0); err != nil {
		t.Errorf("a process that ignores SIGTERM was gone before its grace period ended: %v", err)
	}
	e.must(e.k.Delete(t.Context(), pod, client.GracePeriodSeconds(1))) // shortens it
	e.isGone(pod)
	if _, err := Signal(e.c.Dir(), e.ns+"/a", 0); err == nil {
		t.Error("the pod is gone and its process is not")
	}
}

func TestFailingContainerIsRestartedWithBackOff(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	pod := e.pod("crash")
	c := &pod.Spec.Containers[0]
	c.Args, c.ReadinessProbe = []string{"exit", "3"}, nil
	c.Env = []corev1.EnvVar{{Name: "TERMINATION_LOG", Value: "/dev/termination-log"}}
	e.create(pod)
	var last corev1.ContainerStateTerminated
	e.eventually("two restarts", func() error {
		pod, err := e.get("crash")
		if err != nil {
			return err
		}
		if len(pod.Status.ContainerStatuses) == 0 {
			return fmt.Errorf("no status")
		}
		s := pod.Status.ContainerStatuses[0]
		if s.RestartCount < 2 || s.LastTerminationState.Terminated == nil || s.State.Waiting == nil {
			return fmt.Errorf("%+v", s)
		}
		if s.State.Waiting.Reason != "CrashLoopBackOff" {
			return fmt.Errorf("waits for %s", s.State.Waiting.Reason)
		}
		last = *s.LastTerminationState.Terminated
		return nil
	})
	if last.ExitCode != 3 || last.Reason != "Error" || last.Message != "left with 3" {
		t.Errorf("terminated %+v, want exit code 3 with its message", last)
	}
}

func TestRestartPolicyDecidesTheEnd(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for name, want := range map[string]corev1.PodPhase{"0": corev1.PodSucceeded, "5": corev1.PodFailed} {
		pod := e.pod("exit" + name)
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Spec.Containers[0].Args, pod.Spec.Containers[0].ReadinessProbe = []string{"exit", name}, nil
		e.create(pod)
		e.eventually("phase "+string(want), func() error {
			pod, err := e.get("exit" + name)
			if err == nil && pod.Status.Phase != want {
				err = fmt.Errorf("it is %s", pod.Status.Phase)
			}
			return err
		})
	}
}

func TestInitContainersComeFirstAndInOrder(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	pod := e.pod("init")
	withVolume(pod, "/handover", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	pod.Spec.InitContainers = []corev1.Container{
		{Name: "one", Image: image, Args: []string{"exit", "0"}, Env: []corev1.EnvVar{{Name: "TERMINATION_LOG", Value: "/handover/one"}},
			VolumeMounts: pod.Spec.Containers[0].VolumeMounts},
		{Name: "two", Image: image, Command: []string{"/usr/bin/app", "is", "/handover/one", "left with 0"},
			VolumeMounts: pod.Spec.Containers[0].VolumeMounts},
	}
	e.create(pod)
	pod = e.ready("init")
	for _, s := range pod.Status.InitContainerStatuses {
		if s.State.Terminated == nil || s.State.Terminated.ExitCode != 0 {
			t.Errorf("init container %s: %+v", s.Name, s.State)
		}
	}
}

func TestProbesFlipReadinessAndRestartTheUnwell(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	pod := e.pod("a")
	c := &pod.Spec.Containers[0]
	withVolume(pod, "/state", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	c.StartupProbe = &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 20, FailureThreshold: 60, ProbeHandler: corev1.ProbeHandler{
		Exec: &corev1.ExecAction{Command: []string{"app", "is", "/state/started", "yes"}}}}
	c.LivenessProbe = &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 2, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/livez", Port: intstr.FromInt32(8080)}}}
	c.Args = []string{"serve", "/state/started"}
	e.create(pod)
	var file string
	e.eventually("the app to serve", func() error {
		args, err := e.ask("a", "/args")
		file = strings.TrimPrefix(args, "serve ")
		return err
	})
	e.eventually("the status to say that it runs and has not started", func() error {
		pod, err := e.get("a")
		switch {
		case err != nil:
			return err
		case len(pod.Status.ContainerStatuses) != 1 || pod.Status.ContainerStatuses[0].State.Running == nil:
			return fmt.Errorf("%+v", pod.Status)
		case isReady(pod) || *pod.Status.ContainerStatuses[0].Started:
			t.Fatal("ready or started before the startup probe succeeded")
		}
		return nil
	})
	e.call("a", "/write", "path", file, "text", "yes")
	e.ready("a")
	e.call("a", "/unready", "to", "true")
	e.readiness("a", false)
	e.call("a", "/unready", "to", "false")
	e.ready("a")
	e.call("a", "/unwell", "to", "true")
	e.eventually("a restart by the liveness probe", func() error {
		pod, err := e.get("a")
		if err == nil && pod.Status.ContainerStatuses[0].RestartCount == 0 {
			err = fmt.Errorf("no restart")
		}
		return err
	})
	e.ready("a")
}

func TestPausedProcessIsUnreadyButNotRestarted(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	pod := e.pod("a")
	pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{InitialDelaySeconds: 2, PeriodSeconds: 1, FailureThreshold: 2, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/livez", Port: intstr.FromString("http")}}}
	pod.Spec.Containers[0].ReadinessProbe.FailureThreshold = 3
	e.create(pod)
	e.ready("a")
	_, err := Signal(e.c.Dir(), e.ns+"/a", Pause)
	e.must(err)
	e.readiness("a", false)
	_, err = Signal(e.c.Dir(), e.ns+"/a", Resume)
	e.must(err)
	pod = e.ready("a")
	if n := pod.Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("restarted %d times", n)
	}
	_, err = Signal(e.c.Dir(), e.ns+"/a", Kill)
	e.must(err)
	e.eventually("a restart after kill -9", func() error {
		pod, err := e.get("a")
		if err == nil && (pod.Status.ContainerStatuses[0].RestartCount != 1 || !isReady(pod)) {
			err = fmt.Errorf("%+v", pod.Status.ContainerStatuses[0])
		}
		return err
	})
}

func TestUnknownImageOrCommandIsNamedInTheStatus(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	image, command := e.pod("image"), e.pod("command")
	image.Spec.Containers[0].Image = "nobody/knows:1"
	command.Spec.Containers[0].Command = []string{"/no-such-thing"}
	for pod, want := range map[*corev1.Pod]string{image: "nobody/knows:1", command: "no-such-thing"} {
		e.create(pod)
		e.eventually("the reason of "+pod.Name, func() error {
			pod, err := e.get(pod.Name)
			if err != nil {
				return err
			}
			if len(pod.Status.ContainerStatuses) == 1 {
				if w := pod.Status.ContainerStatuses[0].State.Waiting; w != nil && strings.Contains(w.Message, want) {
					return nil
				}
			}
			return fmt.Errorf("%+v", pod.Status)
		})
	}
}

func TestKubectlShowsLogsOfThisAndThePreviousRun(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.create(e.pod("a"))
	e.ready("a")
	e.call("a", "/say", "text", "first life")
	_, _ = e.ask("a", "/exit", "code", "1") // it may be gone before it has answered
	e.eventually("a restart", func() error {
		pod, err := e.get("a")
		if err == nil && (pod.Status.ContainerStatuses[0].RestartCount != 1 || !isReady(pod)) {
			err = fmt.Errorf("%+v", pod.Status.ContainerStatuses[0])
		}
		return err
	})
	e.call("a", "/say", "text", "second life")
	kubectl := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), e.c.Kubectl(), append([]string{"logs", "a", "-n", e.ns}, args...)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+e.c.Kubeconfig())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl logs %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	e.eventually("the line", func() error {
		if got := kubectl("--tail=1"); got != "second life\n" {
			return fmt.Errorf("kubectl logs --tail=1: %q", got)
		}
		return nil
	})
	if got := kubectl("--previous"); !strings.HasSuffix(got, "first life\n") || strings.Contains(got, "second") {
		t.Errorf("kubectl logs --previous: %q", got)
	}
	stamp, _, _ := strings.Cut(kubectl("--timestamps", "--tail=1"), " ")
	if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil {
		t.Errorf("kubectl logs --timestamps: %v", err)
	}
	follow := exec.CommandContext(t.Context(), e.c.Kubectl(), "logs", "-f", "a", "-n", e.ns)
	follow.Env = append(os.Environ(), "KUBECONFIG="+e.c.Kubeconfig())
	out, err := follow.StdoutPipe()
	e.must(err)
	e.must(follow.Start())
	lines := bufio.NewScanner(out)
	for lines.Text() != "second life" && lines.Scan() {
	}
	pod, err := e.get("a")
	e.must(err)
	e.must(e.k.Delete(t.Context(), pod))
	for lines.Text() != "terminated" && lines.Scan() {
	}
	if lines.Text() != "terminated" {
		t.Errorf("kubectl logs -f ended with %q, want the last line of the app", lines.Text())
	}
	e.must(follow.Wait())
}

func TestPodIsBoundToTheNodeThatItNamesElseSpread(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	named, picky := e.pod("named"), e.pod("picky")
	named.Spec.NodeName = "node-2"
	picky.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "zone-1"}
	nowhere := e.pod("nowhere")
	nowhere.Spec.NodeSelector = map[string]string{"color": "green"}
	for _, pod := range []*corev1.Pod{named, picky, nowhere} {
		e.create(pod)
	}
	if pod := e.ready("named"); pod.Spec.NodeName != "node-2" {
		t.Errorf("named runs on %s", pod.Spec.NodeName)
	}
	if pod := e.ready("picky"); pod.Spec.NodeName != "node-1" {
		t.Errorf("picky runs on %s", pod.Spec.NodeName)
	}
	e.eventually("a reason why the pod is pending", func() error {
		pod, err := e.get("nowhere")
		if err != nil {
			return err
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable && strings.Contains(c.Message, "node selector") {
				return nil
			}
		}
		return fmt.Errorf("%+v", pod.Status)
	})
}
