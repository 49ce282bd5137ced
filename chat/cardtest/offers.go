package cardtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/grant"
)

// offersOf offers terms for the session and for always: as given, with what all terms of
// p's grants have.
func offersOf(p *approval.Pending, t approval.Terms) []approval.Offer {
	t.Workspace, t.ClientID, t.Tool, t.ToolSHA256 = p.SourceGroup, p.ClientID, p.ToolName, p.ToolSHA256
	if p.ToolName == "" {
		t.ActionType = p.ActionType
	}
	session := t
	session.SessionID = p.SessionID
	return []approval.Offer{
		{Scope: approval.Session, Terms: session, Hours: 24, Would: 9, Of: 20},
		{Scope: approval.Always, Terms: t, Hours: 90 * 24, Would: 14, Of: 20},
	}
}

// offers are what the engine offers for p, by its capability.
func offers(p *approval.Pending) []approval.Offer {
	var t approval.Terms
	origin, ok := facts.Origin(p.Target)
	switch {
	case p.ActionType == "exec_cmd" && p.ToolName == "", p.Capability == "code:exec", p.Capability == "mail:send":
		t.Form, t.Digest = grant.Again, "5e"
	case p.ToolName == "":
		t.Form = grant.Action
	case p.Target == "":
		t.Form = grant.Tool
	case p.Capability != "network:http":
		t.Form, t.TargetKind, t.Target = grant.Target, "exact", p.Target
	case ok:
		t.Form, t.TargetKind, t.Target = grant.Target, "host", origin
	default:
		return nil
	}
	return offersOf(p, t)
}

// misnames returns what is wrong with the sentence of an offer, or "": a person must be able
// to read the target in it, whole, and no other terms may have the same sentence.
func (j *judge) misnames(c card) string {
	for _, o := range c.offers {
		said := c.said[o.Scope]
		line := readLine(said)
		hidden := slices.ContainsFunc(line, func(g glyph) bool { return g.masked > 0 || g.ref != "" })
		key := fmt.Sprintf("%q", []string{
			o.Terms.Form, o.Terms.Workspace, o.Terms.ClientID, o.Terms.SessionID, o.Terms.Tool, o.Terms.ActionType,
			o.Terms.TargetKind, o.Terms.Target,
		})
		switch other, known := j.told[said]; {
		case said == "":
			continue // not offered here
		case strings.Contains(said, "\n") || hidden || invisible(said) != "":
			return "a sentence hides something: " + said
		case o.Terms.Form == grant.Target && !namesTarget(line, o.Terms):
			return fmt.Sprintf("a sentence does not name its target %q: %s", o.Terms.Target, said)
		case known && other != key:
			return fmt.Sprintf("one sentence for %s and %s: %s", key, other, said)
		}
		j.told[said] = key
		if i := slices.IndexFunc(c.forms, func(form string) bool { return !strings.Contains(form, said) }); i >= 0 {
			return fmt.Sprintf("form %d of the card lacks a sentence: %s", i, said)
		}
	}
	return ""
}

// namesTarget reports whether the target can be read on a line, or each text of a list.
func namesTarget(line []glyph, t approval.Terms) bool {
	texts := []string{t.Target}
	if t.TargetKind == "exact" {
		texts[0] = t.Target
	}
	read := func(text string) bool {
		r := &reader{page: page{line}}
		return slices.ContainsFunc(r.places(0), func(p place) bool { return r.bareOrQuoted(p, text) })
	}
	if read(texts[0]) {
		return true
	}
	v, err := parse([]byte(t.Target))
	if err != nil || v.kind != 'l' {
		return false
	}
	return !slices.ContainsFunc(v.items, func(x *value) bool { return x.kind != 's' || !read(x.text) })
}

// bareOrQuoted reports whether a text stands there, first in a list or not: one word, or
// in quotation marks.
func (r *reader) bareOrQuoted(p place, text string) bool {
	if r.is(p, '[') {
		p.at++
	}
	if _, ok := r.quoted(p, field{typ: "name", text: text}); ok {
		return true
	}
	return text != "" && !strings.ContainsAny(text, ` ,"`) && r.span(&p, piece{text: text})
}
