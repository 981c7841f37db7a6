package devcluster

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// ErrNotRun says that a proof can't run here; what wraps it says why.
var ErrNotRun = errors.New("NOT RUN")

// exitNotRun is the exit code of a proof that can't run here, so that nobody takes it for one that passed.
const exitNotRun = 3

// Proof is a program that shows one property of the whole product on a local cluster and exits non-zero when the
// property does not hold. Its flags are Proof's and those that its main defines before Main.
type Proof struct {
	Name string
	// Options are the cluster's; Bin, Dir and Out are set by Main.
	Options Options
	// Samples is the directory of the manifests that are applied, config/samples unless set. It has the names of those.
	Samples string
	// Ready is called before anything is started; an ErrNotRun ends the proof there.
	Ready func(ctx context.Context) error
	// Run shows the property. The samples are applied and everything is healthy when it is called.
	Run func(ctx context.Context, p *Proof) error

	*Cluster
	started time.Time
}

// Main parses the flags, runs the proof and exits.
func (p *Proof) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	var bin, samples string
	flag.StringVar(&bin, "bin", "bin", "directory with highwater, highwater-node and highwater-operator")
	flag.StringVar(&samples, "samples", cmp.Or(p.Samples, "config/samples"), "manifests to apply")
	flag.StringVar(&p.Options.AddressMode, "address-mode", p.Options.AddressMode, "own or shared; see highwater dev up --help")
	flag.Parse()
	p.started = time.Now()
	err := p.run(ctx, bin, samples)
	stop()
	switch {
	case errors.Is(err, ErrNotRun):
		fmt.Println(err)
		os.Exit(exitNotRun)
	case err != nil:
		fmt.Fprintf(os.Stderr, "\n%s: MISSED: %v\n", p.Name, err)
		os.Exit(1)
	}
	fmt.Printf("\n%s: ok\n", p.Name)
}

func (p *Proof) run(ctx context.Context, bin, samples string) (err error) {
	if p.Ready != nil {
		if err := p.Ready(ctx); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "highwater-"+p.Name+"-")
	if err != nil {
		return err
	}
	p.Options.Dir, p.Options.Out = filepath.Join(dir, "cluster"), os.Stdout
	if p.Options.Bin, err = filepath.Abs(bin); err != nil {
		return err
	}
	if p.Options.AuditLog != "" {
		p.Options.AuditLog = filepath.Join(dir, p.Options.AuditLog)
	}
	p.Say("starting a local cluster (state in %s)", dir)
	if p.Cluster, err = Start(ctx, p.Options); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	defer func() {
		p.Say("stopping the local cluster")
		p.Stop()
		if err == nil || errors.Is(err, ErrNotRun) {
			err = errors.Join(err, os.RemoveAll(dir))
			return
		}
		fmt.Fprintf(os.Stderr, "logs and state are kept in %s\n", dir)
	}()
	p.Say("kubectl apply -f %s", samples)
	if _, err := p.Kubectl(ctx, "apply", "-f", samples); err != nil {
		return err
	}
	if err := p.WaitHealthy(ctx, 180*time.Second); err != nil {
		return err
	}
	return p.Run(ctx, p)
}

// Say prints a line of progress with the time since the start.
func (p *Proof) Say(format string, args ...any) {
	fmt.Printf("%7.1fs  %s\n", time.Since(p.started).Seconds(), fmt.Sprintf(format, args...))
}

// WaitHealthy waits until everything stands as the samples want it, and says every ten seconds what is missing.
func (p *Proof) WaitHealthy(ctx context.Context, within time.Duration) error {
	began, said := time.Now(), time.Now()
	err := p.Eventually(ctx, within, func(ctx context.Context) error {
		err := p.Healthy(ctx)
		if err != nil && time.Since(said) > 10*time.Second {
			said = time.Now()
			p.Say("  waiting: %v", err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("not everything is ready and in sync: %w", err)
	}
	p.Say("everything is Ready and in sync after %.1f s", time.Since(began).Seconds())
	return nil
}
