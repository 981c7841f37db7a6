package benchpage

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

// GoBench is a set of Go benchmarks to run: those of the packages whose names match.
type GoBench struct {
	Pattern   string
	Packages  []string
	Benchtime string // of go test
	Units     []string
}

// Run runs the benchmarks and returns a row for each, with a column for each of the units.
func (g GoBench) Run(ctx context.Context) (*Table, error) {
	var out bytes.Buffer
	args := append([]string{"test", "-run", "^$", "-count", "1", "-benchtime", g.Benchtime, "-benchmem", "-bench", g.Pattern}, g.Packages...)
	test := exec.CommandContext(ctx, "go", args...)
	test.Stdout, test.Stderr = &out, os.Stderr
	if err := test.Run(); err != nil {
		return nil, fmt.Errorf("the benchmarks: %w\n%s", err, out.Bytes())
	}
	t := &Table{Columns: append([]string{"benchmark"}, g.Units...), Rows: parse(out.Bytes(), g.Units)}
	if len(t.Rows) == 0 {
		return nil, fmt.Errorf("no benchmark ran:\n%s", out.Bytes())
	}
	return t, nil
}

var line = regexp.MustCompile(`^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)

// parse reads the output of go test -bench.
func parse(out []byte, units []string) [][]string {
	var rows [][]string
	for scanner := bufio.NewScanner(bytes.NewReader(out)); scanner.Scan(); {
		m := line.FindStringSubmatch(scanner.Text())
		if m == nil {
			continue
		}
		values := map[string]string{}
		fields := strings.Fields(m[2])
		for i := 0; i+1 < len(fields); i += 2 {
			values[fields[i+1]] = fields[i]
		}
		row := []string{m[1]}
		for _, unit := range units {
			row = append(row, values[unit])
		}
		rows = append(rows, row)
	}
	return rows
}
