package localkube

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/highwater-io/highwater/internal/localkube/kubelet"
)

// asks makes pod from ask pod to by its DNS name and waits for an outcome.
func (e *env) asks(from, to, want string) {
	e.Helper()
	e.answers(want, from, "/ask", "host", fmt.Sprintf("%s.nodes.%s.svc:8080", to, e.ns))
}

func TestLinksBetweenPodsAreCutDelayedAndHealedFromAnotherProcess(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, name := range []string{"a", "b", "c"} {
		e.create(e.pod(name))
	}
	for _, name := range []string{"a", "b", "c"} {
		e.ready(name)
	}
	remote := Connect(e.c.Dir())
	fault := func(action, from, to string, oneWay bool, delay time.Duration) {
		t.Helper()
		e.must(remote.Fault(t.Context(), FaultRequest{Action: action, From: e.ns + "/" + from, To: e.ns + "/" + to, Listener: "http", OneWay: oneWay, Delay: delay}))
	}
	e.asks("a", "b", "answer")
	fault("cut", "a", "b", false, 0)
	e.asks("a", "b", "timeout")
	e.asks("b", "a", "timeout")
	e.asks("a", "c", "answer")
	e.ready("b") // the runtime's probes don't go over the link
	fault("heal", "a", "b", false, 0)
	e.asks("a", "b", "answer")
	e.asks("b", "a", "answer")
	fault("cut", "b", "a", true, 0) // a's requests arrive, b's answers don't
	e.asks("a", "b", "timeout")
	fault("heal", "b", "a", true, 0)
	e.asks("a", "b", "answer")
	fault("delay", "a", "b", true, 2*time.Second)
	e.asks("a", "b", "timeout")
	fault("delay", "a", "b", true, 0)
	e.asks("a", "b", "answer")

	// A pod that is killed refuses connections at once, and its successor is found by the same name.
	_, err := Signal(e.c.Dir(), e.ns+"/b", syscall.SIGSTOP)
	e.must(err)
	e.asks("a", "b", "timeout")
	pod, err := e.get("b")
	e.must(err)
	e.must(e.k.Delete(t.Context(), pod))
	_, err = Signal(e.c.Dir(), e.ns+"/b", syscall.SIGKILL)
	e.must(err)
	e.isGone(pod)
	e.create(e.pod("b"))
	if next := e.ready("b"); next.Status.PodIP == pod.Status.PodIP && e.c.network.Mode() == kubelet.AddressOwn {
		t.Errorf("the new pod has the old one's address %s", pod.Status.PodIP)
	}
	e.asks("a", "b", "answer")

	if err := remote.Fault(t.Context(), FaultRequest{Action: "cut", From: "nobody", To: e.ns + "/a", Listener: "http"}); err == nil {
		t.Error("a participant that does not exist was taken")
	}
	if err := Connect(t.TempDir()).Fault(t.Context(), FaultRequest{}); err == nil {
		t.Error("a cluster that is not up answered")
	}
}

func TestSharedAddressModeMapsPorts(t *testing.T) {
	t.Parallel()
	o := options()
	o.AddressMode, o.Nodes = kubelet.AddressShared, 1
	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	e := envIn(t, c)
	e.create(e.pod("a"))
	e.create(e.pod("b"))
	for _, name := range []string{"a", "b"} {
		if pod := e.ready(name); pod.Status.PodIP != "127.0.0.1" {
			t.Errorf("pod %s has address %s", name, pod.Status.PodIP)
		}
	}
	e.asks("a", "b", "answer")
	e.must(c.Fault(FaultRequest{Action: "cut", From: "a", To: "b", Listener: "*"}))
	e.asks("b", "a", "timeout")
	e.must(c.Fault(FaultRequest{Action: "heal", From: "*", To: "*", Listener: "*"}))
	e.asks("b", "a", "answer")
	child, err := c.StartChild(t.Context(), ChildSpec{Name: "child", Path: filepath.Join(binDir(), "app"), Args: []string{"wait"}})
	e.must(err)
	first := child.Pid()
	_, err = Signal(c.Dir(), "child", Kill)
	e.must(err)
	e.eventually("the child to be started again", func() error {
		if child.Pid() == first {
			return fmt.Errorf("still process %d", first)
		}
		return nil
	})
}
