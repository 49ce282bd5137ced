// Package grant says what an agent may do without a new approval: its level of autonomy,
// the grants that a person gave it, and the taints that take it away again. It is pure.
package grant

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

// The three levels of autonomy, from strict to permissive. Any other value counts
// as ReadOnly.
const (
	ReadOnly   = "readonly"
	Supervised = "supervised"
	Full       = "full"
)

// Levels lists the levels of autonomy, from strict to permissive.
func Levels() []string { return []string{ReadOnly, Supervised, Full} }

// LowerLevel returns the stricter of two levels. An unknown level counts as
// ReadOnly.
func LowerLevel(a, b string) string {
	levels := Levels()
	return levels[max(0, min(slices.Index(levels, a), slices.Index(levels, b)))]
}

// The two taints of a client or session.
const (
	TaintCorruption = "corruption" // it read content that strangers may have written
	TaintSecret     = "secret"     // it read content that strangers must not see
)

// The forms of a grant: how far a request may differ from the one it was given for.
const (
	Tool    = "tool"    // any arguments of the tool, which has no target
	Target  = "target"  // any arguments that lead to the same target
	Again   = "again"   // the same request
	Command = "command" // another command that the pattern covers, with the same other arguments
	Action  = "action"  // any release-only request of the action type
	Program = "program" // the same program with the same plan
)

// Version is the version of grants. Those of version 1 allow nothing: they were wider
// than what was said.
const Version = 2

// Grant is remembered consent, a document of its own. It holds no use count: uses
// are counted from the audit log.
type Grant struct {
	Version        int    `json:"version"`
	ID             string `json:"id"` // the request it was given for, or random digits
	approval.Terms `json:"terms"`
	By             string    `json:"by"` // the person who gave it
	ByID           string    `json:"by_id"`
	Via            string    `json:"via"`
	Reason         string    `json:"reason"`
	CreatedAt      time.Time `json:"created_at"`
	ExpiresAt      time.Time `json:"expires_at"`
	MaxUses        int       `json:"max_uses"` // 0: no limit
	RevokedAt      time.Time `json:"revoked_at,omitzero"`
	RevokedBy      string    `json:"revoked_by,omitzero"`
}

// From is the grant that an approval gives: the offer of its scope, with the pattern that
// the person chose instead of the suggested one. nil means none.
func From(p *approval.Pending, d *approval.Decision) *Grant {
	scope := d.Scope
	if len(d.Commands) > 0 {
		scope = approval.Commands
	}
	o, ok := p.Offer(scope)
	if d.Verdict != approval.Approved || !ok {
		return nil
	}
	if len(d.Commands) > 0 {
		o.Terms.Words = d.Commands
	}
	return &Grant{
		Version: Version, ID: p.RequestID, Terms: o.Terms, By: d.DecidedBy, ByID: d.DecidedByID, Via: d.Via,
		Reason:    "approval of " + p.ShortID,
		CreatedAt: d.DecidedAt, ExpiresAt: d.DecidedAt.Add(time.Duration(o.Hours) * time.Hour),
	}
}

// Use is a grant with its uses from the log.
type Use struct {
	Grant
	Uses     int       `json:"uses"`
	LastUsed time.Time `json:"last_used,omitzero"`
}

// State is active, revoked, expired or "used up".
func (r *Use) State(now time.Time) string {
	switch {
	case !r.RevokedAt.IsZero():
		return "revoked"
	case !now.Before(r.ExpiresAt):
		return "expired"
	case r.MaxUses > 0 && r.Uses >= r.MaxUses:
		return "used up"
	}
	return "active"
}

// Stale says whether the grant was not used for 90 days.
func (r *Use) Stale(now time.Time) bool {
	last := r.CreatedAt
	if r.LastUsed.After(last) {
		last = r.LastUsed
	}
	return now.Sub(last) >= 90*24*time.Hour
}

// Encode returns the body to be sealed.
func (g *Grant) Encode() ([]byte, error) { return codec.Encode(g) }

// Parse reads the body of a grant whose seal was verified. A malformed date is
// an error: an unreadable grant allows nothing.
func Parse(body []byte, id string) (*Grant, error) {
	return codec.Document("grant", body, func(g *Grant) error {
		if g.ID != id {
			return errors.New("id does not match its file")
		}
		return g.Check()
	})
}

