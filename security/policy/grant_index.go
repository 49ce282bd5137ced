package policy

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
)

// grantEntry is one grant with its uses from the log.
type grantEntry struct {
	grant.Grant
	uses     int
	reserved int
	lastUsed time.Time
}

// grantIndex finds the grants that may cover a request, by a key. A glob's key has its
// literal first components and its literal last component.
type grantIndex struct {
	byID  map[string]*grantEntry
	byKey map[indexKey][]*grantEntry
}

// indexKey is the key of grants that are looked up together.
type indexKey struct {
	form         string
	parts        string // what the grant is bound to
	folder, last string // of a glob; of a command's pattern the other arguments' digest, and its first words
}

func newGrantIndex() *grantIndex {
	return &grantIndex{byID: map[string]*grantEntry{}, byKey: map[indexKey][]*grantEntry{}}
}

const sep = "\x00"

// keyOf is the index key of a grant.
func keyOf(g *grant.Grant) indexKey {
	k := indexKey{form: g.Form, parts: holderKey(g.Workspace, g.ClientID, g.SessionID, cmp.Or(g.Tool, sep+g.ActionType))}
	switch {
	case g.Form == grant.Target && g.TargetKind == "path_glob":
		k.folder, k.last = literalFolder(g.Target), lastLiteral(g.Target)
	case g.Form == grant.Target:
		k.last = g.TargetKind + sep + g.Target
	case g.Form == grant.Again, g.Form == grant.Program:
		k.last = g.Digest
	case g.Form == grant.Command:
		k.folder, k.last = g.Digest, literalWords(g.Words)
	}
	return k
}

// holderKey joins what every grant is bound to. what is the tool, or the action type after
// a separator.
func holderKey(ws, client, session, what string) string {
	return strings.Join([]string{ws, client, session, what}, sep)
}

func (c *grantIndex) put(g grant.Grant) {
	h := &grantEntry{Grant: g}
	if old := c.byID[g.ID]; old != nil {
		h.uses, h.reserved, h.lastUsed = old.uses, old.reserved, old.lastUsed
		c.remove(old)
	}
	c.byID[g.ID] = h
	k := keyOf(&g)
	c.byKey[k] = append(c.byKey[k], h)
}

func (c *grantIndex) remove(h *grantEntry) {
	k := keyOf(&h.Grant)
	c.byKey[k] = slices.DeleteFunc(c.byKey[k], func(x *grantEntry) bool { return x == h })
}

const meta = `*?[]{}\`

// literalFolder is the components before the first with a pattern, without the last
// component. Each ends with a slash.
func literalFolder(glob string) string {
	if i := strings.IndexAny(glob, meta); i >= 0 {
		glob = glob[:i]
	}
	return glob[:strings.LastIndexByte(glob, '/')+1]
}

// lastLiteral is the last component if it is literal and no brace before it can
// match a slash, "" otherwise.
func lastLiteral(glob string) string {
	last := glob[strings.LastIndexByte(glob, '/')+1:]
	if strings.ContainsAny(last, meta) || strings.Contains(glob, "{") {
		return ""
	}
	return last
}

// covering finds the oldest grant that covers the request, whose digest is exact and whose
// command is cmd. why is the code of why another grant does not. None covers a request with
// arguments that are not known yet.
func (c *grantIndex) covering(q *request, exact string, cmd command) (found *grantEntry, why string) {
	f := q.Facts
	if len(f.Opaque) > 0 {
		return nil, ""
	}
	note := func(h *grantEntry) {
		switch {
		case !h.RevokedAt.IsZero():
			why = "grant_revoked"
		case h.Form != grant.Program && h.ToolSHA256 != f.ToolSHA256: // a program's digest has those of its tools
			why = "grant_tool_changed"
		case !f.Now.Before(h.ExpiresAt):
			why = "grant_expired"
		case h.MaxUses > 0 && h.uses+h.reserved >= h.MaxUses && (h.Form != grant.Program || !q.running):
			why = "grant_used_up"
		case found == nil || h.CreatedAt.Before(found.CreatedAt) || h.CreatedAt.Equal(found.CreatedAt) && h.ID < found.ID:
			found = h
		}
	}
	for _, session := range sessionsOf(f.SessionID) {
		if f.Program != nil {
			holder := holderKey(f.Workspace, f.ClientID, session, sep+approval.ActionProgram)
			c.each(indexKey{form: grant.Program, parts: holder, last: f.Program.SHA256}, note)
		}
		if isRun(f) {
			continue
		}
		holder := holderKey(f.Workspace, f.ClientID, session, cmp.Or(f.Tool, sep+f.ActionType))
		if exact != "" {
			c.each(indexKey{form: grant.Again, parts: holder, last: exact}, note)
			c.command(cmd, holder, note)
		}
		if onlyAgain(f) {
			continue
		}
		if f.Tool == "" {
			c.each(indexKey{form: grant.Action, parts: holder}, note)
			continue
		}
		c.each(indexKey{form: grant.Tool, parts: holder}, note)
		c.target(f, holder, q.links, note)
	}
	return found, why
}

func sessionsOf(id string) []string {
	if id == "" {
		return []string{""}
	}
	return []string{"", id}
}

func (c *grantIndex) each(k indexKey, f func(*grantEntry)) {
	for _, h := range c.byKey[k] {
		f(h)
	}
}

func (c *grantIndex) command(cmd command, holder string, note func(*grantEntry)) {
	for n := range min(len(cmd.words), maxLiteralWords) {
		k := indexKey{form: grant.Command, parts: holder, folder: cmd.rest, last: strings.Join(cmd.words[:n+1], sep)}
		c.each(k, func(h *grantEntry) {
			if MatchWords(h.Words, cmd.words) {
				note(h)
			}
		})
	}
}

// maxLiteralWords bounds the words of a pattern that are in its key.
const maxLiteralWords = 4

// literalWords are the first words of a pattern, which a command must have as well.
func literalWords(pattern []string) string {
	n := slices.Index(pattern, anyWords)
	if n < 0 {
		n = len(pattern)
	}
	return strings.Join(pattern[:min(n, maxLiteralWords)], sep)
}

func (c *grantIndex) target(f *approval.Facts, holder string, l links, note func(*grantEntry)) {
	kind := targetKind(f)
	target := canonicalTarget(kind, f.Target)
	switch {
	case target == "":
	case kind == "path_glob":
		c.globs(target, l.to[f.Target], holder, note)
	default:
		c.each(indexKey{form: grant.Target, parts: holder, last: kind + sep + target}, note)
		if bare, ok := strings.CutPrefix(target, "https://"); ok && kind == "host" { // given without a scheme
			c.each(indexKey{form: grant.Target, parts: holder, last: kind + sep + bare}, note)
		}
	}
}

// globs tries the globs whose literal first components begin a path. The path that it leads
// to must match, too.
func (c *grantIndex) globs(target, leads, holder string, note func(*grantEntry)) {
	matches := func(glob, name string) bool {
		ok, err := doublestar.Match(glob, name)
		return err == nil && ok
	}
	try := func(h *grantEntry) {
		if matches(h.Target, target) && (leads == target || leads != "" && matches(h.Target, leads)) {
			note(h)
		}
	}
	last := target[strings.LastIndexByte(target, '/')+1:]
	for folder := target; ; folder = folder[:len(folder)-1] {
		folder = folder[:strings.LastIndexByte(folder, '/')+1]
		c.each(indexKey{grant.Target, holder, folder, last}, try)
		if last != "" {
			c.each(indexKey{grant.Target, holder, folder, ""}, try)
		}
		if folder == "" {
			return
		}
	}
}
