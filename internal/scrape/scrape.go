// Package scrape reads single metrics of a node for tests and proofs, which want one number and no time series.
package scrape

import (
	"bufio"
	"context"
	"errors"
	"fmt"
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

// Value asks the HTTP listener at host:port for the value of one metric. The name is as in Prometheus' text format: with
// its labels in braces when it has some.
func Value(ctx context.Context, address, name string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("read the metrics of %s: %w", address, err)
	}
	return 0, fmt.Errorf("%s of %s: %w", name, address, ErrAbsent)
}
