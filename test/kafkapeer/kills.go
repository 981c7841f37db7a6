package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/test/nodes"
	"github.com/highwater-io/highwater/test/workload"
)

// kills takes the broker, our leader and the leader of the quorum away by kill -9 under load, one after the other.
func (p *proof) kills(ctx context.Context) error {
	seeds := []string{p.ours.Node(0).External, p.ours.Node(1).External, p.broker.external}
	load, err := workload.Start(seeds, topicLoad, 20*time.Millisecond)
	if err != nil {
		return err
	}
	p.check("kill -9 of the broker: our controller fences it within its session, our node leads in its place", func() (string, error) {
		killed := time.Now()
		p.broker.kill()
		took, err := p.waitFenced(ctx, killed)
		if err == nil {
			err = fencedInTime(took)
		}
		if err == nil {
			err = errors.Join(p.inSync(ctx, topicMixed, 0, 0, 0), p.inSync(ctx, topicMixed, 1, 0, 0), p.produce(ctx, topicMixed, 1, 30, kgo.LeaderAck()))
		}
		return fmt.Sprintf("%.1f s after the kill", took.Seconds()), err
	})
	if err := p.broker.start(); err != nil {
		return err
	}
	if !p.check("it comes back, is unfenced, and follows our node until the ISR is full again", func() (string, error) {
		began := time.Now()
		if err := p.waitUnfenced(ctx); err != nil {
			return "", err
		}
		back := time.Since(began)
		saw, err := p.sameBytes(ctx, 0, 0)
		return fmt.Sprintf("unfenced %.1f s after its start; %s", back.Seconds(), saw), err
	}) {
		return errors.New("the broker did not come back")
	}
	p.check("kafka-leader-election gives it back what it should lead", func() (string, error) {
		if _, err := tool(ctx, leaderElection, "--bootstrap-server", p.broker.external, "--election-type", "preferred", "--all-topic-partitions"); err != nil {
			return "", err
		}
		return "", nodes.WaitFor(ctx, 30*time.Second, func(ctx context.Context) error {
			return errors.Join(p.inSync(ctx, topicMixed, 1, kafkaID, 0, kafkaID), p.inSync(ctx, topicLoad, 0, kafkaID, 0, 1, kafkaID))
		})
	})
	p.check("kill -9 of our node: the broker leads, and our node follows it until the ISR is full again", func() (string, error) {
		node := p.ours.Node(0)
		node.Crash()
		if err := nodes.WaitFor(ctx, 30*time.Second, func(ctx context.Context) error { return p.inSync(ctx, topicMixed, 0, kafkaID, kafkaID) }); err != nil {
			return "", err
		}
		for _, partition := range []int32{0, 1} {
			if err := p.produce(ctx, topicMixed, partition, 30, kgo.LeaderAck()); err != nil {
				return "", err
			}
		}
		if err := node.Start(); err != nil {
			return "", err
		}
		saw, err := p.sameBytes(ctx, kafkaID, kafkaID)
		return saw, errors.Join(err, p.startsAt(ctx))
	})
	p.check("the broker is killed with records that our node has not fetched: it cuts them off by our epochs", func() (string, error) {
		node := p.ours.Node(0)
		return p.cutOff(ctx, 0, p.broker.external, p.broker.data(), node.Pause, node.Resume, p.broker.kill, p.broker.start)
	})
	p.check("our node is killed with records that the broker has not fetched: it cuts them off by the broker's epochs", func() (string, error) {
		node := p.ours.Node(0)
		return p.cutOff(ctx, kafkaID, node.External, node.DataDir(), p.broker.pause, p.broker.resume, node.Crash, node.Start)
	})
	p.check("kill -9 of the quorum's leader: the broker stays in service and follows the next one", func() (string, error) { return p.killQuorumLeader(ctx) })
	p.check("no acknowledged record of the load is lost, doubled or elsewhere", func() (string, error) {
		ctx, cancel := context.WithTimeout(ctx, testscale.Duration(2*time.Minute))
		defer cancel()
		if err := load.Stop(ctx); err != nil {
			return "", err
		}
		found, err := load.Verify(ctx, seeds)
		if err == nil {
			err = found.Err()
		}
		return found.String(), err
	})
	p.check("still no load error", func() (string, error) { return p.loadErrors(ctx) })
	return nil
}

// cutOff gives the leader of mixed-0 records while its follower, which becomes the next leader, stands still; kills it;
// and has it back when its follower has led and written others. Nobody else is asked meanwhile: what stands still does
// not answer.
func (p *proof) cutOff(ctx context.Context, next int32, leader, data string, pause, resume, kill func(), start func() error) (string, error) {
	pause()
	err := produceTo(ctx, []string{leader}, topicMixed, 0, 5, kgo.LeaderAck())
	kill()
	resume()
	if err != nil {
		return "", err
	}
	partition := filepath.Join(data, topicMixed+"-0")
	before, err := segments(partition)
	if err != nil {
		return "", err
	}
	if err := nodes.WaitFor(ctx, 30*time.Second, func(ctx context.Context) error {
		return errors.Join(p.inSync(ctx, topicMixed, 0, next, next), p.inSync(ctx, topicMixed, 1, next, next))
	}); err != nil {
		return "", err
	}
	if err := p.produce(ctx, topicMixed, 0, 5, kgo.LeaderAck()); err != nil {
		return "", err
	}
	if err := start(); err != nil {
		return "", err
	}
	saw, err := p.sameBytes(ctx, next, next)
	if err != nil {
		return "", err
	}
	after, err := segments(partition)
	if err == nil && bytes.HasPrefix(after, before) {
		err = errors.New("everything that it had is there still: its follower had it, too")
	}
	return saw, err
}

// killQuorumLeader kills the voter that leads, and has the broker pass a request on to its successor.
func (p *proof) killQuorumLeader(ctx context.Context) (string, error) {
	before, err := p.quorum(ctx)
	if err != nil {
		return "", err
	}
	leader := p.ours.Node(before.leader)
	leader.Crash()
	client, err := kgo.NewClient(kgo.SeedBrokers(p.broker.external), kgo.RetryTimeout(testscale.Duration(30*time.Second)))
	if err != nil {
		return "", err
	}
	defer client.Close()
	if err := nodes.WaitFor(ctx, 30*time.Second, func(ctx context.Context) error {
		err := createTopic(ctx, client, "after-the-leader", nil, []int32{kafkaID})
		if errors.Is(err, kerr.TopicAlreadyExists) {
			return nil // by a try whose answer died with the leader
		}
		return err
	}); err != nil {
		return "", err
	}
	var after *quorum
	err = nodes.WaitFor(ctx, 30*time.Second, func(ctx context.Context) (err error) {
		if after, err = p.quorum(ctx); err != nil {
			return err
		}
		if o := after.observers[kafkaID]; o.end < after.highWatermark-5 {
			return fmt.Errorf("the broker is at %d of %d", o.end, after.highWatermark)
		}
		return p.unfenced(ctx, kafkaID)
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("voter %d after %d, the broker is at %d of %d", after.leader, before.leader, after.observers[kafkaID].end, after.highWatermark), leader.Start()
}
