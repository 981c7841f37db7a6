package procs

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/highwater-io/highwater/internal/testscale"
)

// The test binary is also the child: PROCS_TEST_ROLE says what it plays.
func TestMain(m *testing.M) {
	switch os.Getenv("PROCS_TEST_ROLE") {
	case "":
		os.Exit(m.Run())
	case "wait":
		never := make(chan os.Signal, 1)
		signal.Notify(never, syscall.SIGUSR1)
		fmt.Println("up")
		<-never
	case "exit":
		os.Exit(7)
	case "parent": // starts two children from changing threads, says their pids and waits to be killed
		for range 2 {
			runtime.LockOSThread()
			p, err := Start(child("wait"))
			if err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			fmt.Println(p.Pid())
		}
		never := make(chan os.Signal, 1)
		signal.Notify(never, syscall.SIGUSR1)
		<-never
	}
}

func child(role string) Spec {
	return Spec{Path: os.Args[0], Env: []string{"PROCS_TEST_ROLE=" + role}}
}

func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(testscale.Duration(20 * time.Second))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("timed out: %s", what)
		}
		<-tick.C
	}
}

func TestExitCodesAndSignalsAreReported(t *testing.T) {
	p, err := Start(child("exit"))
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if _, code, _ := p.Ended(); code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
	pidFile := filepath.Join(t.TempDir(), "pids", "child.pid")
	spec := child("wait")
	spec.PidFile = pidFile
	if p, err = Start(spec); err != nil {
		t.Fatal(err)
	}
	ref, err := ReadPidFile(pidFile)
	if err != nil || ref.Pid != p.Pid() || !ref.Alive() {
		t.Fatalf("pid file gives %+v, %v; want the living process %d", ref, err, p.Pid())
	}
	p.Stop(testscale.Duration(20 * time.Second))
	if _, code, signal := p.Ended(); code != 128+int(syscall.SIGTERM) || signal != syscall.SIGTERM {
		t.Errorf("ended with %d, %v; want SIGTERM", code, signal)
	}
	if _, err := os.Stat(pidFile); !os.IsNotExist(err) {
		t.Errorf("the pid file is still there: %v", err)
	}
	if ref.Alive() {
		t.Error("the reference of an ended process is alive")
	}
}

func TestStoppedProcessIsKilledWhenItsGraceEnds(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	spec := child("wait")
	spec.Stdout = w
	p, err := Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	if line, err := bufio.NewReader(r).ReadString('\n'); err != nil || line != "up\n" {
		t.Fatalf("the child said %q, %v", line, err)
	}
	p.Signal(syscall.SIGSTOP)
	waitFor(t, "the child to stop", func() bool { return Stopped(p.Pid()) })
	p.Stop(time.Millisecond)
	if _, _, signal := p.Ended(); signal != syscall.SIGKILL {
		t.Errorf("ended by %v, want SIGKILL", signal)
	}
}

func TestLeftoversAreKilledByTheirPidFiles(t *testing.T) {
	dir := t.TempDir()
	spec := child("wait")
	spec.PidFile = filepath.Join(dir, "pods", "a.pid")
	p, err := Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	// A file that names a process which started at another time: a reused pid must not be killed.
	other := filepath.Join(dir, "reused.pid")
	if err := os.WriteFile(other, fmt.Appendf(nil, "%d 1\n", os.Getpid()), 0o644); err != nil {
		t.Fatal(err)
	}
	if n, err := KillLeftovers(dir); err != nil || n != 1 {
		t.Fatalf("KillLeftovers = %d, %v; want 1", n, err)
	}
	<-p.Done()
	if _, err := os.Stat(other); !os.IsNotExist(err) {
		t.Error("the stale pid file is still there")
	}
}

func TestChildrenDieWithAKilledParent(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{"PROCS_TEST_ROLE=parent"}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []Ref
	lines := bufio.NewScanner(out)
	for len(pids) < 2 && lines.Scan() {
		pid, err := strconv.Atoi(strings.TrimSpace(lines.Text()))
		if err != nil {
			t.Fatalf("the parent said %q", lines.Text())
		}
		started, _ := startTime(pid)
		ref := Ref{Pid: pid, started: started}
		if !ref.Alive() {
			t.Fatalf("child %d is not alive", pid)
		}
		pids = append(pids, ref)
	}
	if !ChildrenEndWithParent {
		for _, ref := range pids {
			_ = syscall.Kill(ref.Pid, syscall.SIGKILL)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if len(pids) != 2 {
		t.Fatalf("the parent named %d children", len(pids))
	}
	for _, ref := range pids {
		waitFor(t, fmt.Sprintf("child %d to end after its parent", ref.Pid), func() bool { return !ref.Alive() })
	}
}
