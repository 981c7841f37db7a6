package wire

import (
	"regexp"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Feature is a feature level range, as ApiVersions names it (KIP-584).
type Feature struct {
	Name     string
	Min, Max int16
}

// Features are what a node supports and what its cluster has finalized.
type Features struct {
	Supported []Feature
	Finalized []Feature
	// FinalizedEpoch is the metadata offset that Finalized was read at, -1 when nothing is known.
	FinalizedEpoch int64
}

// clientSoftware is the form that KIP-511 asks of a client's name and version.
var clientSoftware = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)

// apiVersions answers a request whose version is in the table.
func apiVersions(req *kmsg.ApiVersionsRequest, table VersionTable, f Features) *kmsg.ApiVersionsResponse {
	resp := kmsg.NewPtrApiVersionsResponse()
	if req.Version >= 3 && (!clientSoftware.MatchString(req.ClientSoftwareName) || !clientSoftware.MatchString(req.ClientSoftwareVersion)) {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp
	}
	for _, row := range table {
		key := kmsg.NewApiVersionsResponseApiKey()
		key.ApiKey, key.MinVersion, key.MaxVersion = row.Key, row.AdvertisedMin, row.Max
		resp.ApiKeys = append(resp.ApiKeys, key)
	}
	for _, supported := range f.Supported {
		s := kmsg.NewApiVersionsResponseSupportedFeature()
		s.Name, s.MinVersion, s.MaxVersion = supported.Name, supported.Min, supported.Max
		if req.Version < 4 && s.MinVersion == 0 {
			s.MinVersion = 1 // Clients before version 4 can't decode a minimum of 0 (KAFKA-17011).
		}
		resp.SupportedFeatures = append(resp.SupportedFeatures, s)
	}
	resp.FinalizedFeaturesEpoch = f.FinalizedEpoch
	if f.FinalizedEpoch >= 0 {
		for _, finalized := range f.Finalized {
			e := kmsg.NewApiVersionsResponseFinalizedFeature()
			e.Name, e.MinVersionLevel, e.MaxVersionLevel = finalized.Name, finalized.Min, finalized.Max
			resp.FinalizedFeatures = append(resp.FinalizedFeatures, e)
		}
	}
	return resp
}

// unsupportedAPIVersions is what a client gets that asked in a version above ours: the answer in version 0,
// which everybody can read, with the range to try again in.
func unsupportedAPIVersions(table VersionTable) *kmsg.ApiVersionsResponse {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = kerr.UnsupportedVersion.Code
	if row, ok := table.Lookup(int16(kmsg.ApiVersions)); ok {
		key := kmsg.NewApiVersionsResponseApiKey()
		key.ApiKey, key.MinVersion, key.MaxVersion = row.Key, row.AdvertisedMin, row.Max
		resp.ApiKeys = append(resp.ApiKeys, key)
	}
	return resp
}
