// Command voters changes the voters of a running quorum, by nothing but the ReplicaSet's spec, while metadata is written
// all the time: from three to one with the leader among those who go, from one to three, to five and back; then a voter
// loses its whole volume and comes back under another identity. In between and in the end it reads from a voter's own
// metadata log which voter sets there were: each differs from the one before by one voter, and an identity that went for
// its lost volume is never seen again. No acknowledged change of metadata may be lost.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/internal/localkube"
	"github.com/highwater-io/highwater/test/devcluster"
)

func main() {
	p := &devcluster.Proof{Name: "e2e-voters"}
	p.Run = func(ctx context.Context, p *devcluster.Proof) error { return (&proof{Proof: p}).run(ctx) }
	p.Main()
}

type proof struct {
	*devcluster.Proof
	load   *load
	events map[string]int // that the changes must have brought, by reason
	lost   []identity     // that went with their volume
}

func (p *proof) run(ctx context.Context) (err error) {
	seeds, err := p.Bootstrap(ctx, devcluster.SampleReplicaSet)
	if err != nil {
		return err
	}
	if p.load, err = startLoad(ctx, seeds); err != nil {
		return err
	}
	p.events = map[string]int{}
	err = p.parts(ctx)
	lost := p.load.stop(ctx)
	if err := errors.Join(err, lost); err != nil {
		return err
	}
	p.Say("%d changes of metadata were acknowledged, none is lost; the longest wait for one was %v", p.load.acked(), p.load.longest().Round(time.Millisecond))
	return p.told(ctx)
}

func (p *proof) parts(ctx context.Context) error {
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"from 3 voters to 1, the leader among those who go", p.leaderGoes},
		{"from 1 voter to 3", func(ctx context.Context) error { return p.change(ctx, 3) }},
		{"from 3 voters to 5, and the operator is killed again and again", p.operatorDies},
		{"from 5 voters to 3", func(ctx context.Context) error { return p.change(ctx, 3) }},
		{"a voter loses its whole volume", p.volumeLost},
	} {
		p.Say("%s", part.name)
		before := p.load.acked()
		if err := part.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		if err := p.history(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		if err := p.load.check(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		p.Say("  %d changes of metadata were acknowledged meanwhile", p.load.acked()-before)
	}
	return nil
}

// leaderGoes has another voter lead than the one that stays, and takes two away.
func (p *proof) leaderGoes(ctx context.Context) error {
	const stays = 1000
	for {
		rs, err := p.ReplicaSet(ctx, devcluster.SampleReplicaSet)
		if err != nil {
			return err
		}
		if leader := rs.Status.Quorum.LeaderID; leader > stays {
			p.Say("  voter %d leads", leader)
			break
		}
		if _, err := localkube.Signal(p.Dir, devcluster.SamplePod(stays), localkube.Kill); err != nil {
			return err
		}
		err = p.Eventually(ctx, 60*time.Second, func(ctx context.Context) error {
			rs, err := p.ReplicaSet(ctx, devcluster.SampleReplicaSet)
			if err == nil && (rs.Status.Quorum.LeaderID == stays || rs.Status.Quorum.LeaderID < 0) {
				err = fmt.Errorf("voter %d leads", rs.Status.Quorum.LeaderID)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return p.change(ctx, 1)
}

// operatorKills is how often the operator is killed during a change, operatorLives how long it gets.
const (
	operatorKills = 4
	operatorLives = 700 * time.Millisecond
)

// operatorDies makes a change with an operator that hardly comes to do anything.
func (p *proof) operatorDies(ctx context.Context) error {
	killed := make(chan error, 1)
	go func() {
		ticker := time.NewTicker(operatorLives)
		defer ticker.Stop()
		var err error
		for kills := 0; kills < operatorKills && err == nil; {
			select {
			case <-ctx.Done():
				err = ctx.Err()
			case <-ticker.C:
				pids, _ := localkube.Signal(p.Dir, "operator", localkube.Kill) // none while it is being started again
				kills += len(pids)
			}
		}
		killed <- err
	}()
	if err := p.change(ctx, 5); err != nil {
		return err
	}
	if err := <-killed; err != nil {
		return err
	}
	p.Say("  the operator was killed %d times", operatorKills)
	return p.settled(ctx, 5)
}

// change sets spec.quorum.voters and waits until the quorum, the pods and the status are so.
func (p *proof) change(ctx context.Context, voters int32) error {
	from := time.Now()
	rs, err := p.ReplicaSet(ctx, devcluster.SampleReplicaSet)
	if err != nil {
		return err
	}
	if d := int(voters) - len(rs.Status.Quorum.Voters); d > 0 {
		p.events[hwv1alpha1.EventVoterAdded] += d
	} else {
		p.events[hwv1alpha1.EventVoterRemoved] -= d
		p.events[hwv1alpha1.EventNodeRetired] -= d
	}
	patch := fmt.Appendf(nil, `{"spec":{"quorum":{"voters":%d}}}`, voters)
	if err := p.Client.Patch(ctx, rs, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		return err
	}
	if err := p.settled(ctx, voters); err != nil {
		return err
	}
	p.Say("  the quorum has %d voters, after %v", voters, time.Since(from).Round(100*time.Millisecond))
	return nil
}

// settled waits until the set has its voters, with a pod for each and no other, and everything is well.
func (p *proof) settled(ctx context.Context, voters int32) error {
	said, told := time.Now(), ""
	return p.Eventually(ctx, 240*time.Second, func(ctx context.Context) error {
		rs, err := p.ReplicaSet(ctx, devcluster.SampleReplicaSet)
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(rs.Status.Conditions, hwv1alpha1.ReplicaSetProgressing)
		if c != nil && c.Status == metav1.ConditionTrue && c.Message != told {
			told = c.Message
			p.Say("  %s: %s", c.Reason, c.Message)
		}
		var want []int32
		for i := range voters {
			want = append(want, 1000+i)
		}
		switch {
		case !slices.Equal(rs.Status.Quorum.Voters, want) || len(rs.Status.Quorum.Observers) > 0:
			err = fmt.Errorf("voters %v, observers %v", rs.Status.Quorum.Voters, rs.Status.Quorum.Observers)
		case c == nil || c.Status != metav1.ConditionFalse || c.ObservedGeneration < rs.Generation:
			err = fmt.Errorf("the ReplicaSet's Progressing is %+v", c)
		default:
			err = errors.Join(p.Healthy(ctx), p.voterPods(ctx, want))
		}
		if err != nil && time.Since(said) > 20*time.Second {
			said = time.Now()
			p.Say("  waiting: %v", err)
		}
		return err
	})
}

// told checks that people were told of each change, once.
func (p *proof) told(ctx context.Context) error {
	err := p.Eventually(ctx, 30*time.Second, func(ctx context.Context) error {
		all, err := p.Events(ctx)
		if err != nil {
			return err
		}
		seen := map[string]int{}
		for i := range all {
			seen[all[i].Reason]++
		}
		for reason, want := range p.events {
			if seen[reason] != want {
				return fmt.Errorf("%d events %s, want %d", seen[reason], reason, want)
			}
		}
		return nil
	})
	if err == nil {
		p.Say("events, once for each change: %v", p.events)
	}
	return err
}
