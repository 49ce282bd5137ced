// Package grant says what an agent may do without a new approval: its level of autonomy,
// the grants that a person gave it, and the taints that take it away again. It is pure.
package grant

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
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

// Kind says what a grant is bound to.
type Kind string

// The three kinds of grant.
const (
	Session Kind = "session_allow" // client, session and action type
	Rule    Kind = "allow_rule"    // client and action type
	Target  Kind = "grant"         // channel, sender, capability and target
)

// Grant is remembered consent, a document of its own. It holds no use count: uses
// are counted from the audit log.
type Grant struct {
	Version    int       `json:"version"`
	ID         string    `json:"id"` // the request it was given for, or random digits
	Kind       Kind      `json:"kind"`
	Workspace  string    `json:"workspace"`
	ClientID   string    `json:"client_id"`
	SessionID  string    `json:"session_id"` // "": any
	ActionType string    `json:"action_type"`
	Exact      string    `json:"exact"` // digest of a complete command line, see policy.ExactCommand; "": none
	Channel    string    `json:"channel"`
	Sender     string    `json:"sender"`
	Capability string    `json:"capability"`
	TargetKind string    `json:"target_kind"` // exact, host, path_glob
	Target     string    `json:"target"`
	By         string    `json:"by"` // the person who gave it
	ByID       string    `json:"by_id"`
	Via        string    `json:"via"`
	Reason     string    `json:"reason"`
	CreatedAt  time.Time `json:"created_at"`
	ExpiresAt  time.Time `json:"expires_at"`
	MaxUses    int       `json:"max_uses"` // 0: no limit
	RevokedAt  time.Time `json:"revoked_at,omitzero"`
	RevokedBy  string    `json:"revoked_by,omitzero"`
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
	g := &Grant{}
	if err := codec.DecodeOwn(body, g); err != nil {
		return nil, fmt.Errorf("parse grant: %w", err)
	}
	if g.ID != id {
		return nil, errors.New("parse grant: id does not match its file")
	}
	if err := g.Check(); err != nil {
		return nil, fmt.Errorf("parse grant: %w", err)
	}
	return g, nil
}

// Check refuses an incomplete grant: an empty field would match more than the
// person allowed.
func (g *Grant) Check() error {
	switch {
	case g.Version != approval.Version || !approval.ValidID(g.ID) || g.Workspace == "":
		return errors.New("version, id or workspace is missing")
	case g.By == "" || g.CreatedAt.IsZero():
		return errors.New("by or created_at is missing")
	case !g.ExpiresAt.After(g.CreatedAt):
		return errors.New("expires_at is missing or not after created_at")
	case g.MaxUses < 0:
		return errors.New("max_uses is negative")
	}
	switch g.Kind {
	case Session, Rule:
		if g.ClientID == "" || g.ActionType == "" {
			return errors.New("client_id or action_type is missing")
		}
		if g.Kind == Session && g.SessionID == "" {
			return errors.New("session_id is missing")
		}
		return nil
	case Target:
		return g.checkTarget()
	}
	return fmt.Errorf("unknown kind %q", g.Kind)
}

func (g *Grant) checkTarget() error {
	c, ok := facts.CapabilityNamed(g.Capability)
	switch {
	case !ok:
		return fmt.Errorf("unknown capability %q", g.Capability)
	case g.Channel == "" || g.Sender == "":
		return errors.New("channel or sender is missing")
	case g.TargetKind != c.TargetKind:
		return fmt.Errorf("target_kind of %s must be %s, not %q", g.Capability, c.TargetKind, g.TargetKind)
	case g.Target == "" && c.TargetKind != "none":
		return errors.New("target is missing")
	}
	return nil
}

// Live says whether the grant is neither revoked nor expired. It does not count
// uses.
func (g *Grant) Live(now time.Time) bool {
	return g.RevokedAt.IsZero() && now.Before(g.ExpiresAt)
}

// WhyNot says why an approval of this request cannot be remembered. It
// returns the zero Reason if it can.
func WhyNot(p *approval.Pending, s approval.Scope) approval.Reason {
	c, has := facts.CapabilityNamed(p.Capability)
	switch {
	case s != approval.Session && s != approval.Always:
		return approval.Reason{}
	case p.Type == approval.TypeQuestion:
		return approval.Because("answer_once")
	case s == approval.Session && p.SessionID == "":
		return approval.Because("no_session")
	case has && c.Default == facts.AskAlways:
		return approval.Because("always_asks", "capability", c.Name)
	case p.ToolName != "" && p.ToolSHA256 == "":
		return approval.Because("unknown_tool")
	case p.ActionType == "":
		return approval.Because("no_action_type")
	case p.ToolName == "" && p.ActionType == "exec_cmd" && p.Ruling.Exact == "":
		return approval.Because("opens_programs")
	}
	return approval.Reason{}
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
	c := &Clearing{}
	if err := codec.DecodeOwn(body, c); err != nil {
		return nil, fmt.Errorf("parse clearing: %w", err)
	}
	if c.ID != id || c.Version != approval.Version || c.Workspace == "" || c.By == "" {
		return nil, errors.New("parse clearing: id, version, workspace or by is missing")
	}
	return c, nil
}

// Key is the key of a grant or a clearing. Both are stored in one folder.
func Key(id string) approval.Key { return approval.Key{Workspace: "grants", ID: id} }
