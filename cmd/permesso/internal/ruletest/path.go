package ruletest

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// paths answers for a path, and absolute paths or globs.
func (j judge) paths(patterns []string, value string) Answer {
	if j.narrow {
		return narrowPath(patterns, value)
	}
	all := No
	for _, p := range patterns {
		all = some(all, widePath(p, value))
	}
	return all
}

// isOdd reports a path that means something only to the program that reads it.
func isOdd(p string) bool {
	return !strings.HasPrefix(p, "/") || strings.ContainsFunc(p, func(r rune) bool {
		return r == '\\' || r < ' ' || r == 0x7f
	})
}

// narrowPath matches the path as written, and the paths that it leads to before and after
// it is cleaned: a program may remove .. before it follows links.
func narrowPath(patterns []string, value string) Answer {
	clean := path.Clean(value)
	led, cleaned := lead(value), lead(clean)
	holds := true
	for _, name := range []string{clean, led.path, cleaned.path} {
		holds = holds && slices.ContainsFunc(patterns, func(p string) bool {
			return slices.ContainsFunc(braces(p), func(p string) bool { return matchPath(p, name, false) })
		})
	}
	switch {
	case isOdd(value) || led.err != nil || cleaned.err != nil || led.proc || cleaned.proc || !holds:
		return No
	case led.new || cleaned.new || strings.Contains(value, "%"):
		return No | Yes
	}
	return Yes
}

// widePath matches either, in every spelling.
func widePath(pattern, value string) Answer {
	all := No
	for _, p := range wideBraces(pattern) {
		all = some(all, wideGlob(p, value))
	}
	return all
}

// wideBraces gives a pattern without braces, also with the links of its own folder resolved.
func wideBraces(pattern string) []string {
	all := braces(pattern)
	folder := above(pattern)
	if led := lead(folder); led.err == nil && led.path != folder {
		all = append(all, braces(path.Join(led.path, strings.TrimPrefix(pattern, folder)))...)
	}
	return all
}

func wideGlob(pattern, value string) Answer {
	all := No
	for i, v := range spellings(value) {
		a := wideOne(pattern, v)
		if i > 1 && a != No { // decoded twice
			a |= No | Unknown
		}
		if a == Yes && isOdd(v) || a == Yes && isOdd(strings.TrimPrefix(value, "file:/")) {
			a |= Unknown
		}
		all = some(all, a)
	}
	return all
}

// spellings are the path, and what is left without file:// and percent-encoding, once and
// twice.
func spellings(value string) []string {
	all := []string{value}
	v := strings.TrimSpace(value)
	if len(v) > 5 && strings.EqualFold(v[:5], "file:") {
		v = v[5:]
		if rest, ok := strings.CutPrefix(v, "//"); ok {
			_, v, _ = strings.Cut(rest, "/")
			v = "/" + v
		}
	}
	for range 2 {
		if u, err := url.PathUnescape(v); err == nil {
			v = u
		}
		all = append(all, v)
	}
	return all
}

