package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// entry is what is read of a line of the audit log (audit.k8s.io/v1, level Metadata).
type entry struct {
	Verb      string `json:"verb"`
	UserAgent string `json:"userAgent"`
	User      struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef *struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		APIGroup    string `json:"apiGroup"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	RequestReceivedTimestamp string `json:"requestReceivedTimestamp"`
}

// operatorUser is the user of the shipped ServiceAccount.
const operatorUser = "system:serviceaccount:highwater-system:highwater-operator"

// tally counts what was asked between the two marks.
type tally struct {
	operator map[string]int // verb and resource -> requests
	lease    int            // of the operator, writes of Leases
	writes   []string       // of the operator, other writes
	others   map[string]int // user -> requests
}

// read counts the lines between two marks; it is an error while a mark is missing.
func read(file, from, to string) (tally, error) {
	t := tally{operator: map[string]int{}, others: map[string]int{}}
	f, err := os.Open(file)
	if err != nil {
		return t, err
	}
	defer f.Close()
	inside, ended := false, false
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() && !ended {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return t, fmt.Errorf("audit log: %w", err)
		}
		switch {
		case e.ObjectRef != nil && e.ObjectRef.Name == from:
			inside = true
		case e.ObjectRef != nil && e.ObjectRef.Name == to:
			ended = true
		case inside:
			t.count(e)
		}
	}
	switch {
	case lines.Err() != nil:
		return t, lines.Err()
	case !inside:
		return t, errors.New("the audit log does not show the request that began the time")
	case !ended:
		return t, errors.New("the audit log does not show the request that ended the time")
	}
	return t, nil
}

func (t *tally) count(e entry) {
	if e.User.Username != operatorUser {
		t.others[e.User.Username]++
		return
	}
	what, resource := e.Verb+" ", ""
	if e.ObjectRef != nil {
		resource = strings.Trim(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/")
	}
	what += resource
	t.operator[what]++
	switch e.Verb {
	case "get", "list", "watch":
	default:
		if e.ObjectRef != nil && e.ObjectRef.APIGroup == "coordination.k8s.io" && e.ObjectRef.Resource == "leases" {
			t.lease++
			return
		}
		line := what
		if e.ObjectRef != nil {
			line += " " + e.ObjectRef.Namespace + "/" + e.ObjectRef.Name
		}
		t.writes = append(t.writes, e.RequestReceivedTimestamp+" "+line)
	}
}

func (t *tally) print() {
	fmt.Printf("\n  requests of %s:\n", operatorUser)
	for _, what := range slices.Sorted(maps.Keys(t.operator)) {
		fmt.Printf("  %6d  %s\n", t.operator[what], what)
	}
	fmt.Printf("  requests of others:\n")
	for _, user := range slices.Sorted(maps.Keys(t.others)) {
		fmt.Printf("  %6d  %s\n", t.others[user], user)
	}
	fmt.Printf("  writes of the operator, Leases aside: %d\n", len(t.writes))
	for _, w := range t.writes {
		fmt.Println("         ", w)
	}
}

// verdict fails when the operator wrote, and also when the log can't have shown it.
func (t *tally) verdict() error {
	switch {
	case len(t.writes) > 0:
		return fmt.Errorf("the operator wrote %d times while nothing changed", len(t.writes))
	case t.lease == 0:
		return errors.New("the operator renewed no Lease: it did not run, or the audit log does not show it")
	case len(t.others) == 0:
		return errors.New("the audit log shows nobody else: it is not whole")
	}
	return nil
}
