package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/highwater-io/highwater/internal/localkube"
	"github.com/highwater-io/highwater/test/devcluster"
)

const controllerListener = "CONTROLLER"

// tap stands in the links on which one node asks the voters, and reads Kafka's protocol as it passes: it sees each piece
// of a snapshot and each vote that the node asks for, carries so many bytes of a snapshot a second, stops at a byte, and
// changes one.
type tap struct {
	remote *localkube.Remote
	pod    string // whose links these are
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	listeners []net.Listener
	conns     map[net.Conn]bool
	rate      int64 // bytes of snapshots a second; 0 is no limit
	passed    int64 // bytes of snapshots, of all downloads
	gate      *gate
	flips     []int64 // where in a download a byte is changed, each once
	seen      seen
	wrong     error // what the node did on the wire that it must not
}

// gate tells when so many bytes of snapshots have passed. One that is shut lets nothing more of them through then.
type gate struct {
	at      int64
	shut    bool
	reached chan struct{}
	server  string // who sent the byte at which it is
}

// seen is what passed.
type seen struct {
	pieces, downloads int
	bytes             int64
	flipped           int
	votes             int // that the node asked for
	preVotes          int
	last              download
}

// download is what the node was sent of one snapshot in one go.
type download struct {
	server   string
	snapshot string
	epoch    int32
	size     int64
	content  []byte

	beyondFirst bool // a piece that is not the first has come
}

func (d *download) whole() bool { return d.size > 0 && int64(len(d.content)) == d.size }

// openTap puts a tap into the links from a pod to the voters.
func openTap(ctx context.Context, remote *localkube.Remote, pod string, voters []string) (*tap, error) {
	t := &tap{remote: remote, pod: pod, conns: map[net.Conn]bool{}}
	t.ctx, t.cancel = context.WithCancel(ctx)
	for _, voter := range voters {
		if voter == pod {
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, errors.Join(err, t.close())
		}
		t.listeners = append(t.listeners, l)
		t.wg.Go(func() { t.accept(l, voter) })
		err = remote.Fault(ctx, localkube.FaultRequest{
			Action: "via", From: participant(pod), To: participant(voter), Listener: controllerListener, Via: l.Addr().String(),
		})
		if err != nil {
			return nil, errors.Join(err, t.close())
		}
	}
	return t, nil
}

// participant names a pod also while it does not run.
func participant(pod string) string { return devcluster.Namespace + "/" + pod }

// close takes the tap out of the links.
func (t *tap) close() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), 10*time.Second)
	defer cancel()
	err := t.remote.Fault(ctx, localkube.FaultRequest{Action: "heal", From: participant(t.pod), To: "*", Listener: controllerListener})
	t.cancel()
	t.mu.Lock()
	for _, l := range t.listeners {
		l.Close()
	}
	for c := range t.conns {
		c.Close()
	}
	t.mu.Unlock()
	t.wg.Wait()
	return err
}

// slow carries so many bytes of snapshots a second from now on.
func (t *tap) slow(rate int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rate = rate
}

// await tells when so many more bytes of snapshots have passed, and stops the transfer there if it is to.
func (t *tap) await(more int64, shut bool) *gate {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gate = &gate{at: t.passed + more, shut: shut, reached: make(chan struct{})}
	return t.gate
}

// flip changes a byte at each of these positions of a snapshot, one in each download.
func (t *tap) flip(positions ...int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flips = positions
}

// look returns what passed until now, and an error when the node did what it must not.
func (t *tap) look() (seen, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.seen
	s.last.content = bytes.Clone(s.last.content)
	return s, t.wrong
}

func (t *tap) keep(c net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		c.Close()
		return false
	}
	t.conns[c] = true
	return true
}

func (t *tap) drop(c net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
	c.Close()
}

func (t *tap) accept(l net.Listener, voter string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		if !t.keep(client) {
			return
		}
		t.wg.Go(func() { t.serve(client, voter) })
	}
}

// asked is a request that waits for its answer.
type asked struct {
	key, version int16
}

// maxFrame bounds what is taken for a request or an answer.
const maxFrame = 64 << 20

