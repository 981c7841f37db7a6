package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/highwater-io/highwater/controllers/specs"
	"github.com/highwater-io/highwater/test/e2e/cluster"
)

// Pods of the client's image in each fixture's namespace.
const (
	toolsPod = "tools"
	loadPod  = "load"
)

// progress is what the load's last line says; the fields are the client's.
type progress struct {
	Acked            int64  `json:"acked"`
	Failed           int64  `json:"failed"`
	LastError        string `json:"lastError"`
	Misplaced        int64  `json:"misplaced"`
	LongestGapMillis int64  `json:"longestGapMillis"`
}

// startClients picks the machine that faults will happen to, one with a data node, and starts the clients elsewhere.
func (e *env) startClients(ctx context.Context, f *fixture) error {
	rs, partition, err := e.objects(ctx, f)
	if err != nil {
		return err
	}
	f.victim = *partition.Status.Leader
	pod, err := e.pod(ctx, f.namespace, specs.PodName(rs, f.victim))
	if err != nil {
		return err
	}
	f.machine = pod.Spec.NodeName
	cluster.Say("faults will happen to node %d and its machine %s", f.victim, f.machine)
	load := append([]string{"load"}, e.target(rs.Status.Listeners[0].Bootstrap, f)...)
	for _, j := range []job{
		{name: toolsPod, args: []string{"wait"}, notMachine: f.machine},
		{name: loadPod, args: load, notMachine: f.machine},
	} {
		pod := j.manifest(f.namespace, e.clientImage)
		if j.name == loadPod {
			// It flushes before it ends.
			grace := int64(150)
			pod.Spec.TerminationGracePeriodSeconds = &grace
		}
		if err := e.Create(ctx, pod); err != nil {
			return err
		}
		if err := e.running(ctx, f.namespace, j.name); err != nil {
			return err
		}
	}
	return nil
}

// target is the part of the client's command line that says what to speak to.
func (e *env) target(bootstrap string, f *fixture) []string {
	return []string{"--brokers", bootstrap, "--topic", f.partition, "--run", "load"}
}

// loaded reads how far the load is.
func (e *env) loaded(ctx context.Context, f *fixture) (progress, error) {
	var p progress
	out, err := e.Kubectl(ctx, "-n", f.namespace, "logs", loadPod, "--tail=20")
	if err != nil {
		return p, err
	}
	last := ""
	for line := range strings.SplitSeq(out, "\n") {
		if strings.HasPrefix(line, "{") {
			last = line
		}
	}
	if last == "" {
		return p, fmt.Errorf("the load says nothing yet: %s", out)
	}
	if err := json.Unmarshal([]byte(last), &p); err != nil {
		return p, fmt.Errorf("the load says %q: %w", last, err)
	}
	if p.Failed > 0 || p.Misplaced > 0 {
		return p, fmt.Errorf("the load failed %d records (%s), %d got an offset out of order", p.Failed, p.LastError, p.Misplaced)
	}
	return p, nil
}

// flows waits until another hundred records are acknowledged, then reads back all that were.
func (e *env) flows(ctx context.Context, f *fixture) error {
	first := int64(-1)
	err := cluster.Eventually(ctx, "the load goes on", func(ctx context.Context) error {
		now, err := e.loaded(ctx, f)
		if err != nil {
			return err
		}
		if first < 0 {
			first = now.Acked
		}
		if now.Acked < first+100 {
			return fmt.Errorf("acknowledged %d records, %d of them since", now.Acked, now.Acked-first)
		}
		return nil
	})
	if err != nil {
		return err
	}
	now, err := e.loaded(ctx, f)
	if err != nil {
		return err
	}
	return e.readBack(ctx, f, now)
}

// readBack has a client of its own read the partition from its start.
func (e *env) readBack(ctx context.Context, f *fixture, p progress) error {
	rs, _, err := e.objects(ctx, f)
	if err != nil {
		return err
	}
	args := append([]string{"verify"}, e.target(rs.Status.Listeners[0].Bootstrap, f)...)
	out, err := e.exec(ctx, f.namespace, toolsPod, append(args, "--acked", strconv.FormatInt(p.Acked, 10))...)
	if err != nil {
		return err
	}
	cluster.Say("acknowledged %d, longest time without one %.1f s; read back: %s",
		p.Acked, time.Duration(p.LongestGapMillis*1e6).Seconds(), strings.TrimSpace(out))
	return nil
}

// endLoad ends the load, which waits for what is under way, and reads everything back.
func (e *env) endLoad(ctx context.Context, f *fixture) error {
	if _, err := e.exec(ctx, f.namespace, loadPod, "stop"); err != nil {
		return err
	}
	pod, err := e.pod(ctx, f.namespace, loadPod)
	if err != nil {
		return err
	}
	phase, err := e.ended(ctx, pod)
	if err != nil {
		return err
	}
	p, err := e.loaded(ctx, f)
	if err != nil {
		return err
	}
	if phase != corev1.PodSucceeded {
		return fmt.Errorf("the load ended as %s", phase)
	}
	if p.Acked == 0 {
		return errors.New("nothing was acknowledged")
	}
	return e.readBack(ctx, f, p)
}
