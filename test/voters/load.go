package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// loadTopic is the topic whose configuration the load writes again and again.
	loadTopic = "voters-load"
	loadKey   = "retention.ms"
	// loadBase is what the key counts from.
	loadBase = 1_000_000_000
	// loadPause is between two changes.
	loadPause = 20 * time.Millisecond
)

// load writes metadata all the time: each change is a record that the quorum commits before it is acknowledged.
type load struct {
	client *kadm.Client
	raw    *kgo.Client
	end    context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	last    int64 // acknowledged
	asked   int64
	waited  time.Duration
	refused error
}

func startLoad(ctx context.Context, seeds []string) (*load, error) {
	raw, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		return nil, err
	}
	l := &load{client: kadm.NewClient(raw), raw: raw, done: make(chan struct{})}
	made, err := l.client.CreateTopic(ctx, 1, 1, nil, loadTopic)
	if err := errors.Join(err, made.Err); err != nil {
		raw.Close()
		return nil, fmt.Errorf("create topic %s: %w", loadTopic, err)
	}
	running, end := context.WithCancel(ctx)
	l.end = end
	go l.run(running)
	return l, nil
}

func (l *load) run(ctx context.Context) {
	defer close(l.done)
	ticker := time.NewTicker(loadPause)
	defer ticker.Stop()
	for n := int64(1); ; n++ {
		from := time.Now()
		for ctx.Err() == nil {
			l.mu.Lock()
			l.asked = n
			l.mu.Unlock()
			err := l.write(ctx, n)
			l.mu.Lock()
			if err == nil {
				l.last, l.waited = n, max(l.waited, time.Since(from))
				l.mu.Unlock()
				break
			}
			l.refused = err
			l.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// write sets the key to a number; the same again when nobody knows what came of it, so that only ever the newest is
// written.
func (l *load) write(ctx context.Context, n int64) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	value := strconv.FormatInt(loadBase+n, 10)
	answers, err := l.client.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: loadKey, Value: &value}}, loadTopic)
	if err != nil {
		return err
	}
	for _, a := range answers {
		if a.Err != nil {
			return a.Err
		}
	}
	return nil
}

func (l *load) acked() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// longest is how long a change had to be tried at most.
func (l *load) longest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waited
}

// check reads the key: nothing that was acknowledged before may be missing.
func (l *load) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	acked := l.acked()
	if acked == 0 {
		return fmt.Errorf("no change was acknowledged; last refusal: %w", l.refused)
	}
	for {
		n, err := l.read(ctx)
		switch {
		case err == nil && n >= acked:
			return nil
		case err == nil:
			// A data node may be behind what the quorum committed, for a moment.
			err = fmt.Errorf("change %d was acknowledged, and the cluster has %d", acked, n)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (l *load) read(ctx context.Context) (int64, error) {
	configs, err := l.client.DescribeTopicConfigs(ctx, loadTopic)
	if err != nil {
		return 0, err
	}
	for _, topic := range configs {
		for _, c := range topic.Configs {
			if c.Key == loadKey && c.Value != nil {
				n, err := strconv.ParseInt(*c.Value, 10, 64)
				return n - loadBase, err
			}
		}
	}
	return 0, kerr.UnknownTopicOrPartition
}

// stop ends the load and checks once more. Nothing can be there that was never asked for either.
func (l *load) stop(ctx context.Context) error {
	l.end()
	<-l.done
	defer l.raw.Close()
	if err := l.check(ctx); err != nil {
		return err
	}
	n, err := l.read(ctx)
	if err == nil && n > l.asked {
		err = fmt.Errorf("the cluster has change %d, and only %d were asked for", n, l.asked)
	}
	return err
}