func (t *tap) serve(client net.Conn, voter string) {
	defer t.drop(client)
	ctx, cancel := context.WithTimeout(t.ctx, 5*time.Second)
	defer cancel()
	address, err := t.remote.PodAddress(ctx, devcluster.Namespace, voter, "controller")
	if err != nil {
		return
	}
	server, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil || !t.keep(server) {
		return
	}
	defer t.drop(server)
	waiting := make(chan asked, 1024)
	var both sync.WaitGroup
	both.Go(func() {
		defer server.Close()
		defer close(waiting)
		t.requests(server, client, waiting)
	})
	both.Go(func() {
		defer client.Close()
		t.answers(client, server, waiting, voter)
	})
	both.Wait()
}

func readFrame(r io.Reader) ([]byte, error) {
	frame := make([]byte, 4)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(frame)
	if size > maxFrame {
		return nil, fmt.Errorf("a frame of %d bytes", size)
	}
	frame = append(frame, make([]byte, size)...)
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}

// requests carries what the node asks.
func (t *tap) requests(dst io.Writer, src io.Reader, waiting chan<- asked) {
	in := bufio.NewReader(src)
	for {
		frame, err := readFrame(in)
		if err != nil || len(frame) < 12 {
			return
		}
		a := asked{int16(binary.BigEndian.Uint16(frame[4:])), int16(binary.BigEndian.Uint16(frame[6:]))}
		if a.key == int16(kmsg.Vote) {
			t.vote(a.version, frame)
		}
		select {
		case waiting <- a:
		case <-t.ctx.Done():
			return
		}
		if _, err := dst.Write(frame); err != nil {
			return
		}
	}
}

// vote notes that the node asked for a vote. It is there whole in a version 2: where the body begins does not matter.
func (t *tap) vote(version int16, frame []byte) {
	req := kmsg.NewPtrVoteRequest()
	req.Version = version
	client := int(int16(binary.BigEndian.Uint16(frame[12:])))
	body := 14 + max(client, 0) + 1 // the header's tags: none
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := req.ReadFrom(frame[min(body, len(frame)):]); err != nil {
		t.fail(fmt.Errorf("%s asked for a vote that can't be read: %w", t.pod, err))
		return
	}
	for _, topic := range req.Topics {
		for _, p := range topic.Partitions {
			if p.PreVote {
				t.seen.preVotes++
			} else {
				t.seen.votes++
			}
		}
	}
}

// fail keeps the first thing that was wrong. The caller holds the lock.
func (t *tap) fail(err error) {
	if t.wrong == nil {
		t.wrong = err
	}
}

// answers carries what the node is told.
func (t *tap) answers(dst io.Writer, src io.Reader, waiting <-chan asked, voter string) {
	in := bufio.NewReaderSize(src, 64<<10)
	for {
		frame, err := readFrame(in)
		if err != nil {
			return
		}
		a, ok := <-waiting
		if !ok {
			return
		}
		if a.key == int16(kmsg.FetchSnapshot) {
			err = t.piece(dst, frame, a.version, voter)
		} else {
			_, err = dst.Write(frame)
		}
		if err != nil {
			return
		}
	}
}

