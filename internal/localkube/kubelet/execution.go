package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/highwater-io/highwater/internal/procs"
)

// execution is a container's process as it is started: with host paths, variables and directory.
type execution struct {
	path            string
	command, args   []string
	dir             string
	env             []string
	mounts          mounts
	terminationFile string
}

// prepare works out how a container runs, but for the executable.
func (c *container) prepare(pod *corev1.Pod, volumes map[string]string, dir string) (*execution, error) {
	x := &execution{dir: filepath.Join(dir, "root"), terminationFile: filepath.Join(dir, "termination-log")}
	if err := os.MkdirAll(x.dir, 0o755); err != nil {
		return nil, err
	}
	vars, err := environment(context.Background(), c.w.k.client, pod, c.spec)
	if err != nil {
		return nil, err
	}
	values := make(map[string]string, len(vars))
	for _, v := range vars {
		values[v.Name] = v.Value
	}
	all := []mount{{cmp.Or(c.spec.TerminationMessagePath, corev1.TerminationMessagePathDefault), x.terminationFile}}
	for _, m := range c.spec.VolumeMounts {
		host, ok := volumes[m.Name]
		if !ok {
			return nil, fmt.Errorf("container %q mounts volume %q, which the pod does not have", c.spec.Name, m.Name)
		}
		sub := m.SubPath
		if m.SubPathExpr != "" {
			sub = expand(m.SubPathExpr, values)
		}
		if sub != "" {
			if !filepath.IsLocal(sub) {
				return nil, fmt.Errorf("subPath %q leaves its volume", sub)
			}
			host = filepath.Join(host, sub)
			if _, err := os.Stat(host); os.IsNotExist(err) {
				if err := os.MkdirAll(host, 0o777); err != nil {
					return nil, err
				}
			}
		}
		all = append(all, mount{m.MountPath, host})
	}
	x.mounts = newMounts(all)
	expandAll := func(in []string) []string {
		out := make([]string, len(in))
		for i, s := range in {
			out[i] = x.mounts.rewrite(expand(s, values))
		}
		return out
	}
	x.command, x.args = expandAll(c.spec.Command), expandAll(c.spec.Args)
	if c.spec.WorkingDir != "" {
		if at := x.mounts.rewrite(c.spec.WorkingDir); at != c.spec.WorkingDir {
			x.dir = at
		}
	}
	x.env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOSTNAME=" + cmp.Or(pod.Spec.Hostname, pod.Name), "HOME=" + x.dir,
		HostsVariable + "=" + c.w.endpoint.file,
	}
	for _, v := range vars {
		x.env = append(x.env, v.Name+"="+x.mounts.rewrite(v.Value))
	}
	return x, nil
}

// runIn runs a command in the container's surroundings, for probes and hooks. It returns an error that holds the
// end of its output when it does not end with 0 in time.
func (c *container) runIn(ctx context.Context, i *instance, command []string) error {
	path, args, err := c.w.k.o.Images.resolve(c.spec.Image, i.exec.mounts.rewriteAll(command), nil)
	if err != nil {
		return err
	}
	output, err := os.CreateTemp(i.exec.dir, ".exec-")
	if err != nil {
		return err
	}
	defer os.Remove(output.Name())
	defer output.Close()
	proc, err := procs.Start(procs.Spec{Path: path, Args: args, Dir: i.exec.dir, Env: i.exec.env, Stdout: output, Stderr: output})
	if err != nil {
		return err
	}
	select {
	case <-proc.Done():
	case <-ctx.Done():
		proc.Kill()
		<-proc.Done()
		return fmt.Errorf("command %q timed out", command)
	}
	if _, code, _ := proc.Ended(); code != 0 {
		text, _ := readAtMost(output.Name(), maxTerminationBytes)
		return fmt.Errorf("command %q ended with %d: %s", command, code, strings.TrimSpace(string(text)))
	}
	return nil
}

// hook runs a lifecycle hook.
func (c *container) hook(ctx context.Context, i *instance, h *corev1.LifecycleHandler) error {
	switch {
	case h.Exec != nil:
		return c.runIn(ctx, i, h.Exec.Command)
	case h.HTTPGet != nil:
		return c.get(ctx, h.HTTPGet)
	case h.Sleep != nil:
		timer := time.NewTimer(time.Duration(h.Sleep.Seconds) * time.Second)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-i.over:
		case <-ctx.Done():
		}
		return nil
	}
	return fmt.Errorf("this kind of hook is not played by the local cluster")
}
