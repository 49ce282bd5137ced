package policy

import (
	"fmt"
	"net"
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/permesso-dev/permesso/approval/facts"
)

// clean says whether a target is unambiguous: a path without ".", ".." or empty
// components, or a target that is not a path.
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

// host normalizes a host name: lower case, no final dot, no port 80 or 443. "" means
// that target is not a host.
func host(target string) string {
	h := strings.ToLower(target)
	if _, rest, ok := strings.Cut(h, "://"); ok {
		h = rest
	}
	h, _, _ = strings.Cut(h, "/")
	h, _, _ = strings.Cut(h, "?")
	h, _, _ = strings.Cut(h, "#")
	if strings.Contains(h, "@") {
		return "" // programs disagree about which part is the host
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

// CheckTarget normalizes a grant's target for its capability, or says what is wrong
// with it.
func CheckTarget(c facts.Capability, target string) (string, error) {
	switch c.TargetKind {
	case "none":
		if target != "" {
			return "", fmt.Errorf("%s takes no target", c.Name)
		}
		return "", nil
	case "host":
		if h := host(target); h != "" {
			return h, nil
		}
		return "", fmt.Errorf("a target of %s must be a host name", c.Name)
	case "path_glob":
		if !strings.HasPrefix(target, "/") || !doublestar.ValidatePattern(target) || !cleanGlob(target) {
			return "", fmt.Errorf("a target of %s must be an absolute path or glob, such as /home/ann/invoices/**", c.Name)
		}
		return target, nil
	}
	if target == "" {
		return "", fmt.Errorf("%s needs a target", c.Name)
	}
	return target, nil
}

func cleanGlob(glob string) bool {
	for part := range strings.SplitSeq(glob[1:], "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}
