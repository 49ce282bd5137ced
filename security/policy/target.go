package policy

import (
	"cmp"
	"errors"
	"fmt"
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

// canonicalTarget is the one form in which targets of a kind are compared; "" means that
// the target cannot be compared: no grant covers it.
func canonicalTarget(kind, target string) string {
	switch kind {
	case "exact":
		return target
	case "host":
		origin, _ := facts.Origin(target)
		return origin
	case "path_glob":
		if strings.HasPrefix(target, "/") && clean(target) {
			return target
		}
	}
	return ""
}

// CheckTarget normalizes a grant's target of a kind (exact, host, path_glob), or says what
// is wrong with it.
func CheckTarget(kind, target string) (string, error) {
	switch kind {
	case "host":
		_, rest, _ := strings.Cut(target, "://")
		if origin, ok := facts.Origin(target); ok && !strings.ContainsAny(strings.TrimSuffix(cmp.Or(rest, target), "/"), "/?#") {
			return origin, nil
		}
		return "", fmt.Errorf("target %q must be a host name, https://HOST or http://HOST: a grant covers the whole host", target)
	case "path_glob":
		if !strings.HasPrefix(target, "/") || !doublestar.ValidatePattern(target) || !cleanGlob(target) {
			return "", fmt.Errorf("target %q must be an absolute path or glob, such as /home/ann/invoices/**", target)
		}
		return target, nil
	}
	switch {
	case target == "":
		return "", errors.New("it needs a target")
	case strings.Contains(target, "*"):
		return "", fmt.Errorf("target %q must be complete: it is compared as it is, and * would stand for itself", target)
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
