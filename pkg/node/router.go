package node

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
	"github.com/highwater-io/highwater/pkg/quorum/raft/rpc"
	"github.com/highwater-io/highwater/pkg/wire"
)

// brokerRouter serves the INTERNAL and EXTERNAL listeners of a data node.
type brokerRouter struct {
	broker *broker
	quorum *quorum
}

// Handle is wire.Handler's.
func (h *brokerRouter) Handle(req *wire.Request) {
	b := h.broker
	switch body := req.Body.(type) {
	case *kmsg.ProduceRequest:
		b.produce(req)
	case *kmsg.FetchRequest:
		if asksForMetadataLog(body) && req.Listener == wire.Internal {
			h.quorum.call(req)
			return
		}
		b.fetch(req)
	case *kmsg.ListOffsetsRequest:
		b.listOffsets(req)
	case *kmsg.DeleteRecordsRequest:
		b.deleteRecords(req)
	case *kmsg.MetadataRequest:
		b.metadataRequest(req)
	case *kmsg.OffsetForLeaderEpochRequest:
		b.offsetForLeaderEpoch(req)
	case *kmsg.InitProducerIDRequest:
		b.initProducerID(req)
	case *kmsg.DescribeConfigsRequest:
		b.describeConfigs(req)
	case *kmsg.DescribeClusterRequest:
		b.describeCluster(req)
	case *kmsg.FindCoordinatorRequest:
		findCoordinator(req, body)
	default:
		if operation, ok := forwarded[kmsg.Key(req.Key)]; ok {
			if !req.Authorize(operation, wire.ClusterResource) {
				req.Reply(refusal(req.Body, kerr.ClusterAuthorizationFailed))
				return
			}
			b.forward(req)
			return
		}
		req.Fail(errNotRouted(req))
	}
}

// forwarded are the requests that the active controller decides and any data node passes on, with what a caller
// must be allowed to do.
var forwarded = map[kmsg.Key]wire.Operation{
	kmsg.CreateTopics:            wire.OpCreate,
	kmsg.DeleteTopics:            wire.OpDelete,
	kmsg.CreatePartitions:        wire.OpAlter,
	kmsg.IncrementalAlterConfigs: wire.OpAlterConfigs,
	kmsg.ElectLeaders:            wire.OpAlter,
	kmsg.UnregisterBroker:        wire.OpAlter,
	kmsg.DescribeQuorum:          wire.OpDescribe,
	kmsg.AddRaftVoter:            wire.OpAlter,
	kmsg.RemoveRaftVoter:         wire.OpAlter,
}

// controllerRouter serves the CONTROLLER listener of a voter.
type controllerRouter struct {
	cfg        Config
	quorum     *quorum
	controller *controllerLoop
}

// Handle is wire.Handler's.
func (h *controllerRouter) Handle(req *wire.Request) {
	switch body := req.Body.(type) {
	case *kmsg.FetchRequest, *kmsg.VoteRequest, *kmsg.BeginQuorumEpochRequest, *kmsg.EndQuorumEpochRequest,
		*kmsg.FetchSnapshotRequest, *kmsg.UpdateRaftVoterRequest:
		h.quorum.call(req)
	case *kmsg.AddRaftVoterRequest, *kmsg.RemoveRaftVoterRequest:
		if !req.Authorize(wire.OpAlter, wire.ClusterResource) {
			req.Reply(rpc.Refuse(req.Body, raft.ClusterAuthorizationFailed))
			return
		}
		h.quorum.call(req)
	case *kmsg.DescribeQuorumRequest:
		req.Reply(h.quorum.describe(body))
	case *kmsg.DescribeClusterRequest:
		req.Reply(h.describeCluster(body))
	case *kmsg.DescribeConfigsRequest:
		req.Reply(refuseConfigs(body))
	case *kmsg.EnvelopeRequest:
		h.envelope(req, body)
	default:
		h.controller.handle(req.Body, req.Reply)
	}
}

// asksForMetadataLog says whether a fetch is one of the metadata log, which raft answers.
func asksForMetadataLog(body *kmsg.FetchRequest) bool {
	for i := range body.Topics {
		if body.Topics[i].Topic == ident.MetadataTopic || ident.UUID(body.Topics[i].TopicID) == ident.MetadataTopicID {
			return true
		}
	}
	return false
}

// describeCluster lists the controllers, or, when asked, the brokers with the endpoints that the caller can use.
func (h *controllerRouter) describeCluster(body *kmsg.DescribeClusterRequest) *kmsg.DescribeClusterResponse {
	if body.Version >= 1 && body.EndpointType == 1 {
		resp := kmsg.NewPtrDescribeClusterResponse()
		resp.ErrorCode = kerr.MismatchedEndpointType.Code
		resp.ErrorMessage = kmsg.StringPtr("this listener belongs to a controller; ask a broker's listener for brokers")
		return resp
	}
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.ClusterID, resp.EndpointType = h.cfg.Shared.ClusterID.String(), 2
	resp.ControllerID = int32(h.quorum.leader())
	for _, v := range h.quorum.voterEndpoints() {
		broker := kmsg.NewDescribeClusterResponseBroker()
		broker.NodeID, broker.Host, broker.Port = int32(v.id), v.host, v.port
		resp.Brokers = append(resp.Brokers, broker)
	}
	return resp
}

// refuseConfigs sends whoever asks a controller for topic configurations to the brokers.
func refuseConfigs(body *kmsg.DescribeConfigsRequest) *kmsg.DescribeConfigsResponse {
	resp := kmsg.NewPtrDescribeConfigsResponse()
	for _, asked := range body.Resources {
		r := kmsg.NewDescribeConfigsResponseResource()
		r.ResourceType, r.ResourceName = asked.ResourceType, asked.ResourceName
		r.ErrorCode = kerr.InvalidRequest.Code
		r.ErrorMessage = kmsg.StringPtr("ask a broker for topic configurations")
		resp.Resources = append(resp.Resources, r)
	}
	return resp
}