func wideOne(pattern, value string) Answer {
	if isOdd(value) || strings.HasPrefix(value, "~") {
		if matchPath(pattern, path.Clean(strings.TrimSpace(strings.ReplaceAll(value, `\`, "/"))), true) {
			return Unknown | Yes
		}
		return Unknown
	}
	return some(wideLed(pattern, path.Clean(value), lead(value)), wideLed(pattern, path.Clean(value), lead(path.Clean(value))))
}

// wideLed judges a cleaned path, and where it leads to.
func wideLed(pattern, clean string, led led) Answer {
	if matchPath(pattern, clean, true) || led.err == nil && matchPath(pattern, led.path, true) {
		if led.proc && !matchPath(pattern, clean, true) {
			return Unknown | Yes
		}
		return Yes
	}
	switch folder := above(pattern); {
	case led.err != nil || led.magic:
		return Unknown
	case isAbove(clean, pattern, folder) || isAbove(led.path, pattern, folder):
		if led.file {
			return No | Unknown
		}
		return Unknown
	case mayHold(pattern, clean), mayHold(pattern, led.path), led.new, led.proc, strings.Contains(pattern, "**") && isAbove(folder, clean+"/", clean):
		return No | Unknown
	}
	return No
}

// above is the folder that a pattern names: the part before its first glob. Of a path
// without a glob it is the folder that holds it.
func above(pattern string) string {
	end := strings.IndexAny(pattern, "*?[{")
	if end < 0 {
		end = len(pattern)
	}
	return path.Clean(pattern[:strings.LastIndexByte(pattern[:end], '/')+1])
}

// isAbove reports whether a folder holds what the pattern names.
func isAbove(dir, pattern, folder string) bool {
	if matchPath(pattern, dir, true) {
		return false
	}
	dir, folder = fold(dir), fold(folder)
	return dir == "/" || dir == folder || strings.HasPrefix(folder, dir+"/")
}

// mayHold reports whether a folder may hold what a pattern names behind its first glob.
func mayHold(pattern, dir string) bool {
	parts := strings.Split(pattern, "/")
	for i := range parts {
		if matchPath(strings.Join(parts[:i], "/"), dir, true) {
			return true
		}
	}
	return false
}

// led is where a path leads to on this machine.
type led struct {
	path  string
	err   error
	proc  bool // through /proc
	magic bool // through a link that depends on the process
	new   bool // not even its folder exists
	file  bool // it is no folder, or does not exist
}

// lead follows every link, one name after the other, as the system does.
func lead(p string) (l led) {
	l.path = "/"
	rest, links := strings.Split(p, "/"), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			l.path = path.Dir(l.path)
			continue
		}
		next := path.Join(l.path, name)
		l.proc = l.proc || inFolder(next, "/proc") || inFolder(next, "/dev/fd")
		info, err := os.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist) && slices.Contains(rest, ".."):
			l.err = err // the folder that .. leaves does not exist
			return l
		case errors.Is(err, fs.ErrNotExist):
			l.new = strings.Trim(strings.Join(rest, ""), "") != ""
			l.path, l.file = path.Join(append([]string{next}, rest...)...), true
			return l
		case err != nil:
			l.err = err
			return l
		}
		l.file = !info.IsDir()
		if info.Mode()&fs.ModeSymlink == 0 {
			if l.path = next; !info.IsDir() && strings.Trim(strings.Join(rest, "/"), "./") != "" || !info.IsDir() && slices.Contains(rest, "..") {
				l.err = errors.New("not a folder")
				return l
			}
			continue
		}
		target, err := os.Readlink(next)
		if links++; links > 40 || err != nil {
			l.err = errors.Join(err, errors.New("too many links"))
			return l
		}
		if inFolder(next, "/proc") && next != "/proc/self" && next != "/proc/mounts" && next != "/proc/thread-self" && !isOwnRoot(next) {
			l.magic = true
		}
		if strings.HasPrefix(target, "/") {
			l.path = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return l
}

// isOwnRoot reports the link to the root of this process, which is that of the machine.
func isOwnRoot(p string) bool {
	own := "/proc/" + strconv.Itoa(os.Getpid())
	return p == own+"/root" || strings.HasPrefix(p, own+"/task/") && strings.HasSuffix(p, "/root")
}

func inFolder(p, folder string) bool { return p == folder || strings.HasPrefix(p, folder+"/") }

// braces gives the patterns without {a,b}.
func braces(pattern string) []string {
	start := strings.IndexByte(pattern, '{')
	if start < 0 {
		return []string{pattern}
	}
	var parts []string
	depth, from := 0, start+1
	for i := start; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '{':
			depth++
		case c == ',' && depth == 1:
			parts, from = append(parts, pattern[from:i]), i+1
		case c == '}' && depth == 1:
			parts = append(parts, pattern[from:i])
			var all []string
			for _, p := range parts {
				all = append(all, braces(pattern[:start]+p+pattern[i+1:])...)
			}
			return all
		case c == '}':
			depth--
		}
	}
	return []string{pattern}
}

// matchPath matches a cleaned path with a pattern without braces, name by name.
func matchPath(pattern, p string, wide bool) bool {
	if wide {
		pattern, p = lower(pattern), lower(p)
	}
	return matchNames(strings.Split(pattern, "/"), strings.Split(p, "/"))
}

func lower(s string) string { return strings.Map(smallest, s) }

func matchNames(patterns, names []string) bool {
	switch {
	case len(patterns) == 0:
		return len(names) == 0
	case patterns[0] == "**":
		return matchNames(patterns[1:], names) || len(names) > 0 && matchNames(patterns, names[1:])
	case len(names) == 0:
		return false
	}
	return matchName([]rune(patterns[0]), []rune(names[0])) && matchNames(patterns[1:], names[1:])
}

func matchName(pattern, name []rune) bool {
	if len(pattern) == 0 {
		return len(name) == 0
	}
	switch pattern[0] {
	case '*':
		return matchName(pattern[1:], name) || len(name) > 0 && matchName(pattern, name[1:])
	case '?':
		return len(name) > 0 && matchName(pattern[1:], name[1:])
	case '[':
		in, rest := class(pattern[1:], name)
		return in && matchName(rest, name[1:])
	}
	return len(name) > 0 && pattern[0] == name[0] && matchName(pattern[1:], name[1:])
}

// class reports whether a name begins with a rune of a class, and returns the pattern after
// it.
func class(pattern, name []rune) (in bool, rest []rune) {
	not := len(pattern) > 0 && (pattern[0] == '!' || pattern[0] == '^')
	if not {
		pattern = pattern[1:]
	}
	for i := 0; i < len(pattern); i++ {
		if pattern[i] == ']' && i > 0 {
			return len(name) > 0 && in != not, pattern[i+1:]
		}
		last := pattern[i]
		if i+2 < len(pattern) && pattern[i+1] == '-' && pattern[i+2] != ']' {
			last = pattern[i+2]
		}
		in = in || len(name) > 0 && pattern[i] <= name[0] && name[0] <= last
		if last != pattern[i] {
			i += 2
		}
	}
	return false, nil
}
