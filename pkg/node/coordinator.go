package node

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/wire"
)

// findCoordinator says that there is none: neither consumer groups nor transactions are served. The key is served
// although, since librdkafka takes a broker without it for one that can't be sent lz4 and then sends plain batches,
// without a word. The error is one that no client tries again after.
func findCoordinator(req *wire.Request, body *kmsg.FindCoordinatorRequest) {
	const oneKeyBefore = 4 // KIP-699
	what := "consumer groups are"
	switch body.CoordinatorType {
	case 1:
		what = "transactions are"
	case 2:
		what = "share groups are"
	}
	message := fmt.Sprintf("%s not served by this version of Highwater", what)
	resp := kmsg.NewPtrFindCoordinatorResponse()
	resp.NodeID, resp.Port = -1, -1
	if body.Version < oneKeyBefore {
		resp.ErrorCode, resp.ErrorMessage = kerr.UnsupportedVersion.Code, &message
	}
	for _, key := range body.CoordinatorKeys {
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		c.Key, c.NodeID, c.Port = key, -1, -1
		c.ErrorCode, c.ErrorMessage = kerr.UnsupportedVersion.Code, &message
		resp.Coordinators = append(resp.Coordinators, c)
	}
	req.Reply(resp)
}
