package policy

import (
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
)

// grantEntry is one grant with its uses from the log.
type grantEntry struct {
	grant.Grant
	uses     int
	reserved int
	lastUsed time.Time
}

// grantIndex finds the grants that may cover a request. Grants without a glob are
// found by an exact key, globs by their literal first components and their literal
// last component.
type grantIndex struct {
	byID  map[string]*grantEntry
	byKey map[string][]*grantEntry
	globs map[string]*globNode // by scopeKey
}

// globNode is a node of a trie over the literal first components.
type globNode struct {
	children map[string]*globNode
	globs    map[string][]*grantEntry // by last component, "" where that is no literal
}

func newGrantIndex() *grantIndex {
	return &grantIndex{byID: map[string]*grantEntry{}, byKey: map[string][]*grantEntry{}, globs: map[string]*globNode{}}
}

const sep = "\x00"

func key(kind grant.Kind, parts ...string) string {
	return string(kind) + sep + strings.Join(parts, sep)
}

// keyOf is the index key of a grant without a glob.
func keyOf(g *grant.Grant) string {
	switch g.Kind {
	case grant.Session:
		return key(g.Kind, g.Workspace, g.ClientID, g.ActionType, g.Exact, g.SessionID)
	case grant.Rule:
		return key(g.Kind, g.Workspace, g.ClientID, g.ActionType, g.Exact)
	}
	target := g.Target
	if g.TargetKind == "host" {
		target = host(target)
	}
	return key(g.Kind, scopeKey(g.Workspace, g.Channel, g.Sender, g.SessionID, g.Capability), target)
}

func scopeKey(ws, channel, sender, session, capability string) string {
	return strings.Join([]string{ws, channel, sender, session, capability}, sep)
}

func (c *grantIndex) put(g grant.Grant) {
	h := &grantEntry{Grant: g}
	if old := c.byID[g.ID]; old != nil {
		h.uses, h.reserved, h.lastUsed = old.uses, old.reserved, old.lastUsed
		c.remove(old)
	}
	c.byID[g.ID] = h
	if g.Kind == grant.Target && g.TargetKind == "path_glob" {
		s := c.node(&g, true)
		last := lastLiteral(g.Target)
		s.globs[last] = append(s.globs[last], h)
		return
	}
	k := keyOf(&g)
	c.byKey[k] = append(c.byKey[k], h)
}

func (c *grantIndex) remove(h *grantEntry) {
	same := func(x *grantEntry) bool { return x == h }
	if h.Kind == grant.Target && h.TargetKind == "path_glob" {
		if s := c.node(&h.Grant, false); s != nil {
			last := lastLiteral(h.Target)
			s.globs[last] = slices.DeleteFunc(s.globs[last], same)
		}
		return
	}
	k := keyOf(&h.Grant)
	c.byKey[k] = slices.DeleteFunc(c.byKey[k], same)
}

func (c *grantIndex) node(g *grant.Grant, create bool) *globNode {
	b := scopeKey(g.Workspace, g.Channel, g.Sender, g.SessionID, g.Capability)
	s := c.globs[b]
	if s == nil {
		if !create {
			return nil
		}
		s = newGlobNode()
		c.globs[b] = s
	}
	for _, part := range literalParts(g.Target) {
		next := s.children[part]
		if next == nil {
			if !create {
				return nil
			}
			next = newGlobNode()
			s.children[part] = next
		}
		s = next
	}
	return s
}

func newGlobNode() *globNode {
	return &globNode{children: map[string]*globNode{}, globs: map[string][]*grantEntry{}}
}

const meta = `*?[]{}\`

// literalParts returns the components before the first with a pattern, without the
// last component.
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

// lastLiteral is the last component if it is literal and no brace before it can
// match a slash, "" otherwise.
func lastLiteral(glob string) string {
	last := glob[strings.LastIndexByte(glob, '/')+1:]
	if strings.ContainsAny(last, meta) || strings.Contains(glob, "{") {
		return ""
	}
	return last
}

// covering finds the oldest grant that covers the request. why is the code of why
// another grant does not.
func (c *grantIndex) covering(f *approval.Facts, exact string) (found *grantEntry, why string) {
	note := func(h *grantEntry) {
		switch {
		case !h.RevokedAt.IsZero():
			why = "grant_revoked"
		case !f.Now.Before(h.ExpiresAt):
			why = "grant_expired"
		case h.MaxUses > 0 && h.uses+h.reserved >= h.MaxUses:
			why = "grant_used_up"
		case found == nil || h.CreatedAt.Before(found.CreatedAt) || h.CreatedAt.Equal(found.CreatedAt) && h.ID < found.ID:
			found = h
		}
	}
	if f.ActionType != "" {
		if f.SessionID != "" {
			c.each(key(grant.Session, f.Workspace, f.ClientID, f.ActionType, exact, f.SessionID), note)
		}
		c.each(key(grant.Rule, f.Workspace, f.ClientID, f.ActionType, exact), note)
	}
	if cp, ok := facts.CapabilityNamed(f.Capability); ok && f.Channel != "" && f.Sender != "" {
		for _, session := range sessionsOf(f.SessionID) {
			c.target(f, cp.TargetKind, scopeKey(f.Workspace, f.Channel, f.Sender, session, f.Capability), note)
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

func (c *grantIndex) each(k string, f func(*grantEntry)) {
	for _, h := range c.byKey[k] {
		f(h)
	}
}

func (c *grantIndex) target(f *approval.Facts, kind, scope string, note func(*grantEntry)) {
	switch kind {
	case "none":
		c.each(key(grant.Target, scope, ""), note)
	case "exact":
		if f.Target != "" {
			c.each(key(grant.Target, scope, f.Target), note)
		}
	case "host":
		if h := host(f.Target); h != "" {
			c.each(key(grant.Target, scope, h), note)
		}
	case "path_glob":
		if s := c.globs[scope]; s != nil && clean(f.Target) && f.Target != "" {
			s.match(f.Target, note)
		}
	}
}

// match walks down the components of a path and tries the globs that may
// match.
func (s *globNode) match(target string, note func(*grantEntry)) {
	last := target[strings.LastIndexByte(target, '/')+1:]
	try := func(list []*grantEntry) {
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
		s, rest = s.children[part], after
	}
}
