package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/highwater-io/highwater/internal/testscale"
)

// directoryID is what stands in meta.properties.
func directoryID(dir string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "data", "meta.properties"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(raw)) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "directory.id="); ok {
			return id, nil
		}
	}
	return "", errors.New("meta.properties has no directory.id")
}

// fillKafka writes what only Kafka can make so far: a compacted topic and transactions, beside an ordinary one.
func (p *proof) fillKafka(ctx context.Context, seed, dir string) error {
	err := errors.Join(
		createTopic(ctx, seed, "orders", 2, map[string]string{"segment.bytes": "1048576", "retention.ms": "-1"}),
		createTopic(ctx, seed, "paid", 1, nil),
		createTopic(ctx, seed, "compacted", 1, map[string]string{
			"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0",
		}))
	if err == nil {
		err = errors.Join(
			produce(ctx, seed, "orders", 2, 500, 0),
			produce(ctx, seed, "compacted", 1, 1200, 40),
			transactions(ctx, seed, "paid"))
	}
	if err != nil {
		return err
	}
	return eventually(ctx, "Kafka's cleaner has cleaned", func() error {
		raw, err := os.ReadFile(filepath.Join(dir, "data", "cleaner-offset-checkpoint"))
		if err != nil {
			return err
		}
		if !strings.Contains(string(raw), "compacted 0 ") {
			return fmt.Errorf("cleaner-offset-checkpoint says %q", raw)
		}
		return nil
	})
}

func eventually(ctx context.Context, what string, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, testscale.Duration(time.Minute))
	defer cancel()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not in time: %w", what, err)
		case <-ticker.C:
		}
	}
}
