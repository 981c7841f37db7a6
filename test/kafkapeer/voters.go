package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/highwater-io/highwater/test/nodes"
)

// changeVoters takes a voter out and brings it back in, through a data node and through the controllers.
func (p *proof) changeVoters(ctx context.Context) (string, error) {
	q, err := p.quorum(ctx)
	if err != nil {
		return "", err
	}
	id := ourVoters[0]
	if id == q.leader {
		id = ourVoters[1]
	}
	if err := p.removeVoter(ctx, id, nodes.Directory(id).String()); err != nil {
		return "", err
	}
	left := slices.DeleteFunc(slices.Clone(ourVoters), func(other int32) bool { return other == id })
	if err := p.votersAre(ctx, left...); err != nil {
		return "", err
	}
	if err := p.addVoter(ctx, id, "--bootstrap-controller", p.ours.Controllers()); err != nil {
		return "", err
	}
	return fmt.Sprintf("voter %d with its directory %s", id, nodes.Directory(id)), p.votersAre(ctx, ourVoters...)
}

// votersAre waits until exactly these are the voters.
func (p *proof) votersAre(ctx context.Context, ids ...int32) error {
	return nodes.WaitFor(ctx, 30*time.Second, func(ctx context.Context) error {
		q, err := p.quorum(ctx)
		if err != nil {
			return err
		}
		if got := slices.Sorted(maps.Keys(q.voters)); !slices.Equal(got, slices.Sorted(slices.Values(ids))) {
			return fmt.Errorf("the voters are %v, want %v", got, ids)
		}
		return nil
	})
}

// removeVoter has Kafka's tool take a voter out. It may meet an election, and is then refused and tried again.
func (p *proof) removeVoter(ctx context.Context, id int32, directory string) error {
	tried := false
	return nodes.WaitFor(ctx, time.Minute, func(ctx context.Context) error {
		_, err := tool(ctx, metadataQuorum, "--bootstrap-server", p.ours.Node(0).External, "remove-controller",
			"--controller-id", fmt.Sprint(id), "--controller-directory-id", directory)
		if err != nil && tried && strings.Contains(err.Error(), "VoterNotFound") {
			return nil // the try before did it
		}
		tried = true
		return err
	})
}

// addVoter has Kafka's tool add one of our voters. It reads id, directory and endpoint from the configuration and the
// directory of the new controller.
func (p *proof) addVoter(ctx context.Context, id int32, bootstrap ...string) error {
	n := p.ours.Node(id)
	properties := filepath.Join(p.dir, fmt.Sprintf("controller-%d.properties", id))
	if err := os.WriteFile(properties, []byte(fmt.Sprintf(`process.roles=controller
node.id=%d
controller.quorum.bootstrap.servers=%s
controller.listener.names=CONTROLLER
listeners=CONTROLLER://%s
listener.security.protocol.map=CONTROLLER:PLAINTEXT
log.dirs=%s
`, id, p.ours.Controllers(), n.Controller, n.DataDir())), 0o644); err != nil {
		return err
	}
	return p.addController(ctx, properties, bootstrap...)
}

func (p *proof) addController(ctx context.Context, properties string, bootstrap ...string) error {
	tried := false
	return nodes.WaitFor(ctx, time.Minute, func(ctx context.Context) error {
		_, err := tool(ctx, metadataQuorum, append(bootstrap, "--command-config", properties, "add-controller")...)
		if err != nil && tried && strings.Contains(err.Error(), "DuplicateVoter") {
			return nil
		}
		tried = true
		return err
	})
}

