// Command compat lets kcat, a client that shares no code with this project, list, produce with each of its codecs,
// consume and query offsets, and compares what it reads byte for byte with what it wrote.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/test/devcluster"
)

func main() {
	p := &devcluster.Proof{Name: "compat-kcat", Ready: findKcat}
	p.Run = func(ctx context.Context, p *devcluster.Proof) error {
		seeds, err := p.Bootstrap(ctx, devcluster.SampleReplicaSet)
		if err != nil {
			return err
		}
		k := &kcat{Proof: p, brokers: strings.Join(seeds, ","), topic: devcluster.SamplePartition}
		for _, step := range []func(context.Context) error{
			k.list, k.produceWithEachCodec, k.consume, k.consumeFrom, k.idempotent, k.binary, k.query, k.refusals,
		} {
			if err := step(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	p.Main()
}

// findKcat installs kcat where that is allowed and possible.
func findKcat(ctx context.Context) error {
	if path, err := exec.LookPath("kcat"); err == nil {
		return describe(ctx, path)
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Getuid() != 0 {
		return fmt.Errorf("%w: kcat is not installed, and to install it takes root and apt-get", devcluster.ErrNotRun)
	}
	fmt.Println("installing the Debian package kcat")
	for _, args := range [][]string{{"update", "-qq"}, {"install", "-qq", "--yes", "--no-install-recommends", "kcat"}} {
		command := exec.CommandContext(ctx, apt, args...)
		command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: apt-get %s: %w: %s", devcluster.ErrNotRun, args[0], err, bytes.TrimSpace(out))
		}
	}
	path, err := exec.LookPath("kcat")
	if err != nil {
		return fmt.Errorf("%w: the package kcat brings no kcat: %w", devcluster.ErrNotRun, err)
	}
	return describe(ctx, path)
}

var versionLine = regexp.MustCompile(`(?m)^Version .*`)

func describe(ctx context.Context, path string) error {
	out, err := exec.CommandContext(ctx, path, "-V").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s -V: %w", devcluster.ErrNotRun, path, err)
	}
	fmt.Println("kcat", string(versionLine.Find(out)))
	return nil
}

type kcat struct {
	*devcluster.Proof
	brokers string
	topic   string
	written []message // what the partition must hold, by offset
	paused  []int     // offsets at which a pause in time ends
}

type message struct {
	key, value string
	codec      string
	at         time.Time // not before this
}

// run runs kcat and returns what it printed.
func (k *kcat) run(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, testscale.Duration(60*time.Second))
	defer cancel()
	command := exec.CommandContext(ctx, "kcat", append([]string{"-b", k.brokers, "-m", "20"}, args...)...)
	var stdout, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.Bytes(), fmt.Errorf("kcat %s: %w: %s", strings.Join(args, " "), errors.Join(err, ctx.Err()), bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}

func (k *kcat) produce(ctx context.Context, messages []message, args ...string) error {
	var input bytes.Buffer
	for _, m := range messages {
		fmt.Fprintf(&input, "%s:%s\n", m.key, m.value)
	}
	_, err := k.run(ctx, input.Bytes(), append([]string{"-P", "-t", k.topic, "-p", "0", "-K", ":", "-X", "acks=all"}, args...)...)
	if err == nil {
		k.written = append(k.written, messages...)
	}
	return err
}

// expect consumes and compares with what was written from an offset on.
func (k *kcat) expect(ctx context.Context, what, from string, offset, count int, args ...string) error {
	var want bytes.Buffer
	for i, m := range k.written[offset : offset+count] {
		fmt.Fprintf(&want, "%d %s:%s\n", offset+i, m.key, m.value)
	}
	got, err := k.run(ctx, nil, append([]string{"-C", "-t", k.topic, "-p", "0", "-e", "-q", "-X", "check.crcs=true", "-f", "%o %k:%s\n", "-o", from}, args...)...)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want.Bytes()) {
		return fmt.Errorf("%s: kcat read %d bytes, want %d; they differ from byte %d on", what, len(got), want.Len(), common(got, want.Bytes()))
	}
	k.Say("  %s: %d messages, %d bytes, the same byte for byte", what, count, len(got))
	return nil
}

// common is the length of the common beginning.
func common(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
