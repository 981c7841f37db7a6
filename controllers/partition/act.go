package partition

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/highwater-io/highwater/controllers/cluster"
)

const (
	// afterRefusal is how long a request that the controller refused is left alone, unless something changes.
	afterRefusal = 10 * time.Second
	// afterFailure is the same for a request of which nobody knows what came of it.
	afterFailure = 2 * time.Second
	// afterRequest is how long the committed answer to a request may take before it is asked for again.
	afterRequest = 2 * time.Second
	// forSiblings is how long a request waits for the intents of others of the same topic.
	forSiblings = 200 * time.Millisecond
)

// outcome is what came of a plan.
type outcome struct {
	// made says that the controller took a request that makes partitions.
	made bool
	// exists says that somebody else had made the topic, or an earlier request of ours whose answer was lost.
	exists bool
	// refused is the controller's refusal.
	refused error
	// again is when to look again at the latest, 0 for when something changes.
	again time.Duration
}

// carryOut asks the cluster for what the plan says. A request whose answer is lost is made again: all of them are
// safe to repeat.
func carryOut(ctx context.Context, admin cluster.Admin, topic string, what plan) outcome {
	var err error
	made := false
	switch {
	case what.unready:
		return outcome{again: forSiblings}
	case what.create != nil:
		err = admin.CreateTopic(ctx, *what.create)
		if errors.Is(err, kerr.TopicAlreadyExists) {
			return outcome{exists: true, again: afterRequest} // The metadata will tell.
		}
		made = err == nil
	case what.grow != nil:
		err = admin.GrowTopic(ctx, topic, what.grow.count, what.grow.assignments)
		made = err == nil
	case what.alter != nil:
		err = admin.AlterTopicConfig(ctx, topic, what.alter.set, what.alter.remove)
	default:
		return outcome{}
	}
	var refusal *cluster.RefusedError
	switch {
	case errors.As(err, &refusal):
		return outcome{refused: refusal, again: afterRefusal}
	case err != nil:
		log.FromContext(ctx).Info("the cluster did not answer a request", "topic", topic, "error", err.Error())
		return outcome{again: afterFailure}
	default:
		return outcome{made: made, again: afterRequest}
	}
}
