package replicaset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// problem is something that keeps the set from being ready and that somebody has to do away with.
type problem struct {
	reason  string
	message string
}

// problems collects what a pass met.
type problems struct {
	all []problem
	// namespaceTerminating says that the API server makes nothing any more in this namespace.
	namespaceTerminating bool
}

func (p *problems) add(reason, format string, args ...any) {
	p.all = append(p.all, problem{reason, fmt.Sprintf(format, args...)})
}

// first returns the reason that goes before the others and all messages of that reason.
func (p *problems) first() (reason, message string, ok bool) {
	if len(p.all) == 0 {
		return "", "", false
	}
	reason = p.all[0].reason
	var messages []string
	for _, one := range p.all {
		if one.reason == reason {
			messages = append(messages, one.message)
		}
	}
	return reason, strings.Join(messages, "; "), true
}

// tolerate takes note of a refusal because the namespace is being deleted; any other error is returned.
func (p *problems) tolerate(err error) error {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		p.namespaceTerminating = true
		return nil
	}
	return err
}

func sortedIDs[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
