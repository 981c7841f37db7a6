// Command docgen writes docs/reference.md from the code: conditions, reasons and events from their constants' comments,
// metrics from their descriptions, flags from the programs' own help. `make generated-clean` fails when the page and
// the code differ.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	hwv1alpha1 "github.com/highwater-io/highwater/api/v1alpha1"
	"github.com/highwater-io/highwater/pkg/node"
)

const page = "docs/reference.md"

func main() {
	text, err := generate()
	if err == nil {
		err = os.WriteFile(page, text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(1)
	}
}

func generate() ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("# Reference\n\nGenerated from the code by `make docs`; do not edit.\n\n")
	constants, err := readConstants("api/v1alpha1/conditions.go", "api/v1alpha1/events.go")
	if err != nil {
		return nil, err
	}
	writeConditions(&out, constants)
	writeEvents(&out, constants)
	writeMetrics(&out)
	return out.Bytes(), writeFlags(&out)
}

// constant is a string constant and what its comment says of it.
type constant struct{ name, value, doc string }

func readConstants(files ...string) ([]constant, error) {
	var all []constant
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, declaration := range parsed.Decls {
			group, ok := declaration.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				value := spec.(*ast.ValueSpec)
				literal, ok := value.Values[0].(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					continue
				}
				text, err := strconv.Unquote(literal.Value)
				if err != nil {
					return nil, err
				}
				name := value.Names[0].Name
				doc := strings.Join(strings.Fields(value.Doc.Text()), " ")
				all = append(all, constant{name, text, strings.TrimPrefix(strings.TrimPrefix(doc, name), ":")})
			}
		}
	}
	return all, nil
}

func docOf(constants []constant, prefix, value string) string {
	for _, c := range constants {
		if strings.HasPrefix(c.name, prefix) && c.value == value {
			return strings.TrimSpace(c.doc)
		}
	}
	return ""
}

func writeConditions(out *bytes.Buffer, constants []constant) {
	out.WriteString("## Conditions\n\nEvery condition stands on every object from the first pass on. Healthy is `True`, except for `Progressing`.\n")
	for _, kind := range []string{hwv1alpha1.KindPartition, hwv1alpha1.KindReplicaSet} {
		fmt.Fprintf(out, "\n### %s\n\n", kind)
		for _, condition := range hwv1alpha1.ConditionTypes(kind) {
			fmt.Fprintf(out, "**%s** %s\n\n| status | reason | meaning |\n|---|---|---|\n", condition, docOf(constants, kind, condition))
			for _, row := range hwv1alpha1.ConditionTable {
				if row.Kind == kind && row.Type == condition {
					fmt.Fprintf(out, "| %s | `%s` | %s |\n", row.Status, row.Reason, docOf(constants, "Reason", row.Reason))
				}
			}
			out.WriteString("\n")
		}
	}
}

func writeEvents(out *bytes.Buffer, constants []constant) {
	out.WriteString("## Events\n\nEvents are written on transitions. A restart of the operator repeats none.\n\n| reason | on, type, meaning |\n|---|---|\n")
	for _, c := range constants {
		if strings.HasPrefix(c.name, "Event") {
			fmt.Fprintf(out, "| `%s` | %s |\n", c.value, strings.TrimSpace(c.doc))
		}
	}
	out.WriteString("\n")
}

var description = regexp.MustCompile(`fqName: "([^"]*)", help: "((?:[^"\\]|\\.)*)"`)

func writeMetrics(out *bytes.Buffer) {
	out.WriteString("## Metrics of a node\n\nServed at `/metrics` of the HTTP listener, beside Go's and the process's own. No label grows with the number of partitions.\n\n| metric | meaning |\n|---|---|\n")
	var rows []string
	for _, d := range node.MetricDescriptions() {
		if m := description.FindStringSubmatch(d.String()); m != nil && strings.HasPrefix(m[1], "highwater_") {
			rows = append(rows, fmt.Sprintf("| `%s` | %s |\n", m[1], m[2]))
		}
	}
	slices.Sort(rows)
	out.WriteString(strings.Join(slices.Compact(rows), ""))
	out.WriteString("\n")
}

// writeFlags takes the help of the programs that make build has just built.
func writeFlags(out *bytes.Buffer) error {
	out.WriteString("## Flags\n")
	for _, command := range [][]string{
		{"highwater-node", "run"}, {"highwater-operator"}, {"highwater", "dev", "up"},
	} {
		run := exec.Command("bin/"+command[0], append(command[1:], "--help")...)
		run.Env = append(os.Environ(), "HOME=/home/user", "XDG_STATE_HOME=", "XDG_CACHE_HOME=")
		help, err := run.Output()
		if err != nil {
			return fmt.Errorf("%s --help: %w", strings.Join(command, " "), err)
		}
		fmt.Fprintf(out, "\n### %s\n\n```\n%s\n```\n", strings.Join(command, " "), strings.TrimSpace(string(help)))
	}
	return nil
}
