package node

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/vfs"
	"github.com/highwater-io/highwater/pkg/wire"
)

// forwardedRequests are requests of every forwarded kind, each about one thing, with where its answer has its code.
func forwardedRequests() map[kmsg.Request]func(kmsg.Response) int16 {
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Topics = append(create.Topics, kmsg.CreateTopicsRequestTopic{Topic: "orders"})
	remove := kmsg.NewPtrDeleteTopicsRequest()
	remove.TopicNames = []string{"orders"} // before version 6
	remove.Topics = append(remove.Topics, kmsg.DeleteTopicsRequestTopic{Topic: kmsg.StringPtr("orders")})
	grow := kmsg.NewPtrCreatePartitionsRequest()
	grow.Topics = append(grow.Topics, kmsg.CreatePartitionsRequestTopic{Topic: "orders", Count: 2})
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	alter.Resources = append(alter.Resources, kmsg.IncrementalAlterConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "orders"})
	elect := kmsg.NewPtrElectLeadersRequest()
	elect.Topics = append(elect.Topics, kmsg.ElectLeadersRequestTopic{Topic: "orders", Partitions: []int32{0}})
	unregister := kmsg.NewPtrUnregisterBrokerRequest()
	describe := kmsg.NewPtrDescribeQuorumRequest()
	addVoter, removeVoter := kmsg.NewPtrAddRaftVoterRequest(), kmsg.NewPtrRemoveRaftVoterRequest()
	all := map[kmsg.Request]func(kmsg.Response) int16{
		create:     func(r kmsg.Response) int16 { return r.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode },
		remove:     func(r kmsg.Response) int16 { return r.(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode },
		grow:       func(r kmsg.Response) int16 { return r.(*kmsg.CreatePartitionsResponse).Topics[0].ErrorCode },
		alter:      func(r kmsg.Response) int16 { return r.(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode },
		elect:      func(r kmsg.Response) int16 { return r.(*kmsg.ElectLeadersResponse).ErrorCode },
		unregister: func(r kmsg.Response) int16 { return r.(*kmsg.UnregisterBrokerResponse).ErrorCode },
		describe:   func(r kmsg.Response) int16 { return r.(*kmsg.DescribeQuorumResponse).ErrorCode },

		addVoter:    func(r kmsg.Response) int16 { return r.(*kmsg.AddRaftVoterResponse).ErrorCode },
		removeVoter: func(r kmsg.Response) int16 { return r.(*kmsg.RemoveRaftVoterResponse).ErrorCode },
	}
	for req := range all {
		row, _ := wire.TableFor(wire.External).Lookup(req.Key())
		req.SetVersion(row.Max)
	}
	return all
}

func TestRefusalPutsTheCodeWhereEachKindHasIt(t *testing.T) {
	seen := map[kmsg.Key]bool{}
	for req, code := range forwardedRequests() {
		key := kmsg.Key(req.Key())
		seen[key] = true
		resp := refusal(req, kerr.ClusterAuthorizationFailed)
		if resp.Key() != req.Key() {
			t.Errorf("%s is answered by a %s", key.Name(), kmsg.NameForKey(resp.Key()))
		} else if got := code(resp); got != kerr.ClusterAuthorizationFailed.Code {
			t.Errorf("%s: code %d", key.Name(), got)
		}
		// What a controller that is not in charge answers must be told from a decision: the data node tries the next.
		other := notControllerAnswer(req)
		switch r := other.(type) { // these are the quorum's, which calls it otherwise
		case *kmsg.DescribeQuorumResponse:
			topic, p := kmsg.NewDescribeQuorumResponseTopic(), kmsg.NewDescribeQuorumResponseTopicPartition()
			p.ErrorCode = kerr.NotLeaderForPartition.Code
			topic.Partitions = append(topic.Partitions, p)
			r.Topics = append(r.Topics, topic)
		case *kmsg.AddRaftVoterResponse:
			r.ErrorCode = kerr.NotLeaderForPartition.Code
		case *kmsg.RemoveRaftVoterResponse:
			r.ErrorCode = kerr.NotLeaderForPartition.Code
		}
		if !isNotController(other) || isNotController(resp) {
			t.Errorf("%s: NOT_CONTROLLER is not recognised", key.Name())
		}
	}
	for key := range forwarded {
		if !seen[key] {
			t.Errorf("%s is forwarded and not looked at here", key.Name())
		}
	}
}

func TestForwardedRequestWithoutAControllerIsAnsweredInTime(t *testing.T) {
	b := newTestBroker(t, vfs.NewMem())
	for req, code := range forwardedRequests() {
		switch r := req.(type) {
		case *kmsg.CreateTopicsRequest:
			r.TimeoutMillis = 150
		case *kmsg.DeleteTopicsRequest:
			r.TimeoutMillis = 150
		default:
			continue
		}
		started := time.Now()
		answer := <-b.ask(t.Context(), b.forward, req)
		if got := code(answer); got != kerr.NotController.Code {
			t.Errorf("%s: code %d", kmsg.NameForKey(req.Key()), got)
		}
		if took := time.Since(started); took < 150*time.Millisecond {
			t.Errorf("%s was given up after %v", kmsg.NameForKey(req.Key()), took)
		}
	}
	// A client that went away is not waited for.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for req := range forwardedRequests() {
		<-b.ask(gone, b.forward, req)
	}
}
