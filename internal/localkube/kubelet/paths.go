package kubelet

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
)

// mount is a place in a container's file system and the host's file or directory that stands there.
type mount struct {
	inContainer string
	onHost      string
}

// mounts rewrites paths. Processes run in the host's own file system, so what a container would see at a mount
// path is reached by another path, and every mention of the mount path in its command, arguments, environment and
// working directory is replaced.
type mounts []mount

func newMounts(all []mount) mounts {
	out := make(mounts, 0, len(all))
	for _, m := range all {
		m.inContainer = filepath.Clean(m.inContainer)
		if m.inContainer != "/" && filepath.IsAbs(m.inContainer) {
			out = append(out, m)
		}
	}
	// The longest first: /var/lib/x/data may be a mount of its own beside /var/lib/x.
	slices.SortStableFunc(out, func(a, b mount) int { return cmp.Compare(len(b.inContainer), len(a.inContainer)) })
	return out
}

// rewrite replaces each mount path that stands in s as a whole path or as the leading elements of one:
// "--config=/etc/app/x.yaml" and "/a:/b" have such, "/etc/apple" and "x/etc/app" don't for /etc/app.
func (m mounts) rewrite(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); {
		found := false
		if s[i] == '/' && (i == 0 || !pathByte(s[i-1])) {
			for _, mount := range m {
				rest, ok := strings.CutPrefix(s[i:], mount.inContainer)
				if ok && (rest == "" || rest[0] == '/' || !pathByte(rest[0])) {
					out.WriteString(mount.onHost)
					i += len(mount.inContainer)
					found = true
					break
				}
			}
		}
		if !found {
			out.WriteByte(s[i])
			i++
		}
	}
	return out.String()
}

func (m mounts) rewriteAll(in []string) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = m.rewrite(s)
	}
	return out
}

// pathByte tells whether a byte goes on with a path's element; what is not one (= : , space, quotes) ends it.
func pathByte(b byte) bool {
	return b == '/' || b == '.' || b == '-' || b == '_' || b == '@' || b == '~' || b == '+' || b == '%' ||
		'0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || b >= 0x80
}
