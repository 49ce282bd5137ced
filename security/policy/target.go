package policy

import (
	"net"
	"path"
	"strings"
)

// clean says whether a target is what it looks like: a path without "." or ".."
// or empty components, and anything that is no path.
func clean(target string) bool {
	if strings.ContainsRune(target, 0) || strings.Contains(target, "\\") {
		return false
	}
	if !strings.HasPrefix(target, "/") {
		for c := range strings.SplitSeq(target, "/") {
			if c == ".." || c == "." {
				return false
			}
		}
		return true
	}
	return path.Clean(target) == target
}

// host brings the name of a host into one form: lower case, no final dot, and
// no port but one that is not the web's own. "" means that it is none.
func host(target string) string {
	h := strings.ToLower(target)
	if _, rest, ok := strings.Cut(h, "://"); ok {
		h = rest
	}
	h, _, _ = strings.Cut(h, "/")
	h, _, _ = strings.Cut(h, "?")
	h, _, _ = strings.Cut(h, "#")
	if strings.Contains(h, "@") {
		return "" // who reads it decides which half is the host
	}
	if name, port, err := net.SplitHostPort(h); err == nil {
		if port != "443" && port != "80" {
			return strings.TrimSuffix(name, ".") + ":" + port
		}
		h = name
	}
	h = strings.TrimSuffix(h, ".")
	if h == "" || strings.ContainsAny(h, "*?[]{} \\%") {
		return ""
	}
	return h
}
