// Command snapshot lets nodes fall so far behind that their leader's metadata log no longer tells what they miss, and
// watches how they get it from a snapshot: once over a link that is slow, so that there is something to see; then with
// the leader killed in mid-transfer, bytes changed on the wire, and the node itself killed at random bytes. Each time
// there must be one install, told as one, and the node's state must be the leader's in the end, byte for byte.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/highwater-io/highwater/internal/localkube"
	"github.com/highwater-io/highwater/test/devcluster"
)

func main() {
	p := &proof{Proof: &devcluster.Proof{Name: "e2e-snapshot", Samples: "test/snapshot/cluster"}}
	flag.IntVar(&p.kills, "kills", 20, "how often an installing node is killed; the seeds are SEED, SEED+1, ...")
	flag.Uint64Var(&p.seed, "seed", 0, "of the random choices; 0 draws one")
	flag.BoolVar(&p.onlyKills, "only-kills", false, "leave the other parts out")
	p.Run = func(ctx context.Context, _ *devcluster.Proof) error { return p.run(ctx) }
	p.Main()
}

type proof struct {
	*devcluster.Proof
	kills     int
	seed      uint64
	onlyKills bool

	remote                *localkube.Remote
	random                *rand.Rand
	churn                 *churn
	voterIDs, observerIDs []int32
	voters                []string // pods

	rounds, downloads, killed, flipped, events int
	transferred                                int64
	compared                                   int64
}

func (p *proof) run(ctx context.Context) (err error) {
	if p.seed == 0 {
		p.seed = uint64(time.Now().UnixNano())
	}
	p.remote = localkube.Connect(p.Dir)
	rs, err := p.ReplicaSet(ctx, devcluster.SampleReplicaSet)
	if err != nil {
		return err
	}
	voter := map[int32]bool{}
	for _, id := range rs.Status.Quorum.Voters {
		voter[id] = true
		p.voterIDs, p.voters = append(p.voterIDs, id), append(p.voters, devcluster.SamplePod(id))
	}
	for _, n := range rs.Status.Nodes {
		if !voter[n.ID] {
			p.observerIDs = append(p.observerIDs, n.ID)
		}
	}
	p.Say("SEED=%d: voters %v, data nodes %v", p.seed, p.voterIDs, p.observerIDs)
	p.reseed(p.seed)
	p.churn = newChurn(p.clientAddresses, p.random)
	defer p.churn.close()
	if err := p.churn.connect(ctx); err != nil {
		return err
	}
	if err := p.churn.fill(ctx); err != nil {
		return err
	}
	p.Say("%d topics with %d configs of %d bytes each", ballastTopics, len(numbered), valueBytes)
	if !p.onlyKills {
		if err := p.play(ctx, p.parts()); err != nil {
			return err
		}
	}
	for i := range p.kills {
		seed := p.seed + uint64(i)
		p.Say("kill %d of %d, SEED=%d", i+1, p.kills, seed)
		if err := p.killInstaller(ctx, seed); err != nil {
			return fmt.Errorf("kill %d of %d: %w\n  again: make e2e-snapshot SEED=%d KILLS=1 SNAPSHOT_ARGS=-only-kills", i+1, p.kills, err, seed)
		}
	}
	if !p.onlyKills {
		// Last, since the operator that takes over reads a snapshot, which the leader then keeps for a minute.
		if err := p.play(ctx, []part{{"a voter, while the operator is killed", true, plan{rate: 1_000_000, quiet: true, act: p.killOperator}}}); err != nil {
			return err
		}
	}
	p.Say("everybody's state at the end")
	if err := p.sameEverywhere(ctx); err != nil {
		return err
	}
	if err := p.WaitHealthy(ctx, 120*time.Second); err != nil {
		return err
	}
	if err := p.toldInAll(ctx); err != nil {
		return err
	}
	fmt.Printf("\n  SEED=%d: %d installs in %d downloads, %d bytes of snapshots on the wire; %d kills of installing nodes, %d bytes changed\n"+
		"  %d events of starts and ends, "+
		"%d admin requests set %d bytes of configs; %d bytes of snapshots and logs compared\n",
		p.seed, p.rounds, p.downloads, p.transferred, p.killed, p.flipped, p.events, p.churn.requests, p.churn.bytes, p.compared)
	if p.killed < p.kills {
		return fmt.Errorf("%d nodes were killed, want %d or more", p.killed, p.kills)
	}
	return nil
}

// reseed starts the choices over.
func (p *proof) reseed(seed uint64) {
	p.random = rand.New(rand.NewPCG(seed, 0))
	if p.churn != nil {
		p.churn.random = p.random
	}
}

// part is one install, and what is special about it.
type part struct {
	name  string
	voter bool
	plan  plan
}

func (p *proof) parts() []part {
	return []part{
		{"a voter, over a link of 3 MB/s", true, plan{rate: 3_000_000, quiet: true}},
		{"a data node, over a link of 500 kB/s, on which a piece does not come in time, while metadata changes on", false,
			plan{rate: 500_000, quiet: true, long: true, churns: true, act: p.changeOn}},
		{"a voter, whose leader is killed in mid-transfer", true, plan{prepare: p.stopSomewhere, act: p.killLeader, fails: true}},
		{"a data node, whose leader is killed in mid-transfer", false, plan{prepare: p.stopSomewhere, act: p.killLeader, fails: true}},
		{"a voter, for which bytes change on the wire", true, plan{prepare: p.changeBytes, fails: true}},
		{"a data node, for which bytes change on the wire", false, plan{prepare: p.changeBytes, fails: true}},
	}
}

func (p *proof) play(ctx context.Context, parts []part) error {
	for _, part := range parts {
		p.Say("%s", part.name)
		if err := p.install(ctx, part.voter, part.plan); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		if !part.plan.quiet {
			continue
		}
		if err := p.sameEverywhere(ctx); err != nil {
			return err
		}
	}
	return nil
}
