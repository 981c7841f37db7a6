// Command benchlog runs the benchmarks of the log's path (append, read, look-up, roll, recovery, group commit of
// flushes, sending) and prints them as a table; with -write it also puts the table into docs/benchmarks.md. What it
// measures is no assertion: the allocation bounds are, and those are tests.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"
)

const (
	page  = "docs/benchmarks.md"
	begin = "<!-- begin: make bench-log -->"
	end   = "<!-- end: make bench-log -->"
)

func main() {
	write := flag.Bool("write", false, "put the table into "+page)
	benchtime := flag.String("benchtime", "300ms", "how long each benchmark runs")
	flag.Parse()
	if err := run(*write, *benchtime); err != nil {
		fmt.Fprintln(os.Stderr, "benchlog:", err)
		os.Exit(1)
	}
}

func run(write bool, benchtime string) error {
	var out bytes.Buffer
	test := exec.Command("go", "test", "-run", "^$", "-count", "1", "-benchtime", benchtime, "-benchmem",
		"-bench", "^Benchmark(AppendAs|Read|LookUp|Roll|Recovery|Send|FlushGroupCommit)", "./pkg/log", "./pkg/wire", "./pkg/node/exec")
	test.Stdout, test.Stderr = &out, os.Stderr
	if err := test.Run(); err != nil {
		return fmt.Errorf("the benchmarks: %w\n%s", err, out.Bytes())
	}
	rows := parse(out.Bytes())
	if len(rows) == 0 {
		return fmt.Errorf("no benchmark ran:\n%s", out.Bytes())
	}
	text := table(rows)
	fmt.Print(text)
	if !write {
		return nil
	}
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	from, to := bytes.Index(old, []byte(begin)), bytes.Index(old, []byte(end))
	if from < 0 || to < from {
		return errors.New(page + " has no place for the table")
	}
	var fresh bytes.Buffer
	fresh.Write(old[:from+len(begin)])
	fresh.WriteString("\n" + text)
	fresh.Write(old[to:])
	return os.WriteFile(page, fresh.Bytes(), 0o644)
}

// row is one benchmark: the values by their units.
type row struct {
	name   string
	values map[string]string
}

var line = regexp.MustCompile(`^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)

func parse(out []byte) []row {
	var rows []row
	for scanner := bufio.NewScanner(bytes.NewReader(out)); scanner.Scan(); {
		m := line.FindStringSubmatch(scanner.Text())
		if m == nil {
			continue
		}
		r := row{m[1], map[string]string{}}
		fields := strings.Fields(m[2])
		for i := 0; i+1 < len(fields); i += 2 {
			r.values[fields[i+1]] = fields[i]
		}
		rows = append(rows, r)
	}
	return rows
}

func table(rows []row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured on %s: %s.\n\n", time.Now().UTC().Format("2006-01-02"), machine())
	b.WriteString("| benchmark | ns/op | MB/s | records/flush | B/op | allocs/op |\n|---|---:|---:|---:|---:|---:|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s |", r.name)
		for _, unit := range []string{"ns/op", "MB/s", "records/flush", "B/op", "allocs/op"} {
			fmt.Fprintf(&b, " %s |", r.values[unit])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// machine describes where this ran.
func machine() string {
	model := "unknown processor"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if m := regexp.MustCompile(`(?m)^model name\s*:\s*(.+)$`).FindSubmatch(info); m != nil {
			model = strings.TrimSpace(string(m[1]))
		}
	}
	kernel := runtime.GOOS
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel += " " + strings.TrimSpace(string(release))
	}
	load := ""
	if avg, err := os.ReadFile("/proc/loadavg"); err == nil {
		load = ", load average " + strings.Fields(string(avg))[0] + " at the end"
	}
	return fmt.Sprintf("%d cores of %s, %s, %s, files in %s%s", runtime.NumCPU(), model, kernel, runtime.Version(), os.TempDir(), load)
}
