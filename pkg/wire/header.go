package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Header is the header of a request (versions 1 and 2).
type Header struct {
	Key, Version  int16
	CorrelationID int32
	// ClientID is nil when the client sent null.
	ClientID *string
}

// fixedHeaderSize is the part of a request header that every version has: key, version, correlation id.
const fixedHeaderSize = 8

// Why a request was refused before any handler saw it. Kafka closes the connection for each of them.
var (
	// ErrUnknownKey is a key that this listener doesn't serve.
	ErrUnknownKey = errors.New("api key is not served on this listener")
	// ErrUnsupportedVersion is a version outside the listener's table. Only ApiVersions gets an answer.
	ErrUnsupportedVersion = errors.New("version is not served on this listener")
	// ErrMalformed is a frame that can't be decoded.
	ErrMalformed = errors.New("malformed request")
	// ErrTooLarge is a frame above the listener's limit.
	ErrTooLarge = errors.New("request is too large")
)

// flexibleResponseHeader says whether the response header of (key, version) has tagged fields. ApiVersions
// never has: the client doesn't know yet what the server speaks (KIP-511).
func flexibleResponseHeader(key int16, flexible bool) bool {
	return flexible && key != int16(kmsg.ApiVersions)
}

// parseFixedHeader reads what all header versions begin with. b has at least fixedHeaderSize bytes.
func parseFixedHeader(b []byte) Header {
	return Header{
		Key:           int16(binary.BigEndian.Uint16(b)),
		Version:       int16(binary.BigEndian.Uint16(b[2:])),
		CorrelationID: int32(binary.BigEndian.Uint32(b[4:])),
	}
}

// ParseRequest decodes a request (header and body, without the length in front) that table allows. Byte
// slices in the body alias b; strings are copies. Errors wrap ErrUnknownKey, ErrUnsupportedVersion (then the
// header is returned as far as all versions share it) or ErrMalformed. Bytes behind the body are ignored, as
// Kafka does.
func ParseRequest(b []byte, table VersionTable) (h Header, body kmsg.Request, err error) {
	if len(b) < fixedHeaderSize {
		return h, nil, fmt.Errorf("%w: %d bytes are less than a header", ErrMalformed, len(b))
	}
	h = parseFixedHeader(b)
	allowed, ok := table.Lookup(h.Key)
	if !ok {
		return h, nil, fmt.Errorf("%w: key %d", ErrUnknownKey, h.Key)
	}
	if h.Version < allowed.Min || h.Version > allowed.Max {
		return h, nil, fmt.Errorf("%w: %s version %d, want %d to %d", ErrUnsupportedVersion,
			kmsg.NameForKey(h.Key), h.Version, allowed.Min, allowed.Max)
	}
	body = kmsg.RequestForKey(h.Key)
	if body == nil {
		return h, nil, fmt.Errorf("%w: key %d", ErrUnknownKey, h.Key)
	}
	body.SetVersion(h.Version)

	r := kbin.Reader{Src: b[fixedHeaderSize:]}
	h.ClientID = r.NullableString()
	if body.IsFlexible() {
		for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
			r.Uvarint()
			r.Span(int(r.Uvarint()))
		}
	}
	if err := r.Complete(); err != nil {
		return h, nil, fmt.Errorf("%w: header of %s version %d: %w", ErrMalformed, kmsg.NameForKey(h.Key), h.Version, err)
	}
	if err := readBody(body, r.Src); err != nil {
		return h, nil, fmt.Errorf("%w: body of %s version %d: %w", ErrMalformed, kmsg.NameForKey(h.Key), h.Version, err)
	}
	return h, body, nil
}

// readBody decodes bytes of a stranger. A panic of the generated decoder is the stranger's fault, not ours:
// it touched nothing but the message.
func readBody(m interface{ ReadFrom([]byte) error }, b []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decoder panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return m.ReadFrom(b)
}

// AppendRequest appends a request without the length in front: header version 2 when the body is flexible,
// else 1. The body's own version counts, not h.Version; a null client id is sent as such.
func AppendRequest(dst []byte, h Header, body kmsg.Request) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(body.Key()))
	dst = binary.BigEndian.AppendUint16(dst, uint16(body.GetVersion()))
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.CorrelationID))
	dst = kbin.AppendNullableString(dst, h.ClientID)
	if body.IsFlexible() {
		dst = append(dst, 0)
	}
	return body.AppendTo(dst)
}

// AppendResponse appends a response without the length in front, in the version of the request it answers.
func AppendResponse(dst []byte, h Header, resp kmsg.Response) []byte {
	resp.SetVersion(h.Version)
	dst = appendResponseHeader(dst, h.CorrelationID, flexibleResponseHeader(resp.Key(), resp.IsFlexible()))
	return resp.AppendTo(dst)
}

func appendResponseHeader(dst []byte, correlationID int32, flexible bool) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if flexible {
		dst = append(dst, 0)
	}
	return dst
}

// ParseResponse decodes a response (header and body, without the length in front) into resp, whose version is
// set, and returns its correlation id. Byte slices of resp alias b.
func ParseResponse(b []byte, resp kmsg.Response) (correlationID int32, err error) {
	r := kbin.Reader{Src: b}
	correlationID = r.Int32()
	if flexibleResponseHeader(resp.Key(), resp.IsFlexible()) {
		for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
			r.Uvarint()
			r.Span(int(r.Uvarint()))
		}
	}
	if err := r.Complete(); err != nil {
		return 0, fmt.Errorf("header of the %s response: %w", kmsg.NameForKey(resp.Key()), err)
	}
	if err := readBody(resp, r.Src); err != nil {
		return 0, fmt.Errorf("%s response version %d: %w", kmsg.NameForKey(resp.Key()), resp.GetVersion(), err)
	}
	return correlationID, nil
}
