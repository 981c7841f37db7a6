// Package scrape reads the metrics of a node for tests and proofs, which want one number or text and no time series.
package scrape

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ErrAbsent is the error of a metric that is not there: a name that nobody serves, or labels that nothing was counted
// for yet.
var ErrAbsent = errors.New("there is no such metric")

// timeout bounds one request.
const timeout = 5 * time.Second

// Text asks the HTTP listener at host:port for all metrics, in Prometheus' text format.
func Text(ctx context.Context, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", fmt.Errorf("read the metrics of %s: %w", address, err)
	}
	return string(body), nil
}

// Value asks the HTTP listener at host:port for the value of one metric. The name is as in Prometheus' text format: with
// its labels in braces when it has some.
func Value(ctx context.Context, address, name string) (float64, error) {
	text, err := Text(ctx, address)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("%s of %s: %w", name, address, ErrAbsent)
}