// Check refuses an incomplete grant: an empty field would match more than the
// person allowed.
func (g *Grant) Check() error {
	switch {
	case g.Version != Version || !approval.ValidID(g.ID):
		return errors.New("version or id is missing")
	case g.By == "" || g.CreatedAt.IsZero():
		return errors.New("by or created_at is missing")
	case !g.ExpiresAt.After(g.CreatedAt):
		return errors.New("expires_at is missing or not after created_at")
	case g.MaxUses < 0:
		return errors.New("max_uses is negative")
	}
	return CheckTerms(&g.Terms)
}

// CheckTerms refuses terms with an empty field that their form needs, and with a field that
// it does not have.
func CheckTerms(t *approval.Terms) error {
	has := map[string]bool{
		"tool": t.Tool != "", "tool_sha256": t.ToolSHA256 != "", "action_type": t.ActionType != "",
		"target_kind": t.TargetKind != "", "target": t.Target != "", "digest": t.Digest != "", "words": len(t.Words) > 0,
	}
	needs, ok := needed[t.Form]
	if t.Tool == "" && (t.Form == Again || t.Form == Command) { // a release-only exec_cmd
		needs = append([]string{"action_type"}, needs[2:]...)
	}
	if !ok {
		return fmt.Errorf("unknown form %q", t.Form)
	}
	if t.Workspace == "" || t.ClientID == "" {
		return errors.New("workspace or client_id is missing")
	}
	for _, name := range slices.Sorted(maps.Keys(has)) {
		if has[name] != slices.Contains(needs, name) {
			return fmt.Errorf("form %s with %s: %t", t.Form, name, has[name])
		}
	}
	if t.Form == Target && !slices.Contains([]string{"exact", "host", "path_glob"}, t.TargetKind) {
		return fmt.Errorf("unknown target_kind %q", t.TargetKind)
	}
	return nil
}

// needed are the fields of each form besides workspace, client_id and session_id.
var needed = map[string][]string{
	Tool:    {"tool", "tool_sha256"},
	Target:  {"tool", "tool_sha256", "target_kind", "target"},
	Again:   {"tool", "tool_sha256", "digest"},
	Command: {"tool", "tool_sha256", "digest", "words"},
	Action:  {"action_type"},
	Program: {"action_type", "digest"},
}

// Live says whether the grant is neither revoked nor expired. It does not count
// uses.
func (g *Grant) Live(now time.Time) bool {
	return g.RevokedAt.IsZero() && now.Before(g.ExpiresAt)
}

// WhyNot says why an approval of this request cannot be remembered. It
// returns the zero Reason if it can.
func WhyNot(p *approval.Pending, s approval.Scope) approval.Reason {
	if !slices.Contains([]approval.Scope{approval.Session, approval.Always, approval.Commands}, s) {
		return approval.Reason{}
	}
	o, ok := p.Offer(s)
	switch {
	case ok:
		return approval.Reason{}
	case o.WhyNot.IsZero() && s == approval.Commands:
		return approval.Because("command_none")
	case o.WhyNot.IsZero():
		return approval.Because("not_offered")
	}
	return o.WhyNot
}

// Clearing is a person's order to clear the taints of a workspace, or of one
// session that the host issued. The daemon applies and removes it.
type Clearing struct {
	Version   int       `json:"version"`
	ID        string    `json:"id"`
	Workspace string    `json:"workspace"`
	SessionID string    `json:"session_id"`
	By        string    `json:"by"`
	ByID      string    `json:"by_id"`
	Via       string    `json:"via"`
	Reason    string    `json:"reason"`
	At        time.Time `json:"at"`
}

// Encode returns the body to be sealed.
func (c *Clearing) Encode() ([]byte, error) { return codec.Encode(c) }

// ParseClearing reads the body of a clearing whose seal was verified.
func ParseClearing(body []byte, id string) (*Clearing, error) {
	return codec.Document("clearing", body, func(c *Clearing) error {
		if c.ID != id || c.Version != approval.Version || c.Workspace == "" || c.By == "" {
			return errors.New("id, version, workspace or by is missing")
		}
		return nil
	})
}

// Key is the key of a grant or a clearing. Both are stored in one folder.
func Key(id string) approval.Key { return approval.Key{Workspace: "grants", ID: id} }
