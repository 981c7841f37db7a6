package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	begin  = `{"verb":"get","user":{"username":"admin"},"objectRef":{"resource":"configmaps","name":"begin"}}`
	end    = `{"verb":"get","user":{"username":"admin"},"objectRef":{"resource":"configmaps","name":"end"}}`
	lease  = `{"verb":"update","user":{"username":"` + operatorUser + `"},"objectRef":{"resource":"leases","apiGroup":"coordination.k8s.io","name":"l"}}`
	look   = `{"verb":"watch","user":{"username":"` + operatorUser + `"},"objectRef":{"resource":"pods"}}`
	status = `{"verb":"patch","user":{"username":"` + operatorUser + `"},"objectRef":{"resource":"partitions","subresource":"status","namespace":"default","name":"orders"}}`
	other  = `{"verb":"update","user":{"username":"system:apiserver"},"objectRef":{"resource":"leases"}}`
)

func TestAWriteBetweenTheMarksIsFound(t *testing.T) {
	for name, test := range map[string]struct {
		lines []string
		want  string // of the error; empty for none
	}{
		"quiet":                        {[]string{status, begin, lease, look, other, end, status}, ""},
		"a status is written":          {[]string{begin, lease, other, status, end}, "wrote 1 times"},
		"the operator does not run":    {[]string{begin, other, end}, "renewed no Lease"},
		"nobody else asks":             {[]string{begin, lease, end}, "nobody else"},
		"the begin is not in the log":  {[]string{lease, other, end}, "began"},
		"the log stops before the end": {[]string{begin, lease, other}, "ended"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "audit.log")
			if err := os.WriteFile(file, []byte(strings.Join(test.lines, "\n")+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			found, err := read(file, "begin", "end")
			if err == nil {
				err = found.verdict()
			}
			switch {
			case test.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}
