package wire

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/pkg/buffer"
)

// Handler gets every request that passed framing, version and decoding checks. Handle is called in the order
// of arrival on the connection's reading goroutine: it starts the work and returns soon; the answer may come
// later from any goroutine. The next request of the connection is read when Handle has returned, so work that
// depends on the order (appends) is done before that.
type Handler interface {
	Handle(*Request)
}

// HandlerFunc makes a function a Handler.
type HandlerFunc func(*Request)

// Handle calls f.
func (f HandlerFunc) Handle(r *Request) { f(r) }

// Request is one request to be answered exactly once, by Reply, ReplyRaw, NoReply or Fail.
type Request struct {
	Header
	Listener   Listener
	Principal  Principal
	RemoteAddr net.Addr
	// Body is valid until the request is answered or ReleaseBody is called: byte slices in it alias the
	// connection's buffer.
	Body kmsg.Request
	// Received is when the request's first bytes were there.
	Received time.Time

	ctx        context.Context
	authorizer Authorizer
	answered   atomic.Bool
	bodySize   int64
	frame      *buffer.Buffer // what Body's bytes lie in; nil when the garbage collector has them
	frameSize  int64
	// giveBack returns bytes to the listener's budget, finish takes the answer; both are the connection's (or
	// those of the request that this one was embedded in).
	giveBack func(int64)
	finish   func(*Request, outgoing)

	// The rest belongs to the connection and is guarded by its mutex.
	out   outgoing
	ready bool
}

// outgoing is an answer on its way: prefix holds length, header and, for messages encoded whole, the body.
type outgoing struct {
	prefix  []byte
	pooled  *buffer.Buffer
	body    *Response
	failure error
	silent  bool
}

func (o *outgoing) size() int64 {
	n := int64(len(o.prefix))
	if o.body != nil {
		n += o.body.Size()
	}
	return n
}

func (o *outgoing) release() {
	o.body.release()
	o.body = nil
	if o.pooled != nil {
		o.pooled.Release()
		o.pooled, o.prefix = nil, nil
	}
}

// Context ends when the connection is gone: nobody will read the answer then. The answer must still be given.
// context.AfterFunc on it is the way to drop a parked fetch early.
func (r *Request) Context() context.Context { return r.ctx }

// Authorize asks the listener's Authorizer about the request's principal.
func (r *Request) Authorize(op Operation, on Resource) bool {
	return r.authorizer.Authorize(r.Principal, op, on)
}

// Reply answers with a message, whose version is set to the request's. The message is encoded before Reply
// returns.
func (r *Request) Reply(resp kmsg.Response) {
	if resp.Key() != r.Key {
		panic(fmt.Sprintf("wire: %s answered by a %s", kmsg.NameForKey(r.Key), kmsg.NameForKey(resp.Key())))
	}
	r.take()
	buf := buffer.Get(0)
	buf.B = append(buf.B, 0, 0, 0, 0)
	buf.B = AppendResponse(buf.B, r.Header, resp)
	out := outgoing{prefix: buf.B, pooled: buf}
	if size := int64(len(buf.B)) - 4; size > math.MaxInt32 {
		out.failure = fmt.Errorf("response of %d bytes to %s doesn't fit a frame", size, kmsg.NameForKey(r.Key))
	} else {
		binary.BigEndian.PutUint32(buf.B, uint32(size))
	}
	r.finish(r, out)
}

// ReplyRaw answers with a body that is already encoded in the request's version. The response is released
// when it was written or can't be any more.
func (r *Request) ReplyRaw(resp *Response) {
	r.take()
	buf := buffer.Get(0)
	buf.B = append(buf.B, 0, 0, 0, 0)
	buf.B = appendResponseHeader(buf.B, r.CorrelationID, flexibleResponseHeader(r.Key, r.Body.IsFlexible()))
	out := outgoing{prefix: buf.B, pooled: buf, body: resp}
	if size := out.size() - 4; size > math.MaxInt32 {
		out.failure = fmt.Errorf("response of %d bytes to %s doesn't fit a frame", size, kmsg.NameForKey(r.Key))
	} else {
		binary.BigEndian.PutUint32(buf.B, uint32(size))
	}
	r.finish(r, out)
}

// NoReply ends a request that gets no answer: Produce with acks=0.
func (r *Request) NoReply() {
	r.take()
	r.finish(r, outgoing{silent: true})
}

// Fail closes the connection for a reason that is logged. It is for what Kafka answers by closing, as a
// failed Produce with acks=0.
func (r *Request) Fail(err error) {
	r.take()
	r.finish(r, outgoing{failure: err})
}

// ReleaseBody says that Body is no longer needed although the answer is still to come (a produce that was
// appended and waits for its followers), so that its bytes don't count as buffered and serve another request: those
// of Body's byte slices may change from then on. It may be called more than once.
func (r *Request) ReleaseBody() {
	if n := atomic.SwapInt64(&r.bodySize, 0); n > 0 {
		if r.frame != nil {
			r.frame.Release()
			r.frame = nil
		}
		r.giveBack(n)
	}
}

// take asserts that the request is answered once: a second answer would be read as that of another request.
func (r *Request) take() {
	if !r.answered.CompareAndSwap(false, true) {
		panic(fmt.Sprintf("wire: %s request %d was answered twice", kmsg.NameForKey(r.Key), r.CorrelationID))
	}
	r.ReleaseBody()
}

// NewRequest makes a request that didn't come over a connection of its own, as one from an Envelope. done
// gets the answer (header and body, without the length in front), nil for NoReply, or the error that would
// have closed the connection; once, maybe from another goroutine. Listener, RemoteAddr and Received are the
// caller's to set.
func NewRequest(ctx context.Context, h Header, body kmsg.Request, p Principal, a Authorizer, done func([]byte, error)) *Request {
	if a == nil {
		a = AllowAll{}
	}
	return &Request{
		Header: h, Principal: p, Body: body, Received: time.Now(), ctx: ctx, authorizer: a,
		giveBack: func(int64) {},
		finish: func(_ *Request, out outgoing) {
			defer out.release()
			switch {
			case out.failure != nil:
				done(nil, out.failure)
			case out.silent:
				done(nil, nil)
			case out.body != nil:
				done(out.body.AppendTo(append([]byte(nil), out.prefix[4:]...)))
			default:
				done(append([]byte(nil), out.prefix[4:]...), nil)
			}
		},
	}
}
