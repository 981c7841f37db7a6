package wire

import (
	"encoding/binary"
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// principalVersion is the version of the serialised principal (DefaultPrincipalData).
const principalVersion = 0

// NewEnvelope wraps a request of a client for the active controller (KIP-590). clientAddr may be nil.
func NewEnvelope(h Header, body kmsg.Request, p Principal, clientAddr net.Addr) *kmsg.EnvelopeRequest {
	env := kmsg.NewPtrEnvelopeRequest()
	env.RequestData = AppendRequest(nil, h, body)
	data := kmsg.NewDefaultPrincipalData()
	data.Version, data.Type, data.Name = principalVersion, p.Type, p.Name
	env.RequestPrincipal = data.AppendTo(nil) // the version comes first, and kmsg writes it
	env.ClientHostAddress = []byte{127, 0, 0, 1}
	if tcp, ok := clientAddr.(*net.TCPAddr); ok {
		if ip4 := tcp.IP.To4(); ip4 != nil {
			env.ClientHostAddress = ip4
		} else if ip := tcp.IP.To16(); ip != nil {
			env.ClientHostAddress = ip
		}
	}
	return env
}

// OpenEnvelope decodes the request inside an Envelope and the principal that it was made for. table says
// which keys may be forwarded: that of the controller's listener, which has the admin keys. Errors are those
// of ParseRequest.
func OpenEnvelope(env *kmsg.EnvelopeRequest, table VersionTable) (Header, kmsg.Request, Principal, error) {
	if len(env.RequestPrincipal) < 2 {
		return Header{}, nil, Principal{}, fmt.Errorf("%w: envelope without principal", ErrMalformed)
	}
	if v := binary.BigEndian.Uint16(env.RequestPrincipal); v != principalVersion {
		return Header{}, nil, Principal{}, fmt.Errorf("%w: principal version %d in an envelope, want %d", ErrMalformed, v, principalVersion)
	}
	data := kmsg.NewDefaultPrincipalData()
	if err := readBody(&data, env.RequestPrincipal); err != nil {
		return Header{}, nil, Principal{}, fmt.Errorf("%w: principal in an envelope: %w", ErrMalformed, err)
	}
	h, body, err := ParseRequest(env.RequestData, table)
	return h, body, Principal{Type: data.Type, Name: data.Name}, err
}
