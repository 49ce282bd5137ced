package policy

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/permesso-dev/permesso/approval/facts"
)

// pathPattern is a rule's pattern of paths.
type pathPattern struct {
	glob    string
	literal bool     // glob is one path
	wide    []string // the glob in lower case, also with its folder's links resolved
	folder  string   // what precedes the first pattern, in lower case
}

func newPathPattern(glob string, literal bool) *pathPattern {
	p := &pathPattern{glob: glob, literal: literal, wide: []string{strings.ToLower(glob)}, folder: strings.ToLower(glob)}
	if literal {
		p.glob, p.wide[0] = path.Clean(glob), strings.ToLower(path.Clean(glob))
	} else {
		p.folder = literalFolder(p.folder)
	}
	return p
}

func parsePath(text string) (*pathPattern, error) {
	if !strings.HasPrefix(text, "/") || text != "/" && !cleanGlob(text) {
		return nil, fmt.Errorf("%q must be an absolute path or glob without . and .., such as /home/ann/project/**", text)
	}
	if !doublestar.ValidatePattern(text) {
		return nil, fmt.Errorf("%q is not a valid glob", text)
	}
	return newPathPattern(text, false), nil
}

func (p *pathPattern) fit(glob, name string) bool {
	if p.literal {
		return glob == name
	}
	for i := 0; i < len(glob) && strings.IndexByte(meta, glob[i]) < 0; i++ { // most differ soon
		if i >= len(name) {
			break
		}
		if glob[i] != name[i] {
			return false
		}
	}
	ok, err := doublestar.Match(glob, name)
	return err == nil && ok
}

func (p *pathPattern) matches(name string) bool { return p.fit(p.glob, name) }

// matchesWide also matches in another case, and by the folder that the pattern's own links
// lead to. lower is the name in lower case.
func (p *pathPattern) matchesWide(name, lower string) bool {
	return p.matches(name) || slices.ContainsFunc(p.wide, func(glob string) bool { return p.fit(glob, lower) })
}

// isBelow says whether the pattern names something below a folder, which is in lower case, as
// far as its first **.
func (p *pathPattern) isBelow(folder string) bool {
	folder = strings.TrimSuffix(folder, "/")
	if rest, ok := strings.CutPrefix(p.folder, folder); ok && strings.HasPrefix(rest, "/") {
		return true
	}
	if n := min(len(p.folder), len(folder)); p.folder[:n] != folder[:n] {
		return false
	}
	glob, _, _ := strings.Cut(p.wide[0], "**")
	for i, c := range glob {
		if c == '/' && i > 0 && !p.literal && p.fit(glob[:i], folder) {
			return true
		}
	}
	return false
}

// links are where a request's paths lead on this machine.
type links struct {
	to      map[string]string // by the path as it is compared; "": it cannot be resolved
	written []string          // the paths as they stand in the request
}

// matchPath compares one path with patterns.
func matchPath(is []pattern, t *text, l links, how reading) matchResult {
	if how == wide {
		return matchPathWide(is, t, l)
	}
	if t.path == nil {
		t.path = newNamedPath(t.as, l)
	}
	if !t.path.plain {
		return unknown
	}
	matches := func(name string) bool {
		return slices.ContainsFunc(is, func(p pattern) bool { return p.path != nil && p.path.matches(name) })
	}
	return yesIf(matches(t.path.cleaned) && matches(t.path.leads) && matches(t.path.direct))
}

// namedPath is a path, and where it leads. A program may clean it before it opens it.
type namedPath struct {
	cleaned, leads, direct string
	plain                  bool // every program reads all of them alike
}

func newNamedPath(text string, l links) *namedPath {
	cleaned := path.Clean(text)
	p := &namedPath{cleaned: cleaned, leads: l.to[text], direct: l.to[cleaned]}
	p.plain = plainPath(text) && plainPath(p.leads) && plainPath(p.direct)
	return p
}

