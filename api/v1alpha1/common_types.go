package v1alpha1

// MetadataPosition is a place in a cluster's metadata log.
type MetadataPosition struct {
	// epoch is the quorum's leader epoch in which the record was written.
	// +required
	Epoch int32 `json:"epoch"`

	// offset is the record's offset.
	// +required
	Offset int64 `json:"offset"`
}

// Duration is a length of time as Go and CEL write it: 500ms, 30s, 1h30m.
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:MinLength=2
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
type Duration string