// handover has a controller of Apache Kafka's follow our quorum, vote in it, lead it alone, and give it back.
func (p *proof) handover(ctx context.Context) error {
	var err error
	if p.controller, err = newController(ctx, p.ours, filepath.Join(p.dir, "kafka-controller")); err != nil {
		return err
	}
	if err := p.controller.start(); err != nil {
		return err
	}
	server := p.ours.Node(0).External
	var directory string
	if !p.check("it follows our quorum as an observer, and our controller registers it", func() (string, error) {
		err := nodes.WaitFor(ctx, time.Minute, func(ctx context.Context) error {
			q, err := p.quorum(ctx)
			if err != nil {
				return err
			}
			o, ok := q.observers[kafkaControllerID]
			if !ok || o.end < q.highWatermark-5 {
				return fmt.Errorf("it is at %d of %d", o.end, q.highWatermark)
			}
			directory = o.directory
			return p.controller.said("controller acknowledged ControllerRegistrationRequest")
		})
		return "directory " + directory, errors.Join(err, p.controller.complaints())
	}) {
		return errors.New("it does not follow")
	}
	if !p.check("kafka-metadata-quorum adds it, and then takes our three voters out", func() (string, error) {
		if err := p.addController(ctx, p.controller.properties(), "--bootstrap-server", server); err != nil {
			return "", err
		}
		if err := p.votersAre(ctx, append(slices.Clone(ourVoters), kafkaControllerID)...); err != nil {
			return "", err
		}
		for _, id := range ourVoters {
			if err := p.removeVoter(ctx, id, nodes.Directory(id).String()); err != nil {
				return "", err
			}
		}
		return "it leads alone", errors.Join(p.votersAre(ctx, kafkaControllerID), p.leaderIs(ctx, true))
	}) {
		return errors.New("it does not lead")
	}
	p.check("under Apache Kafka's controller our nodes serve, and our leader changes the ISR", func() (string, error) { return p.underKafka(ctx) })
	if !p.check("kafka-metadata-quorum adds our voters again, and takes it out", func() (string, error) {
		for _, id := range ourVoters {
			if err := p.addVoter(ctx, id, "--bootstrap-server", server); err != nil {
				return "", err
			}
		}
		if err := p.removeVoter(ctx, kafkaControllerID, directory); err != nil {
			return "", err
		}
		return "", errors.Join(p.votersAre(ctx, ourVoters...), p.leaderIs(ctx, false))
	}) {
		return errors.New("our voters do not lead again")
	}
	p.check("our controller goes on from there", func() (string, error) {
		if err := createTopic(ctx, p.client, "after-kafka", nil, []int32{1, 0, kafkaID}); err != nil {
			return "", err
		}
		return "", nodes.WaitFor(ctx, time.Minute, func(ctx context.Context) error {
			return p.inSync(ctx, "after-kafka", 0, 1, 0, 1, kafkaID)
		})
	})
	// What its controller answers while nobody leads it logs as an error.
	p.check("no error in its log", func() (string, error) { return "", p.controller.complaints("NotControllerException") })
	return p.sameMetadata(ctx)
}

// leaderIs waits until Kafka's controller leads the quorum, or one of our voters.
func (p *proof) leaderIs(ctx context.Context, kafkas bool) error {
	return nodes.WaitFor(ctx, 30*time.Second, func(ctx context.Context) error {
		q, err := p.quorum(ctx)
		if err == nil && (q.leader < 0 || kafkas != (q.leader == kafkaControllerID)) {
			err = fmt.Errorf("the leader is %d", q.leader)
		}
		return err
	})
}

// underKafka kills one of our data nodes while Kafka's controller leads the quorum, and starts it again.
func (p *proof) underKafka(ctx context.Context) (string, error) {
	if err := createTopic(ctx, p.client, "under-kafka", nil, []int32{0, 1, kafkaID}); err != nil {
		return "", err
	}
	want := func(isr ...int32) error {
		return nodes.WaitFor(ctx, time.Minute, func(ctx context.Context) error { return p.inSync(ctx, "under-kafka", 0, 0, isr...) })
	}
	if err := want(0, 1, kafkaID); err != nil {
		return "", err
	}
	n := p.ours.Node(1)
	n.Crash()
	if err := want(0, kafkaID); err != nil {
		return "", err
	}
	if err := n.Start(); err != nil {
		return "", err
	}
	return "a topic is made, node 1 is killed, fenced, started, and in the ISR again", want(0, 1, kafkaID)
}

// sameMetadata stops everybody and compares what our voters and nodes and both of Kafka's have on their disks.
func (p *proof) sameMetadata(ctx context.Context) error {
	if err := errors.Join(p.broker.stop(), p.controller.stop()); err != nil {
		return err
	}
	p.ours.Stop()
	dirs := []string{p.controller.data(), p.broker.data()}
	for _, n := range p.ours.All() {
		dirs = append(dirs, n.DataDir())
	}
	p.check("all metadata logs hold the same state", func() (string, error) {
		var shortest string
		var want read
		for i, dir := range dirs {
			found, err := readMetadata(filepath.Join(dir, metadataDir), -1)
			if err != nil {
				return "", err
			}
			if i == 0 || found.end < want.end {
				shortest, want = dir, found
			}
		}
		for _, dir := range dirs {
			found, err := readMetadata(filepath.Join(dir, metadataDir), want.end)
			if err != nil {
				return "", err
			}
			if !found.image.Equal(want.image) {
				return "", fmt.Errorf("at offset %d %s holds another state than %s", want.end, dir, shortest)
			}
		}
		return fmt.Sprintf("%d nodes at offset %d", len(dirs), want.end), ctx.Err()
	})
	return nil
}
