package rpc

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/ident"
	"github.com/highwater-io/highwater/pkg/quorum/raft"
)

// kraftVersion is the version of the quorum's own protocol that a voter must know: voters in the log (KIP-853).
const kraftVersion = raft.KRaftVersion

// featureKRaft is the feature by which nodes tell which versions of it they know: metadata.FeatureKRaft, which this
// package does not know.
const featureKRaft = "kraft.version"

// apiVersionsRequest asks in words that KIP-511 takes.
func apiVersionsRequest() *kmsg.ApiVersionsRequest {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "highwater-quorum", "1"
	return req
}

func fillAPIVersions(r *kmsg.ApiVersionsResponse, m *raft.KRaftVersionsResponse) {
	r.ErrorCode = int16(m.Code)
	feature := kmsg.NewApiVersionsResponseSupportedFeature()
	feature.Name, feature.MinVersion, feature.MaxVersion = featureKRaft, m.Min, m.Max
	r.SupportedFeatures = append(r.SupportedFeatures, feature)
}

func fromAPIVersions(r *kmsg.ApiVersionsResponse) *raft.KRaftVersionsResponse {
	m := &raft.KRaftVersionsResponse{Code: raft.Code(r.ErrorCode)}
	for _, feature := range r.SupportedFeatures {
		if feature.Name == featureKRaft {
			m.Min, m.Max = feature.MinVersion, feature.MaxVersion
		}
	}
	return m
}

func addVoterRequest(m *raft.AddVoterRequest) *kmsg.AddRaftVoterRequest {
	req := kmsg.NewPtrAddRaftVoterRequest()
	req.ClusterID = clusterID(m.ClusterID)
	req.TimeoutMillis = int32(m.Timeout.Milliseconds())
	req.VoterID, req.VoterDirectoryID = int32(m.Voter.Key.ID), m.Voter.Key.DirectoryID
	req.AckWhenCommitted = !m.AckAppended
	for _, e := range m.Voter.Endpoints {
		l := kmsg.NewAddRaftVoterRequestListener()
		l.Name, l.Host, l.Port = e.Name, e.Host, e.Port
		req.Listeners = append(req.Listeners, l)
	}
	return req
}

func fromAddVoter(req *kmsg.AddRaftVoterRequest) raft.Message {
	m := &raft.AddVoterRequest{
		ClusterID:   stringOf(req.ClusterID),
		Voter:       raft.Voter{Key: raft.ReplicaKey{ID: ident.NodeID(req.VoterID), DirectoryID: req.VoterDirectoryID}},
		AckAppended: req.Version >= 1 && !req.AckWhenCommitted,
		Timeout:     time.Duration(req.TimeoutMillis) * time.Millisecond,
	}
	for _, l := range req.Listeners {
		m.Voter.Endpoints = append(m.Voter.Endpoints, raft.Endpoint{Name: l.Name, Host: l.Host, Port: l.Port})
	}
	return m
}

func removeVoterRequest(m *raft.RemoveVoterRequest) *kmsg.RemoveRaftVoterRequest {
	req := kmsg.NewPtrRemoveRaftVoterRequest()
	req.ClusterID = clusterID(m.ClusterID)
	req.VoterID, req.VoterDirectoryID = int32(m.Voter.ID), m.Voter.DirectoryID
	return req
}

func fromRemoveVoter(req *kmsg.RemoveRaftVoterRequest) raft.Message {
	return &raft.RemoveVoterRequest{
		ClusterID: stringOf(req.ClusterID),
		Voter:     raft.ReplicaKey{ID: ident.NodeID(req.VoterID), DirectoryID: req.VoterDirectoryID},
	}
}

func updateVoterRequest(m *raft.UpdateVoterRequest) *kmsg.UpdateRaftVoterRequest {
	req := kmsg.NewPtrUpdateRaftVoterRequest()
	req.ClusterID = clusterID(m.ClusterID)
	req.CurrentLeaderEpoch = int32(m.Epoch)
	req.VoterID, req.VoterDirectoryID = int32(m.Voter.Key.ID), m.Voter.Key.DirectoryID
	for _, e := range m.Voter.Endpoints {
		l := kmsg.NewUpdateRaftVoterRequestListener()
		l.Name, l.Host, l.Port = e.Name, e.Host, e.Port
		req.Listeners = append(req.Listeners, l)
	}
	req.KRaftVersionFeature.MaxSupportedVersion = kraftVersion
	return req
}

// fromUpdateVoter returns nil for a voter that does not know the version in use.
func fromUpdateVoter(req *kmsg.UpdateRaftVoterRequest) raft.Message {
	if f := req.KRaftVersionFeature; f.MinSupportedVersion > kraftVersion || f.MaxSupportedVersion < kraftVersion {
		return nil
	}
	m := &raft.UpdateVoterRequest{
		ClusterID: stringOf(req.ClusterID),
		Epoch:     ident.Epoch(req.CurrentLeaderEpoch),
		Voter:     raft.Voter{Key: raft.ReplicaKey{ID: ident.NodeID(req.VoterID), DirectoryID: req.VoterDirectoryID}},
	}
	for _, l := range req.Listeners {
		m.Voter.Endpoints = append(m.Voter.Endpoints, raft.Endpoint{Name: l.Name, Host: l.Host, Port: l.Port})
	}
	return m
}

// fillChangeVoters fills the response to any of the three requests; false when it is another one.
func fillChangeVoters(resp kmsg.Response, m *raft.ChangeVotersResponse) bool {
	var message *string
	if m.Message != "" {
		message = &m.Message
	}
	switch r := resp.(type) {
	case *kmsg.AddRaftVoterResponse:
		r.ErrorCode, r.ErrorMessage = int16(m.Code), message
	case *kmsg.RemoveRaftVoterResponse:
		r.ErrorCode, r.ErrorMessage = int16(m.Code), message
	case *kmsg.UpdateRaftVoterResponse:
		r.ErrorCode = int16(m.Code)
		r.CurrentLeader.LeaderID, r.CurrentLeader.LeaderEpoch = int32(m.Current.Leader), int32(m.Current.Epoch)
		if e, ok := endpoint(m.Current); ok {
			r.CurrentLeader.Host, r.CurrentLeader.Port = e.Host, int32(e.Port)
		}
	default:
		return false
	}
	return true
}

func fromChangeVoters(resp kmsg.Response) (raft.Message, error) {
	m := &raft.ChangeVotersResponse{Current: nothing}
	switch r := resp.(type) {
	case *kmsg.AddRaftVoterResponse:
		m.Code, m.Message = raft.Code(r.ErrorCode), stringOf(r.ErrorMessage)
	case *kmsg.RemoveRaftVoterResponse:
		m.Code, m.Message = raft.Code(r.ErrorCode), stringOf(r.ErrorMessage)
	case *kmsg.UpdateRaftVoterResponse:
		m.Code = raft.Code(r.ErrorCode)
		m.Current = withEndpoint(current(r.CurrentLeader.LeaderID, r.CurrentLeader.LeaderEpoch),
			r.CurrentLeader.LeaderID, r.CurrentLeader.Host, r.CurrentLeader.Port)
	}
	return m, unsupported(int16(m.Code))
}
