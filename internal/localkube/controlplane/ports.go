package controlplane

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/highwater-io/highwater/internal/localkube/ports"
)

// pickPort returns a port of 127.0.0.1 that is free now: the one in file when it still is, else a random one,
// which is then written to file.
func pickPort(file string) (int, error) {
	if data, err := os.ReadFile(file); err == nil {
		if port, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && free(port) {
			return port, nil
		}
	}
	for range 100 {
		port := ports.ControlPlane.Draw()
		if free(port) {
			return port, os.WriteFile(file, []byte(strconv.Itoa(port)+"\n"), 0o644)
		}
	}
	return 0, fmt.Errorf("no free port on 127.0.0.1 between %d and %d for %s", ports.ControlPlane.First, ports.ControlPlane.Last, filepath.Base(file))
}

func free(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	l.Close()
	return true
}
