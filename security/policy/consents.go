package policy

import (
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/permesso-dev/permesso/approval"
)

// held is one remembered consent with what the log says of it.
type held struct {
	approval.Grant
	uses     int
	reserved int
	lastUsed time.Time
}

// consents is the index of what is remembered. What a request could be covered
// by is found by equality of everything but a glob; globs lie on shelves by
// their literal beginning and their literal last component.
type consents struct {
	byID  map[string]*held
	byKey map[string][]*held
	globs map[string]*shelf // by bearer: workspace, channel, sender, session, capability
}

// shelf is a trie over the components of literal beginnings.
type shelf struct {
	kids  map[string]*shelf
	globs map[string][]*held // by last component, "" where that is no literal
}

func newConsents() *consents {
	return &consents{byID: map[string]*held{}, byKey: map[string][]*held{}, globs: map[string]*shelf{}}
}

const sep = "\x00"

func key(kind approval.GrantKind, parts ...string) string {
	return string(kind) + sep + strings.Join(parts, sep)
}

// keyOf is where a grant that is no glob lies.
func keyOf(g *approval.Grant) string {
	switch g.Kind {
	case approval.GrantSession:
		return key(g.Kind, g.Workspace, g.ClientID, g.ActionType, g.Exact, g.SessionID)
	case approval.GrantRule:
		return key(g.Kind, g.Workspace, g.ClientID, g.ActionType, g.Exact)
	}
	target := g.Target
	if g.TargetKind == "host" {
		target = host(target)
	}
	return key(g.Kind, bearer(g.Workspace, g.Channel, g.Sender, g.SessionID, g.Capability), target)
}

func bearer(ws, channel, sender, session, capability string) string {
	return strings.Join([]string{ws, channel, sender, session, capability}, sep)
}

func (c *consents) put(g approval.Grant) {
	h := &held{Grant: g}
	if old := c.byID[g.ID]; old != nil {
		h.uses, h.reserved, h.lastUsed = old.uses, old.reserved, old.lastUsed
		c.drop(old)
	}
	c.byID[g.ID] = h
	if g.Kind == approval.GrantTarget && g.TargetKind == "path_glob" {
		s := c.shelf(&g, true)
		last := lastLiteral(g.Target)
		s.globs[last] = append(s.globs[last], h)
		return
	}
	k := keyOf(&g)
	c.byKey[k] = append(c.byKey[k], h)
}

func (c *consents) drop(h *held) {
	same := func(x *held) bool { return x == h }
	if h.Kind == approval.GrantTarget && h.TargetKind == "path_glob" {
		if s := c.shelf(&h.Grant, false); s != nil {
			last := lastLiteral(h.Target)
			s.globs[last] = slices.DeleteFunc(s.globs[last], same)
		}
		return
	}
	k := keyOf(&h.Grant)
	c.byKey[k] = slices.DeleteFunc(c.byKey[k], same)
}

func (c *consents) shelf(g *approval.Grant, create bool) *shelf {
	b := bearer(g.Workspace, g.Channel, g.Sender, g.SessionID, g.Capability)
	s := c.globs[b]
	if s == nil {
		if !create {
			return nil
		}
		s = newShelf()
		c.globs[b] = s
	}
	for _, part := range literalParts(g.Target) {
		next := s.kids[part]
		if next == nil {
			if !create {
				return nil
			}
			next = newShelf()
			s.kids[part] = next
		}
		s = next
	}
	return s
}

func newShelf() *shelf { return &shelf{kids: map[string]*shelf{}, globs: map[string][]*held{}} }

const meta = `*?[]{}\`

// literalParts are the components before the first that has a pattern in it,
// the last one excepted.
func literalParts(glob string) []string {
	parts := strings.Split(glob, "/")
	parts = parts[:len(parts)-1]
	for i, p := range parts {
		if strings.ContainsAny(p, meta) {
			return parts[:i]
		}
	}
	return parts
}

// lastLiteral is the last component where that is literal and nothing before
// it can swallow a slash inside braces; "" otherwise.
func lastLiteral(glob string) string {
	last := glob[strings.LastIndexByte(glob, '/')+1:]
	if strings.ContainsAny(last, meta) || strings.Contains(glob, "{") {
		return ""
	}
	return last
}

// covering finds a consent that covers the request, the one that was given
// first; why says what keeps the others from it.
func (c *consents) covering(f *approval.Facts, exact string) (found *held, why string) {
	note := func(h *held) {
		switch {
		case !h.RevokedAt.IsZero():
			why = "a consent to this was revoked"
		case !f.Now.Before(h.ExpiresAt):
			why = "a consent to this has expired"
		case h.MaxUses > 0 && h.uses+h.reserved >= h.MaxUses:
			why = "a consent to this is used up"
		case found == nil || h.CreatedAt.Before(found.CreatedAt) || h.CreatedAt.Equal(found.CreatedAt) && h.ID < found.ID:
			found = h
		}
	}
	if f.ActionType != "" {
		if f.SessionID != "" {
			c.each(key(approval.GrantSession, f.Workspace, f.ClientID, f.ActionType, exact, f.SessionID), note)
		}
		c.each(key(approval.GrantRule, f.Workspace, f.ClientID, f.ActionType, exact), note)
	}
	if cp, ok := approval.CapabilityNamed(f.Capability); ok && f.Channel != "" && f.Sender != "" {
		for _, session := range sessionsOf(f.SessionID) {
			c.target(f, cp.TargetKind, bearer(f.Workspace, f.Channel, f.Sender, session, f.Capability), note)
		}
	}
	return found, why
}

func sessionsOf(id string) []string {
	if id == "" {
		return []string{""}
	}
	return []string{"", id}
}

func (c *consents) each(k string, f func(*held)) {
	for _, h := range c.byKey[k] {
		f(h)
	}
}

func (c *consents) target(f *approval.Facts, kind, bearer string, note func(*held)) {
	switch kind {
	case "none":
		c.each(key(approval.GrantTarget, bearer, ""), note)
	case "exact":
		if f.Target != "" {
			c.each(key(approval.GrantTarget, bearer, f.Target), note)
		}
	case "host":
		if h := host(f.Target); h != "" {
			c.each(key(approval.GrantTarget, bearer, h), note)
		}
	case "path_glob":
		if s := c.globs[bearer]; s != nil && clean(f.Target) && f.Target != "" {
			s.fitting(f.Target, note)
		}
	}
}

// fitting walks down the components of a path and tries the globs that may fit
// it.
func (s *shelf) fitting(target string, note func(*held)) {
	last := target[strings.LastIndexByte(target, '/')+1:]
	try := func(list []*held) {
		for _, h := range list {
			if ok, err := doublestar.Match(h.Target, target); err == nil && ok {
				note(h)
			}
		}
	}
	rest := target
	for s != nil {
		try(s.globs[last])
		if last != "" {
			try(s.globs[""])
		}
		part, after, more := strings.Cut(rest, "/")
		if !more {
			return
		}
		s, rest = s.kids[part], after
	}
}
