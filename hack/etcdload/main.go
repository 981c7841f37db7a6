// Command etcdload puts values into an etcd cluster with etcd's own Go client and prints what it measured. It is a module
// of its own, so that etcd's client never comes near the product.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/highwater-io/highwater/internal/benchload"
)

func main() {
	var s benchload.Settings
	endpoint := flag.String("endpoint", "", "client URL of the member that leads")
	valueBytes := flag.Int("value-bytes", 256, "size of the values")
	flag.IntVar(&s.Clients, "clients", 1, "how many clients, with a connection each")
	flag.DurationVar(&s.Warmup, "warmup", 500*time.Millisecond, "not counted")
	flag.DurationVar(&s.For, "for", 3*time.Second, "how long")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, *endpoint, *valueBytes, s)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcdload:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, endpoint string, valueBytes int, s benchload.Settings) (err error) {
	clients := make([]*clientv3.Client, s.Clients)
	for i := range clients {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		clients[i] = c
		// The connection is made before the time runs.
		if _, err := c.Get(ctx, "highwater"); err != nil {
			return err
		}
	}
	random := rand.NewChaCha8([32]byte{})
	value := make([]byte, valueBytes)
	if _, err := random.Read(value); err != nil {
		return err
	}
	result, err := benchload.Run(ctx, s, func(ctx context.Context, client, n int) error {
		_, err := clients[client].Put(ctx, fmt.Sprintf("highwater/%d", client), string(value))
		return err
	})
	if err != nil {
		return err
	}
	return result.Print(os.Stdout)
}
