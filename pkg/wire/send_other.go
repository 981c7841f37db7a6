//go:build !linux

package wire

import (
	"errors"
	"io"
	"net"
	"os"
)

func sendFileRange(conn *net.TCPConn, file *os.File, offset, length int64) error {
	buf := make([]byte, min(length, copyStep))
	for length > 0 {
		n, err := file.ReadAt(buf[:min(length, copyStep)], offset)
		if n == 0 {
			if err == nil || errors.Is(err, io.EOF) {
				err = errShortFile
			}
			return err
		}
		if _, err := conn.Write(buf[:n]); err != nil {
			return err
		}
		offset, length = offset+int64(n), length-int64(n)
	}
	return nil
}

func setCork(*net.TCPConn, bool) {}
