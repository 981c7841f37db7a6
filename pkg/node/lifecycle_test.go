package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/internal/testscale"
	"github.com/highwater-io/highwater/pkg/wire"
)

func TestUnregisteredBrokerRegistersAnewAndServesOn(t *testing.T) {
	c := newCluster(t, 1, 1)
	c.waitReady(1000, 0)
	c.createTopic("orders", 1, 1, nil)
	client := c.client()
	c.produce(client, "orders", 0, 10)
	before, err := c.partition("orders")
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), testscale.Duration(30*time.Second))
	defer cancel()
	conn, err := (&wire.Dialer{}).Dial(ctx, c.nodes[1000].config.AdvertisedController)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	resp, err := conn.Request(ctx, kmsg.NewPtrUnregisterBrokerRequest())
	if err != nil {
		t.Fatal(err)
	}
	if err := kerr.ErrorForCode(resp.(*kmsg.UnregisterBrokerResponse).ErrorCode); err != nil {
		t.Fatal(err)
	}
	c.eventually("it leads again, in a later epoch", func() error {
		now, err := c.partition("orders")
		if err != nil {
			return err
		}
		if now.Leader != 0 || now.LeaderEpoch <= before.LeaderEpoch {
			return fmt.Errorf("leader %d, epoch %d", now.Leader, now.LeaderEpoch)
		}
		return nil
	})
	c.waitReady(0)
	c.produce(client, "orders", 10, 20)
	c.consume("orders", 20)
}