// piece carries the answer to a FetchSnapshot.
func (t *tap) piece(dst io.Writer, frame []byte, version int16, voter string) error {
	const header = 4 + 4 + 1 // size, correlation id, no tags
	resp := kmsg.NewPtrFetchSnapshotResponse()
	resp.Version = version
	if err := resp.ReadFrom(frame[min(header, len(frame)):]); err != nil {
		return t.broken(fmt.Errorf("%s answered with a piece of a snapshot that can't be read: %w", voter, err))
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || len(resp.Topics[0].Partitions[0].Bytes) == 0 {
		_, err := dst.Write(frame)
		return err
	}
	p := &resp.Topics[0].Partitions[0]
	// The bytes are a part of the frame: one that is changed shows where.
	before := bytes.Clone(frame)
	p.Bytes[0] ^= 0xff
	start := 0
	for frame[start] == before[start] {
		start++
	}
	p.Bytes[0] ^= 0xff
	if err := t.arrange(p, voter); err != nil {
		return t.broken(err)
	}
	if _, err := dst.Write(frame[:start]); err != nil {
		return err
	}
	if err := t.carry(dst, p.Bytes, voter); err != nil {
		return err
	}
	if _, err := dst.Write(frame[start+len(p.Bytes):]); err != nil {
		return err
	}
	t.arrived(p, voter)
	return nil
}

func (t *tap) broken(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fail(err)
	return err
}

// arrange looks whether the piece is one that the node may ask for, and changes a byte when it is time.
func (t *tap) arrange(p *kmsg.FetchSnapshotResponseTopicPartition, voter string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	d, id := &t.seen.last, snapshotName(p.SnapshotID.EndOffset, p.SnapshotID.Epoch)
	if p.Position > 0 {
		// What one leader sent in one epoch is continued with nobody else, and from where it ended.
		if d.server != voter || d.snapshot != id || d.epoch != p.CurrentLeader.LeaderEpoch || p.Position > int64(len(d.content)) {
			return fmt.Errorf("%s asked %s in epoch %d for snapshot %s from byte %d; it had %d bytes of %s from %s in epoch %d",
				t.pod, voter, p.CurrentLeader.LeaderEpoch, id, p.Position, len(d.content), d.snapshot, d.server, d.epoch)
		}
	}
	if len(t.flips) > 0 {
		if at := t.flips[0] - p.Position; at >= 0 && at < int64(len(p.Bytes)) {
			p.Bytes[at] ^= 0x10
			t.flips = t.flips[1:]
			t.seen.flipped++
		}
	}
	return nil
}

// carry writes bytes of a snapshot at the pace that was set, up to the gate.
func (t *tap) carry(dst io.Writer, data []byte, voter string) error {
	const slice = 8 << 10
	for len(data) > 0 {
		t.mu.Lock()
		n, rate, g := int64(min(len(data), slice)), t.rate, t.gate
		if g != nil {
			if left := g.at - t.passed; left > 0 {
				n = min(n, left)
			} else {
				g.reach(voter)
				if g.shut {
					t.mu.Unlock()
					return t.stopped(g)
				}
			}
		}
		t.mu.Unlock()
		if rate > 0 && !t.pause(time.Duration(n)*time.Second/time.Duration(rate)) {
			return t.ctx.Err()
		}
		if _, err := dst.Write(data[:n]); err != nil {
			return err
		}
		data = data[n:]
		t.mu.Lock()
		t.passed += n
		t.seen.bytes += n
		if g != nil && t.gate == g && t.passed >= g.at {
			g.reach(voter)
		}
		t.mu.Unlock()
	}
	return nil
}

// reach tells who waits. The caller holds the tap's lock.
func (g *gate) reach(voter string) {
	select {
	case <-g.reached:
	default:
		g.server = voter
		close(g.reached)
	}
}

// stopped lets nothing through until the gate is taken away, and then ends the connection.
func (t *tap) stopped(g *gate) error {
	for {
		t.mu.Lock()
		over := t.gate != g
		t.mu.Unlock()
		if over || !t.pause(10*time.Millisecond) {
			return errors.New("the transfer was stopped")
		}
	}
}

func (t *tap) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.ctx.Done():
		return false
	}
}

// awaitWhole tells when a whole snapshot has passed.
func (t *tap) awaitWhole() *gate { return t.await(math.MaxInt64/2, false) }

// open takes the gate away.
func (t *tap) open() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gate = nil
}

// arrived notes a piece that passed whole.
func (t *tap) arrived(p *kmsg.FetchSnapshotResponseTopicPartition, voter string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen.pieces++
	d := &t.seen.last
	if p.Position == 0 {
		begun := download{server: voter, snapshot: snapshotName(p.SnapshotID.EndOffset, p.SnapshotID.Epoch), epoch: p.CurrentLeader.LeaderEpoch}
		// The first piece may come twice: late, and asked for again.
		if d.server != begun.server || d.snapshot != begun.snapshot || d.epoch != begun.epoch || d.beyondFirst {
			t.seen.downloads++
		}
		*d = begun
	}
	d.size, d.beyondFirst = p.Size, p.Position > 0
	d.content = append(d.content[:p.Position], p.Bytes...)
	if d.whole() && t.gate != nil {
		t.gate.reach(voter)
	}
}

// snapshotName is how Kafka names a snapshot.
func snapshotName(end int64, epoch int32) string { return fmt.Sprintf("%020d-%010d", end, epoch) }
