//go:build !linux

package wire

import (
	"net"
	"os"
)

func sendFileRange(conn *net.TCPConn, file *os.File, offset, length int64) error {
	return copyFileRange(conn, file, offset, length)
}

func setCork(*net.TCPConn, bool) {}
