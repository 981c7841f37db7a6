package wire

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// sendFileRange sends by sendfile with an explicit offset, so that many connections share one open file; the
// standard library's way moves the file's own position. It waits by the connection's write deadline.
func sendFileRange(conn *net.TCPConn, file *os.File, offset, length int64) error {
	socket, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	source, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	// Control holds the file open meanwhile, should somebody close it.
	held := source.Control(func(src uintptr) {
		waited := socket.Write(func(dst uintptr) bool {
			for length > 0 {
				n, err := unix.Sendfile(int(dst), int(src), &offset, int(length))
				switch {
				case n > 0:
					length -= int64(n)
				case errors.Is(err, unix.EINTR):
				case errors.Is(err, unix.EAGAIN):
					return false
				case err != nil:
					failed = os.NewSyscallError("sendfile", err)
					return true
				default:
					failed = errShortFile
					return true
				}
			}
			return true
		})
		if failed == nil {
			failed = waited
		}
	})
	if held != nil {
		return held
	}
	return failed
}

// setCork holds back partly filled packets, or lets them go. It is a matter of speed only, so that an error
// doesn't count.
func setCork(conn *net.TCPConn, on bool) {
	socket, err := conn.SyscallConn()
	if err != nil {
		return
	}
	value := 0
	if on {
		value = 1
	}
	_ = socket.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_CORK, value) })
}
