package batch

import (
	"encoding/binary"
	"fmt"

	"github.com/highwater-io/highwater/pkg/ident"
)

// ControlType is the kind of a control record; it stands in the record's key.
type ControlType int16

// Control types: transaction markers (KIP-98) and the raft layer's records (KIP-595, 630, 853).
const (
	Abort ControlType = iota
	Commit
	LeaderChangeType
	SnapshotHeaderType
	SnapshotFooterType
	KRaftVersionType
	VotersType
)

func (t ControlType) key() []byte {
	return binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(t))
}

// ParseControlType reads the key of a control record.
func ParseControlType(key []byte) (ControlType, error) {
	if len(key) < 4 {
		return 0, fmt.Errorf("%w: control record key of %d bytes", ErrCorrupt, len(key))
	}
	return ControlType(binary.BigEndian.Uint16(key[2:])), nil
}

// VoterKey names a voter in LeaderChange. The directory id is written from version 1 on.
type VoterKey struct {
	ID          ident.NodeID
	DirectoryID ident.UUID
}

// LeaderChange is what a new quorum leader writes first: LeaderChangeMessage, versions 0 and 1.
type LeaderChange struct {
	Version  int16
	LeaderID ident.NodeID
	Voters   []VoterKey
	Granting []VoterKey // the voters that voted for it
}

// Encode returns the record's value.
func (m LeaderChange) Encode() []byte {
	var w writer
	w.int16(m.Version)
	w.int32(int32(m.LeaderID))
	for _, keys := range [][]VoterKey{m.Voters, m.Granting} {
		w.count(len(keys))
		for _, k := range keys {
			w.int32(int32(k.ID))
			if m.Version >= 1 {
				w.bytes(k.DirectoryID[:])
			}
			w.tags()
		}
	}
	w.tags()
	return w.b
}

// DecodeLeaderChange reads what Encode writes.
func DecodeLeaderChange(value []byte) (LeaderChange, error) {
	r := reader{b: value}
	m := LeaderChange{Version: r.version(1), LeaderID: ident.NodeID(r.int32())}
	for _, keys := range []*[]VoterKey{&m.Voters, &m.Granting} {
		for range r.count(5) {
			k := VoterKey{ID: ident.NodeID(r.int32())}
			if m.Version >= 1 {
				k.DirectoryID = r.uuid()
			}
			r.tags()
			*keys = append(*keys, k)
		}
	}
	return m, r.finish("LeaderChange")
}

// SnapshotHeader is the first record of a snapshot: SnapshotHeaderRecord, version 0.
type SnapshotHeader struct {
	LastContainedLogTimestamp int64 // ms since 1970
}

// Encode returns the record's value.
func (m SnapshotHeader) Encode() []byte {
	var w writer
	w.int16(0)
	w.int64(m.LastContainedLogTimestamp)
	w.tags()
	return w.b
}

// DecodeSnapshotHeader reads what Encode writes.
func DecodeSnapshotHeader(value []byte) (SnapshotHeader, error) {
	r := reader{b: value}
	r.version(0)
	m := SnapshotHeader{LastContainedLogTimestamp: r.int64()}
	return m, r.finish("SnapshotHeader")
}

// SnapshotFooter is the last record of a snapshot: SnapshotFooterRecord, version 0.
type SnapshotFooter struct{}

// Encode returns the record's value.
func (SnapshotFooter) Encode() []byte {
	var w writer
	w.int16(0)
	w.tags()
	return w.b
}

// DecodeSnapshotFooter reads what Encode writes.
func DecodeSnapshotFooter(value []byte) (SnapshotFooter, error) {
	r := reader{b: value}
	r.version(0)
	return SnapshotFooter{}, r.finish("SnapshotFooter")
}

// KRaftVersion tells the version of the raft protocol in force: KRaftVersionRecord, version 0.
type KRaftVersion struct {
	KRaftVersion int16
}

// Encode returns the record's value.
func (m KRaftVersion) Encode() []byte {
	var w writer
	w.int16(0)
	w.int16(m.KRaftVersion)
	w.tags()
	return w.b
}

// DecodeKRaftVersion reads what Encode writes.
func DecodeKRaftVersion(value []byte) (KRaftVersion, error) {
	r := reader{b: value}
	r.version(0)
	m := KRaftVersion{KRaftVersion: r.int16()}
	return m, r.finish("KRaftVersion")
}

// VoterEndpoint is a listener of a voter.
type VoterEndpoint struct {
	Name string
	Host string
	Port uint16
}

// Voter is one member of a voter set.
type Voter struct {
	ID          ident.NodeID
	DirectoryID ident.UUID
	Endpoints   []VoterEndpoint
	// The kraft.version range that the voter supports.
	MinKRaftVersion, MaxKRaftVersion int16
}

// Voters is the voter set from this record on: VotersRecord, version 0 (KIP-853).
type Voters struct {
	Voters []Voter
}

// Encode returns the record's value.
func (m Voters) Encode() []byte {
	var w writer
	w.int16(0)
	w.count(len(m.Voters))
	for _, v := range m.Voters {
		w.int32(int32(v.ID))
		w.bytes(v.DirectoryID[:])
		w.count(len(v.Endpoints))
		for _, e := range v.Endpoints {
			w.string(e.Name)
			w.string(e.Host)
			w.int16(int16(e.Port))
			w.tags()
		}
		w.int16(v.MinKRaftVersion)
		w.int16(v.MaxKRaftVersion)
		w.tags() // of the version range
		w.tags()
	}
	w.tags()
	return w.b
}

// DecodeVoters reads what Encode writes.
func DecodeVoters(value []byte) (Voters, error) {
	r := reader{b: value}
	r.version(0)
	var m Voters
	for range r.count(27) {
		v := Voter{ID: ident.NodeID(r.int32()), DirectoryID: r.uuid()}
		for range r.count(5) {
			e := VoterEndpoint{Name: r.string(), Host: r.string(), Port: uint16(r.int16())}
			r.tags()
			v.Endpoints = append(v.Endpoints, e)
		}
		v.MinKRaftVersion, v.MaxKRaftVersion = r.int16(), r.int16()
		r.tags()
		r.tags()
		m.Voters = append(m.Voters, v)
	}
	return m, r.finish("Voters")
}