// plainPath says whether every program reads a path alike.
func plainPath(name string) bool {
	return strings.HasPrefix(name, "/") && !strings.Contains(name, `\`) && !strings.ContainsFunc(name, unicode.IsControl) &&
		!throughProcess(path.Clean(name))
}

// throughProcess says whether a path may lead elsewhere for another process.
func throughProcess(name string) bool {
	return name == "/proc" || strings.HasPrefix(name, "/proc/") || strings.HasPrefix(name, "/dev/fd") || strings.HasPrefix(name, "/dev/std")
}

func matchPathWide(is []pattern, t *text, l links) matchResult {
	if t.named == nil {
		for _, name := range spellings(t.as) {
			cleaned, leads := path.Clean(name), l.to[name]
			t.named = append(t.named, wideName{
				cleaned, strings.ToLower(cleaned), leads, strings.ToLower(leads), !plainPath(name) || leads == "",
			})
		}
	}
	best := no
	for i := range t.named {
		name := &t.named[i]
		if name.doubtful {
			best = unknown
		}
		for j := range is {
			switch p := is[j].path; {
			case p == nil:
				best = max(best, unknown)
			case p.matchesWide(name.cleaned, name.lower), name.leads != "" && p.matchesWide(name.leads, name.leadsLower):
				return yes
			case p.isBelow(name.lower), name.leads != "" && p.isBelow(name.leadsLower):
				best = unknown
			}
		}
	}
	return best
}

// wideName is a path in one of its spellings, and where it leads. Programs may read a doubtful
// one differently.
type wideName struct {
	cleaned, lower    string
	leads, leadsLower string
	doubtful          bool
}

// spellings are what programs may take a path for: as written, without blanks around it, as
// a URL, decoded.
func spellings(text string) []string {
	all := []string{text}
	if strings.HasPrefix(text, "/") && !strings.Contains(text, "%") && path.Clean(text) == text && strings.TrimSpace(text) == text {
		return all
	}
	add := func(s string) {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	for i := 0; i < len(all) && len(all) < 8; i++ {
		s := all[i]
		add(strings.TrimSpace(s))
		if strings.HasPrefix(s, "/") {
			add(path.Clean(s))
		}
		if lower := strings.ToLower(s); strings.HasPrefix(lower, "file:") {
			add("/" + strings.TrimLeft(strings.TrimPrefix(strings.TrimPrefix(lower, "file:"), "//localhost"), "/"))
			add("/" + strings.TrimLeft(s[len("file:"):], "/"))
		}
		if decoded, err := url.PathUnescape(s); err == nil {
			add(decoded)
		}
	}
	return all
}

// linksOf resolves the paths of a request: those of its arguments, and its target.
func (e *Engine) linksOf(q *request) (l links) {
	if e.Resolve == nil {
		return l
	}
	if targetKind(q.Facts) == "path_glob" {
		l.written = append(l.written, q.Target)
	}
	fields, err := q.args.all()
	if err != nil {
		return l
	}
	for _, x := range fields {
		if q.declared[x.Name].Type == facts.TypePath {
			all, _ := textsOf(x.Value) // none: no rule matches it
			l.written = append(l.written, all...)
		}
	}
	if len(l.written) == 0 {
		return l
	}
	l.to = map[string]string{}
	for _, text := range l.written {
		if cleaned := path.Clean(text); cleaned != text && !slices.Contains(l.written, cleaned) {
			l.written = append(l.written, cleaned)
		}
		for _, name := range spellings(text) {
			if _, known := l.to[name]; known || len(l.to) >= maxLinks || !strings.HasPrefix(name, "/") {
				continue
			}
			l.to[name] = ""
			if leads, err := e.Resolve(name); err == nil && strings.HasPrefix(leads, "/") {
				l.to[name] = path.Clean(leads)
			}
		}
	}
	return l
}

// or returns what resolves a path: what is known, else another function. Nil stays nil.
func (l links) or(resolve func(string) (string, error)) func(string) (string, error) {
	if resolve == nil {
		return nil
	}
	return func(name string) (string, error) {
		switch leads, known := l.to[name]; {
		case !known:
			return resolve(name)
		case leads == "":
			return "", errUnresolved
		default:
			return leads, nil
		}
	}
}

var errUnresolved = errors.New("it cannot be resolved")

// maxLinks bounds the paths of one request that are resolved.
const maxLinks = 1000

// elsewhere are the absolute paths of the request that lead to another one, by the path as
// written. "" stands for one that cannot be resolved.
func (l links) elsewhere() map[string]string {
	var m map[string]string
	for _, name := range l.written {
		if leads := l.to[name]; strings.HasPrefix(name, "/") && leads != path.Clean(name) {
			if m == nil {
				m = map[string]string{}
			}
			m[name] = leads
		}
	}
	return m
}
