// Command benchlog runs the benchmarks of the log's path (append, read, look-up, roll, recovery, group commit of
// flushes, sending) and prints them as a table; with -write it also puts the table into docs/benchmarks.md. What it
// measures is no assertion: the allocation bounds are, and those are tests.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/highwater-io/highwater/internal/benchpage"
)

func main() {
	write := flag.Bool("write", false, "put the table into "+benchpage.Page)
	benchtime := flag.String("benchtime", "300ms", "how long each benchmark runs")
	flag.Parse()
	if err := run(*write, *benchtime); err != nil {
		fmt.Fprintln(os.Stderr, "benchlog:", err)
		os.Exit(1)
	}
}

func run(write bool, benchtime string) error {
	table, err := benchpage.GoBench{
		Pattern:   "^Benchmark(AppendAs|Read|LookUp|Roll|Recovery|Send|FlushGroupCommit)",
		Packages:  []string{"./pkg/log", "./pkg/wire", "./pkg/node/exec"},
		Benchtime: benchtime,
		Units:     []string{"ns/op", "MB/s", "records/flush", "B/op", "allocs/op"},
	}.Run(context.Background())
	if err != nil {
		return err
	}
	text := benchpage.Measured() + table.String()
	fmt.Print(text)
	if !write {
		return nil
	}
	return benchpage.Write("bench-log", text)
}
