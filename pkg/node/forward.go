package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/wire"
)

// forwardTimeout bounds a forwarded request whose body names no time-out of its own.
const forwardTimeout = 15 * time.Second

// forward passes an admin request to the active controller in an Envelope, with the caller's principal (KIP-590).
// It tries again while nobody is in charge or the controller can't be reached; a request whose answer was lost is
// not repeated, since it may have been carried out: the client is told NOT_CONTROLLER and decides.
func (b *broker) forward(req *wire.Request) {
	timeout := forwardTimeout
	if t, ok := req.Body.(kmsg.TimeoutRequest); ok && t.Timeout() > 0 {
		timeout = time.Duration(t.Timeout()) * time.Millisecond
	}
	// Made now: the body's bytes are the connection's.
	envelope := wire.NewEnvelope(req.Header, req.Body, req.Principal, req.RemoteAddr)
	go func() {
		ctx, cancel := context.WithTimeout(req.Context(), timeout)
		defer cancel()
		resp, err := b.forwardUntilDecided(ctx, req, envelope)
		if err != nil {
			b.logger.Info("forwarding to the controller failed", "api", kmsg.NameForKey(req.Key), "error", err)
			resp = refusal(req.Body, kerr.NotController)
		}
		req.Reply(resp)
	}()
}

func (b *broker) forwardUntilDecided(ctx context.Context, req *wire.Request, envelope *kmsg.EnvelopeRequest) (kmsg.Response, error) {
	for {
		_, changed := b.controllers.current()
		resp, err := b.forwardOnce(ctx, req, envelope)
		if !errors.Is(err, errNoController) && !errors.Is(err, kerr.NotController) && !refused(err) {
			return resp, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w, last: %w", ctx.Err(), err)
		case <-changed:
		case <-time.After(b.cfg.Timing.RetryBackoff):
		}
	}
}

func (b *broker) forwardOnce(ctx context.Context, req *wire.Request, envelope *kmsg.EnvelopeRequest) (kmsg.Response, error) {
	lane := laneAdmin
	switch req.Body.(type) {
	case *kmsg.AddRaftVoterRequest, *kmsg.RemoveRaftVoterRequest:
		lane = laneVoters // it waits for a majority of other voters
	}
	answer, err := b.controllers.requestFor(ctx, lane, forwardTimeout, envelope)
	if err != nil {
		return nil, err
	}
	opened, ok := answer.(*kmsg.EnvelopeResponse)
	if !ok {
		return nil, errors.New("the controller answered Envelope with something else")
	}
	if err := kerr.ErrorForCode(opened.ErrorCode); err != nil {
		return nil, err
	}
	resp := req.Body.ResponseKind()
	resp.SetVersion(req.Version)
	if _, err := wire.ParseResponse(opened.ResponseData, resp); err != nil {
		return nil, fmt.Errorf("the answer inside the envelope: %w", err)
	}
	return resp, nil
}

// envelope decides a request that a data node forwarded, for the principal that stands in the envelope.
func (h *controllerRouter) envelope(req *wire.Request, body *kmsg.EnvelopeRequest) {
	resp := kmsg.NewPtrEnvelopeResponse()
	if !req.Authorize(wire.OpClusterAction, wire.ClusterResource) {
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		req.Reply(resp)
		return
	}
	header, inner, principal, err := wire.OpenEnvelope(body, wire.TableFor(wire.Controller))
	if err != nil {
		resp.ErrorCode = kerr.InvalidRequest.Code
		if errors.Is(err, wire.ErrUnsupportedVersion) {
			resp.ErrorCode = kerr.UnsupportedVersion.Code
		}
		req.Reply(resp)
		return
	}
	embedded := wire.NewRequest(req.Context(), header, inner, principal, nil, func(raw []byte, err error) {
		if err != nil {
			resp.ErrorCode = kerr.UnknownServerError.Code
		}
		resp.ResponseData = raw
		req.Reply(resp)
	})
	embedded.Listener, embedded.RemoteAddr, embedded.Received = req.Listener, req.RemoteAddr, req.Received
	answer := func(answer kmsg.Response) {
		if isNotController(answer) {
			// The outer code, so that the data node tries the new leader (KIP-590).
			resp.ErrorCode = kerr.NotController.Code
			req.Reply(resp)
			return
		}
		embedded.Reply(answer)
	}
	switch inner := inner.(type) {
	case *kmsg.DescribeQuorumRequest:
		answer(h.quorum.describe(inner))
	case *kmsg.AddRaftVoterRequest, *kmsg.RemoveRaftVoterRequest:
		h.quorum.ask(inner, answer, embedded.Fail)
	default:
		if _, ok := forwarded[kmsg.Key(header.Key)]; !ok {
			resp.ErrorCode = kerr.InvalidRequest.Code
			req.Reply(resp)
			return
		}
		h.controller.handle(inner, answer)
	}
}

// isNotController says whether an answer as a whole says that this controller is not in charge; of what the quorum
// itself answers, that this voter does not lead it.
func isNotController(answer kmsg.Response) bool {
	switch a := answer.(type) {
	case *kmsg.DescribeQuorumResponse:
		return len(a.Topics) > 0 && len(a.Topics[0].Partitions) > 0 && a.Topics[0].Partitions[0].ErrorCode == kerr.NotLeaderForPartition.Code
	case *kmsg.AddRaftVoterResponse:
		return a.ErrorCode == kerr.NotLeaderForPartition.Code
	case *kmsg.RemoveRaftVoterResponse:
		return a.ErrorCode == kerr.NotLeaderForPartition.Code
	}
	codes := codesOf(answer)
	return len(codes) > 0 && *codes[0] == kerr.NotController.Code
}

// refusal answers a forwarded request with one code in every place where its kind has one.
func refusal(body kmsg.Request, code *kerr.Error) kmsg.Response {
	resp := notControllerAnswer(body)
	for _, at := range codesOf(resp) {
		if *at == kerr.NotController.Code || *at == 0 {
			*at = code.Code
		}
	}
	return resp
}

// codesOf finds the error codes of an answer to a forwarded request.
func codesOf(answer kmsg.Response) []*int16 {
	var codes []*int16
	switch a := answer.(type) {
	case *kmsg.CreateTopicsResponse:
		for i := range a.Topics {
			codes = append(codes, &a.Topics[i].ErrorCode)
		}
	case *kmsg.DeleteTopicsResponse:
		for i := range a.Topics {
			codes = append(codes, &a.Topics[i].ErrorCode)
		}
	case *kmsg.CreatePartitionsResponse:
		for i := range a.Topics {
			codes = append(codes, &a.Topics[i].ErrorCode)
		}
	case *kmsg.IncrementalAlterConfigsResponse:
		for i := range a.Resources {
			codes = append(codes, &a.Resources[i].ErrorCode)
		}
	case *kmsg.ElectLeadersResponse:
		codes = append(codes, &a.ErrorCode)
	case *kmsg.UnregisterBrokerResponse:
		codes = append(codes, &a.ErrorCode)
	case *kmsg.DescribeQuorumResponse:
		codes = append(codes, &a.ErrorCode)
	case *kmsg.AddRaftVoterResponse:
		codes = append(codes, &a.ErrorCode)
	case *kmsg.RemoveRaftVoterResponse:
		codes = append(codes, &a.ErrorCode)
	}
	return codes
}

func errNotRouted(req *wire.Request) error {
	return fmt.Errorf("%s is in the version table of %s and has no handler", kmsg.NameForKey(req.Key), req.Listener)
}
