package benchpage

import (
	"slices"
	"testing"
)

func TestOnlyThePlaceOfTheTargetIsReplaced(t *testing.T) {
	const page = "a\n<!-- begin: make x -->\nold\n<!-- end: make x -->\nb\n<!-- begin: make y -->\n<!-- end: make y -->\n"
	got, err := replace([]byte(page), "y", "new\n")
	want := "a\n<!-- begin: make x -->\nold\n<!-- end: make x -->\nb\n<!-- begin: make y -->\nnew\n<!-- end: make y -->\n"
	if err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	for _, page := range []string{"", "<!-- begin: make x -->\n", "<!-- end: make x -->"} {
		if _, err := replace([]byte(page), "x", "new"); err == nil {
			t.Errorf("%q has a place for the table", page)
		}
	}
}

func TestBenchmarksAreReadByTheirUnits(t *testing.T) {
	const out = "goos: linux\nBenchmarkSend/copied/32KiB-2 \t 100\t 12.5 ns/op\t 3.1 MB/s\t 0 B/op\t 1 allocs/op\nPASS\n"
	rows := parse([]byte(out), []string{"ns/op", "records/flush", "allocs/op"})
	if len(rows) != 1 || !slices.Equal(rows[0], []string{"Send/copied/32KiB", "12.5", "", "1"}) {
		t.Errorf("%q", rows)
	}
}

func TestTable(t *testing.T) {
	table := Table{Columns: []string{"a", "b"}}
	table.Add("x", "1")
	if got, want := table.String(), "| a | b |\n|---|---:|\n| x | 1 |\n\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestFilesLieOnTheNearestMount(t *testing.T) {
	const mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/vdb /tmp/bench xfs rw 0 0\n"
	for dir, want := range map[string]string{"/var": "ext4", "/tmp": "tmpfs", "/tmp/benchmark": "tmpfs", "/tmp/bench/1": "xfs"} {
		if got := mounted(mounts, dir); got != want {
			t.Errorf("%q lies on %s, want %s", dir, got, want)
		}
	}
}
