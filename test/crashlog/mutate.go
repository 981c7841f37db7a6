package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// The seeds of mutants begin here, so that they meet other histories than the proof.
const mutantSeed = 1_000_000

// runMutants plays histories with each mutant until one fails. Every mutant must be caught within so many cases.
func runMutants(within int64, names string) int {
	survivors := 0
	for _, m := range mutants {
		if names != "" && !strings.Contains(","+names+",", ","+m.name+",") {
			continue
		}
		caught, err := m.hunt(within)
		if err != nil {
			survivors++
			fmt.Printf("mutant %-30s NOT PLAYED: %v\n", m.name, err)
			continue
		}
		if caught == "" {
			survivors++
			fmt.Printf("mutant %-30s SURVIVED %d cases: %s\n", m.name, within, m.mistake)
			continue
		}
		fmt.Printf("mutant %-30s caught: %s\n%32s by %s\n", m.name, m.mistake, "", caught)
	}
	if survivors > 0 {
		fmt.Printf("crash-log-mutants: MISSED: %d were not caught\n", survivors)
		return 1
	}
	fmt.Println("crash-log-mutants: ok")
	return 0
}

// hunt says what caught the mutant: the seed, the case, and the invariant; "" when nothing did.
func (m *mutant) hunt(within int64) (string, error) {
	if m.file != "" {
		return m.huntBuilt(within)
	}
	st := &stats{}
	for seed := uint64(mutantSeed); st.cases.Load() < within; seed++ {
		if f := play(seed, m, st, 0); f != nil {
			return fmt.Sprintf("seed %d, case %d, the %dth: %s", f.seed, f.cas, st.cases.Load(), firstLine(f.what)), nil
		}
	}
	return "", nil
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

var (
	failedLine = regexp.MustCompile(`(?m)^FAILED: (.*)$`)
	againLine  = regexp.MustCompile(`(?m)^again: .* -seed=(\d+)(?: -case=(\d+))?`)
	casesLine  = regexp.MustCompile(`(?m)^crash-log: (\d+) cases`)
)

// huntBuilt builds this very program with the mutated source, and has it play.
func (m *mutant) huntBuilt(within int64) (string, error) {
	dir, err := os.MkdirTemp("", "crashlog-mutant-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	program, err := m.build(dir)
	if err != nil {
		return "", err
	}
	out, err := exec.Command(program, "-for=10m", "-stop-after", fmt.Sprint(within), "-cases=0", fmt.Sprintf("-seed=%d", mutantSeed)).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return "", err
	}
	failed, again, cases := failedLine.FindSubmatch(out), againLine.FindSubmatch(out), casesLine.FindSubmatch(out)
	switch {
	case err == nil:
		return "", nil
	case failed == nil || again == nil || cases == nil:
		return "", fmt.Errorf("its program says something unknown:\n%s", out)
	}
	return fmt.Sprintf("seed %s, case %s, the %sth: %s", again[1], again[2], cases[1], failed[1]), nil
}

// build makes the program with the mutated source. It must be run where the sources are.
func (m *mutant) build(dir string) (string, error) {
	top, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("the sources are not here: %w", err)
	}
	file := filepath.Join(strings.TrimSpace(string(top)), m.file)
	source, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if n := bytes.Count(source, []byte(m.from)); n != 1 {
		return "", fmt.Errorf("%s has %d places like this, want 1; adapt test/crashlog/mutants.go to the source:\n%s", m.file, n, m.from)
	}
	mutated := filepath.Join(dir, filepath.Base(m.file))
	if err := os.WriteFile(mutated, bytes.Replace(source, []byte(m.from), []byte(m.to), 1), 0o644); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: mutated}})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o644); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "crashlog")
	if out, err := exec.Command("go", "build", "-overlay", list, "-o", program, "github.com/highwater-io/highwater/test/crashlog").CombinedOutput(); err != nil {
		return "", fmt.Errorf("the mutated source does not build: %w\n%s", err, out)
	}
	return program, nil
}
