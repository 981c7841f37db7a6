package kubelet

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/highwater-io/highwater/internal/procs"
)

type probeKind string

const (
	startup   probeKind = "Startup"
	liveness  probeKind = "Liveness"
	readiness probeKind = "Readiness"
)

// startProbes begins the probes of a new instance; they end with it.
func (c *container) startProbes(pod *corev1.Pod, i *instance) {
	if c.spec.StartupProbe == nil {
		c.markStarted(i)
	}
	for kind, probe := range map[probeKind]*corev1.Probe{
		startup: c.spec.StartupProbe, liveness: c.spec.LivenessProbe, readiness: c.spec.ReadinessProbe,
	} {
		if probe != nil {
			i.probes.Go(func() { c.probeLoop(pod, i, kind, probe) })
		}
	}
}

// markStarted opens the way for liveness and readiness probes. Without a readiness probe a container that has
// started is ready.
func (c *container) markStarted(i *instance) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if !i.started {
		i.started = true
		i.ready = c.spec.ReadinessProbe == nil
		close(i.startedCh)
		c.w.poke()
	}
}

// probeLoop probes by the spec's times until the instance ends or the probe has said its last word.
func (c *container) probeLoop(pod *corev1.Pod, i *instance, kind probeKind, probe *corev1.Probe) {
	if kind != startup {
		select {
		case <-i.startedCh:
		case <-i.ctx.Done():
			return
		}
	}
	if !sleep(i.ctx, time.Until(i.proc.Started().Add(time.Duration(probe.InitialDelaySeconds)*time.Second))) {
		return
	}
	period := time.Duration(cmp.Or(probe.PeriodSeconds, 10)) * time.Second
	successes, failures := int32(0), int32(0)
	for {
		began := time.Now()
		ctx, cancel := context.WithTimeout(i.ctx, time.Duration(cmp.Or(probe.TimeoutSeconds, 1))*time.Second)
		err := c.probe(ctx, i, &probe.ProbeHandler)
		cancel()
		if i.ctx.Err() != nil {
			return
		}
		switch {
		case err == nil:
			successes, failures = successes+1, 0
		case kind != readiness && procs.Stopped(i.proc.Pid()):
			// Whoever stopped it (highwater dev pause) wants it stopped and not restarted.
		default:
			successes, failures = 0, failures+1
			c.w.k.o.Recorder.Eventf(pod, corev1.EventTypeWarning, "Unhealthy", "%s probe failed: %v", kind, err)
		}
		if c.probed(pod, i, kind, probe, successes >= cmp.Or(probe.SuccessThreshold, 1), failures >= cmp.Or(probe.FailureThreshold, 3)) {
			return
		}
		if !sleep(i.ctx, period-time.Since(began)) {
			return
		}
	}
}

// probed acts on a probe's state; it returns true when the probe need not go on.
func (c *container) probed(pod *corev1.Pod, i *instance, kind probeKind, probe *corev1.Probe, good, bad bool) bool {
	switch {
	case kind == readiness:
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		if good != i.ready && (good || bad) {
			i.ready = good
			c.w.poke()
		}
		return false
	case bad:
		grace := cmp.Or(ptr.Deref(probe.TerminationGracePeriodSeconds, 0), ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, 30))
		c.w.k.o.Recorder.Eventf(pod, corev1.EventTypeNormal, "Killing", "Container %s failed %s probe, will be restarted",
			c.spec.Name, strings.ToLower(string(kind)))
		c.w.k.group.Go(func() { i.proc.Stop(time.Duration(grace) * time.Second) })
		return true
	case kind == startup && good:
		c.markStarted(i)
		return true
	}
	return false
}

// sleep waits; false when the context ended before that.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(0, d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *container) probe(ctx context.Context, i *instance, h *corev1.ProbeHandler) error {
	switch {
	case h.HTTPGet != nil:
		return c.get(ctx, h.HTTPGet)
	case h.TCPSocket != nil:
		addr, err := c.portAddress(h.TCPSocket.Host, h.TCPSocket.Port)
		if err != nil {
			return err
		}
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	case h.Exec != nil:
		return c.runIn(ctx, i, h.Exec.Command)
	}
	return errors.New("this kind of probe is not played by the local cluster")
}

// probeClient trusts any certificate and keeps no connection, as a kubelet's does.
var probeClient = &http.Client{
	Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if next.URL.Hostname() != via[0].URL.Hostname() || len(via) >= 10 {
			return http.ErrUseLastResponse // a redirect elsewhere counts as success
		}
		return nil
	},
}

func (c *container) get(ctx context.Context, h *corev1.HTTPGetAction) error {
	addr, err := c.portAddress(h.Host, h.Port)
	if err != nil {
		return err
	}
	path, err := url.Parse(h.Path)
	if err != nil {
		return err
	}
	target := url.URL{Scheme: strings.ToLower(string(cmp.Or(h.Scheme, corev1.URISchemeHTTP))), Host: addr,
		Path: "/" + strings.TrimPrefix(path.Path, "/"), RawQuery: path.RawQuery}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "kube-probe/highwater-local")
	for _, header := range h.HTTPHeaders {
		req.Header.Add(header.Name, header.Value)
		if strings.EqualFold(header.Name, "Host") {
			req.Host = header.Value
		}
	}
	resp, err := probeClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
	if resp.StatusCode < 200 || resp.StatusCode >= 400 {
		return fmt.Errorf("HTTP probe failed with statuscode: %d: %s", resp.StatusCode, strings.TrimSpace(string(body)))
	}
	return nil
}

// portAddress finds where a port of the pod is; a host other than the pod's is taken as it is.
func (c *container) portAddress(host string, port intstr.IntOrString) (string, error) {
	number := port.IntVal
	if port.Type == intstr.String {
		number = 0
		for _, p := range c.spec.Ports {
			if p.Name == port.StrVal {
				number = p.ContainerPort
			}
		}
		if number == 0 {
			return "", fmt.Errorf("container %q has no port %q", c.spec.Name, port.StrVal)
		}
	}
	if host != "" {
		return net.JoinHostPort(host, fmt.Sprint(number)), nil
	}
	return c.w.probeAddress(number), nil
}
