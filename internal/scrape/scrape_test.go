package scrape

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestValueIsThatOfTheWholeName(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			fmt.Fprint(w, "# HELP log_bytes log_bytes 9\nlog_bytes_total 7\nlog_bytes{dir=\"a\"} 5\nlog_bytes 1.5e+06\nlog_odd x\n")
		}
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	for name, want := range map[string]float64{"log_bytes": 1.5e6, "log_bytes_total": 7, `log_bytes{dir="a"}`: 5} {
		if got, err := Value(t.Context(), address, name); err != nil || got != want {
			t.Errorf("%s is %v, %v; want %v", name, got, err, want)
		}
	}
	if _, err := Value(t.Context(), address, `log_bytes{dir="b"}`); !errors.Is(err, ErrAbsent) {
		t.Errorf("what is not there: %v", err)
	}
	if _, err := Value(t.Context(), address, "log_odd"); err == nil || errors.Is(err, ErrAbsent) {
		t.Errorf("what is no number: %v", err)
	}
	server.Close()
	if _, err := Value(t.Context(), address, "log_bytes"); err == nil || errors.Is(err, ErrAbsent) {
		t.Errorf("nobody listens: %v", err)
	}
}
