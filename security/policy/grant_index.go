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

// grantIndex finds the grants that may cover a request, by a key. A glob's key has its
// literal first components and its literal last component.
type grantIndex struct {
	byID  map[string]*grantEntry
	byKey map[indexKey][]*grantEntry
}

// indexKey is the key of grants that are looked up together.
type indexKey struct {
	kind         grant.Kind
	parts        string // what the grant is bound to
	folder, last string // only of a glob
}

func newGrantIndex() *grantIndex {
	return &grantIndex{byID: map[string]*grantEntry{}, byKey: map[indexKey][]*grantEntry{}}
}

const sep = "\x00"

func key(kind grant.Kind, parts ...string) indexKey {
	return indexKey{kind: kind, parts: strings.Join(parts, sep)}
}

// keyOf is the index key of a grant.
func keyOf(g *grant.Grant) indexKey {
	scope := scopeKey(g.Workspace, g.Channel, g.Sender, g.SessionID, g.Capability)
	switch {
	case g.Kind == grant.Session:
		return key(g.Kind, g.Workspace, g.ClientID, g.ActionType, g.Exact, g.SessionID)
	case g.Kind == grant.Rule:
		return key(g.Kind, g.Workspace, g.ClientID, g.ActionType, g.Exact)
	case g.TargetKind == "path_glob":
		return indexKey{g.Kind, scope, literalFolder(g.Target), lastLiteral(g.Target)}
	case g.TargetKind == "host":
		return key(g.Kind, scope, host(g.Target))
	}
	return key(g.Kind, scope, g.Target)
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

func (c *grantIndex) each(k indexKey, f func(*grantEntry)) {
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
		if clean(f.Target) && f.Target != "" {
			c.globs(f.Target, scope, note)
		}
	}
}

// globs tries the globs whose literal first components begin a path.
func (c *grantIndex) globs(target, scope string, note func(*grantEntry)) {
	try := func(h *grantEntry) {
		if ok, err := doublestar.Match(h.Target, target); err == nil && ok {
			note(h)
		}
	}
	last := target[strings.LastIndexByte(target, '/')+1:]
	for folder := target; ; folder = folder[:len(folder)-1] {
		folder = folder[:strings.LastIndexByte(folder, '/')+1]
		c.each(indexKey{grant.Target, scope, folder, last}, try)
		if last != "" {
			c.each(indexKey{grant.Target, scope, folder, ""}, try)
		}
		if folder == "" {
			return
		}
	}
}
