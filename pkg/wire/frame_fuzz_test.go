package wire

import (
	"io"
	"log/slog"
	"net"
	"testing"
	"time"
)

// FuzzConnection: whatever bytes a client sends, the connection ends, nothing panics, and the budget of
// buffered bytes is given back.
func FuzzConnection(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff})
	f.Add([]byte{0, 0, 0, 10, 0, 18, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 8, 0, 1})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0})
	const budget = 1 << 16
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := NewServer(ServerConfig{
			Listener: External, MaxRequestBytes: 1 << 12, MaxBufferedBytes: budget, Log: slog.New(slog.DiscardHandler),
			Handler: HandlerFunc(func(r *Request) { r.Reply(r.Body.ResponseKind()) }),
			OnPanic: func(_ *Request, v any, stack []byte) { t.Errorf("panic: %v\n%s", v, stack) },
		})
		if err != nil {
			t.Fatal(err)
		}
		client, server := net.Pipe()
		s.ServeConn(server)
		read := make(chan struct{})
		go func() { _, _ = io.Copy(io.Discard, client); close(read) }()
		_ = client.SetWriteDeadline(time.Now().Add(5 * time.Second))
		_, _ = client.Write(b)
		client.Close()
		<-read
		s.Close()
		if !s.budget.TryAcquire(budget) {
			t.Fatal("some of the budget was not given back")
		}
	})
}
