package controllers_test

import (
	"bytes"
	"log/slog"

	. "github.com/onsi/ginkgo/v2"
)

// testLog writes to Ginkgo, which shows it for specs that fail, and looks for refusals.
func testLog() slog.Handler {
	return slog.NewTextHandler(logWriter{}, &slog.HandlerOptions{Level: slog.LevelInfo})
}

type logWriter struct{}

func (logWriter) Write(p []byte) (int, error) {
	noteForbidden(string(bytes.TrimSpace(p)))
	return GinkgoWriter.Write(p)
}
