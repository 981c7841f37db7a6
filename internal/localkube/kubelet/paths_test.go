package kubelet

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestMountPathsAreRewrittenAsWholePathElementsOnly(t *testing.T) {
	m := newMounts([]mount{
		{"/etc/app", "/host/conf"}, {"/var/lib/x", "/host/data"}, {"/var/lib/x/inner/", "/host/inner"}, {"/", "/host/root"},
	})
	for in, want := range map[string]string{
		"/etc/app":                        "/host/conf",
		"--config=/etc/app/node.yaml":     "--config=/host/conf/node.yaml",
		"/etc/apple":                      "/etc/apple",
		"/etc/app.d/x":                    "/etc/app.d/x",
		"/srv/etc/app":                    "/srv/etc/app",
		"etc/app":                         "etc/app",
		"/var/lib/x/inner/f,/var/lib/x/f": "/host/inner/f,/host/data/f",
		"/var/lib/x/innermost":            "/host/data/innermost",
		"a:/etc/app:/var/lib/x":           "a:/host/conf:/host/data",
		"cat '/etc/app/a b' > \"/x\"":     "cat '/host/conf/a b' > \"/x\"",
		"/":                               "/",
		"":                                "",
		"http://host/etc/app":             "http://host/etc/app",
	} {
		if got := m.rewrite(in); got != want {
			t.Errorf("rewrite(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestTextWithoutAMountPathIsLeftAlone(t *testing.T) {
	m := newMounts([]mount{{"/etc/app", "/host"}})
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[a-z/=: ."é-]{0,40}`).Filter(func(s string) bool {
			return !strings.Contains(s, "/etc/app")
		}).Draw(t, "s")
		if got := m.rewrite(s); got != s {
			t.Fatalf("rewrite(%q) = %q", s, got)
		}
	})
}

func TestVariablesExpandAsInKubernetes(t *testing.T) {
	values := map[string]string{"A": "1", "B": "$(A)", "E": ""}
	for in, want := range map[string]string{
		"$(A)": "1", "x$(A)$(A)y": "x11y", "$(B)": "$(A)", "$(NONE)": "$(NONE)", "$$(A)": "$(A)", "$$$(A)": "$1",
		"$A": "$A", "$": "$", "$(": "$(", "$(A": "$(A", "a$": "a$", "[$(E)]": "[]", "$()": "$()",
	} {
		if got := expand(in, values); got != want {
			t.Errorf("expand(%q) = %q, want %q", in, got, want)
		}
	}
}
