// Package benchpage is what the benchmark programs share: running Go benchmarks, tables, the machine's description, and
// the place in docs/benchmarks.md that each of them writes.
package benchpage

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// Page is where the tables stand, from the root of the repository.
const Page = "docs/benchmarks.md"

// Write puts text between the marks of a make target, <!-- begin: make TARGET --> and <!-- end: make TARGET -->.
func Write(target, text string) error {
	old, err := os.ReadFile(Page)
	if err != nil {
		return err
	}
	fresh, err := replace(old, target, text)
	if err != nil {
		return err
	}
	return os.WriteFile(Page, fresh, 0o644)
}

func replace(old []byte, target, text string) ([]byte, error) {
	begin, end := fmt.Sprintf("<!-- begin: make %s -->\n", target), fmt.Sprintf("<!-- end: make %s -->", target)
	before, rest, found := bytes.Cut(old, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !found || !closed {
		return nil, fmt.Errorf("%s has no place for the table of make %s", Page, target)
	}
	return bytes.Join([][]byte{before, []byte(begin), []byte(text), []byte(end), after}, nil), nil
}

// Measured is the line above a table: when and where. It is called at the end, since it tells the load.
func Measured() string {
	return fmt.Sprintf("Measured on %s: %s.\n\n", time.Now().UTC().Format("2006-01-02"), machine())
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
	return fmt.Sprintf("%d cores of %s, %s, %s, files on %s%s", runtime.NumCPU(), model, kernel, runtime.Version(), fileSystem(os.TempDir()), load)
}

// fileSystem is the type of file system that holds the directory.
func fileSystem(dir string) string {
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return "an unknown file system"
	}
	return mounted(string(mounts), dir)
}

// mounted looks for the mount point that is nearest above the directory.
func mounted(mounts, dir string) string {
	longest, kind := "", "an unknown file system"
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 3 || len(fields[1]) < len(longest) {
			continue
		}
		if at := strings.TrimSuffix(fields[1], "/"); dir == at || strings.HasPrefix(dir, at+"/") {
			longest, kind = fields[1], fields[2]
		}
	}
	return kind
}

// Table is a table in Markdown. All columns but the first are numbers.
type Table struct {
	Columns []string
	Rows    [][]string
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Turned is the table with its rows as columns.
func (t *Table) Turned() *Table {
	turned := &Table{Columns: []string{t.Columns[0]}}
	for _, row := range t.Rows {
		turned.Columns = append(turned.Columns, row[0])
	}
	for i := 1; i < len(t.Columns); i++ {
		cells := []string{t.Columns[i]}
		for _, row := range t.Rows {
			cells = append(cells, row[i])
		}
		turned.Add(cells...)
	}
	return turned
}

// String is the table with an empty line behind it.
func (t *Table) String() string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(t.Columns)
	b.WriteString("|---|" + strings.Repeat("---:|", max(0, len(t.Columns)-1)) + "\n")
	for _, row := range t.Rows {
		line(row)
	}
	b.WriteString("\n")
	return b.String()
}
