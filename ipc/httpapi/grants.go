package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/grant"
)

// Rule is a grant.
type Rule struct {
	ID         string     `json:"id" pattern:"^([0-9a-f]{16,64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$"`
	Kind       string     `json:"kind" enum:"allow_rule,session_allow"`
	State      string     `json:"state" enum:"active,expired,used up,revoked"`
	ClientID   string     `json:"client_id"`
	SessionID  string     `json:"session_id"`
	Form       string     `json:"form" enum:"tool,target,again,command,action" doc:"What it allows: any call of the tool, one target, the same request, a command pattern, or an action type."`
	Tool       string     `json:"tool_name" doc:"Empty: release-only, it opens no tool."`
	ActionType string     `json:"action_type" doc:"Of a release-only request."`
	TargetKind string     `json:"target_kind" doc:"Of form target: exact, host or path_glob."`
	Target     string     `json:"target"`
	Words      []string   `json:"words,omitempty" doc:"Of form command: its pattern."`
	By         string     `json:"by"`
	Via        string     `json:"via"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  time.Time  `json:"expires_at"`
	Uses       int        `json:"uses"`
	MaxUses    int        `json:"max_uses" doc:"0 means no limit."`
	LastUsed   *time.Time `json:"last_used"`
	RevokedAt  *time.Time `json:"revoked_at"`
}

type ruleIn struct {
	ID string `path:"id" doc:"The id of a grant."`
}

// Rules is a list of grants, the newest first.
type Rules struct {
	Items []Rule `json:"items" nullable:"false"`
}

// grants declares the operations on the three kinds of grants. They differ in their paths
// and in what they are bound to.
func (s *Server) grants(api huma.API) {
	read := readScopes()
	revoke := []string{apikey.MayRequest, apikey.MayDecide}
	for _, x := range []struct {
		kind           string
		path, id, what string
	}{
		{kindAlways, "allow-rules", "allow-rule", "grants of code 6: for any session of one client"},
		{kindSession, "session-allows", "session-allow", "grants of code 2: for one session of one client"},
		{"", "grants", "grant", "grants"},
	} {
		base := "/v1/" + x.path
		register(api, op("list-"+x.path, http.MethodGet, base, "List "+x.what,
			"A key with the scope request sees only its own.", read),
			func(_ context.Context, k *apikey.Key, _ *struct{}) (*Rules, error) {
				list := &Rules{Items: []Rule{}}
				for _, c := range s.grantsOf(k, x.kind) {
					list.Items = append(list.Items, s.rule(c))
				}
				return list, nil
			})
		register(api, op("get-"+x.id, http.MethodGet, base+"/{id}", "Get one of the "+x.what, "", read, http.StatusNotFound),
			func(_ context.Context, k *apikey.Key, in *ruleIn) (*Rule, error) {
				c, err := s.findGrant(k, x.kind, in.ID)
				if err != nil {
					return nil, err
				}
				return new(s.rule(*c)), nil
			})
		revokeOp := op("revoke-"+x.id, http.MethodDelete, base+"/{id}", "Revoke one of the "+x.what,
			"After the response it allows nothing. 204 also if it was already revoked.", revoke, http.StatusNotFound)
		revokeOp.DefaultStatus = http.StatusNoContent
		huma.Register(api, revokeOp, func(ctx context.Context, in *ruleIn) (*struct{}, error) {
			return nil, s.revoke(keyFrom(ctx), x.kind, in.ID)
		})
	}
}

// The kinds of grants by the code that gives them.
const (
	kindAlways  = "allow_rule"
	kindSession = "session_allow"
)

func kindOf(g *grant.Grant) string {
	if g.SessionID != "" {
		return kindSession
	}
	return kindAlways
}

// grantsOf lists the grants of a kind that a key may see; "" is every kind.
func (s *Server) grantsOf(k *apikey.Key, kind string) []grant.Use {
	if s.Grants == nil {
		return nil
	}
	var list []grant.Use
	for _, c := range s.Grants.GrantsIn(k.Workspace) {
		if (kind == "" || kindOf(&c.Grant) == kind) && s.clientOf(k).Sees(c.ClientID) {
			list = append(list, c)
		}
	}
	return list
}

func (s *Server) findGrant(k *apikey.Key, kind, id string) (*grant.Use, error) {
	for _, c := range s.grantsOf(k, kind) {
		if c.ID == id {
			return &c, nil
		}
	}
	return nil, problem(http.StatusNotFound, detailNoRule)
}

func (s *Server) revoke(k *apikey.Key, kind, id string) error {
	if _, err := s.findGrant(k, kind, id); err != nil {
		return err
	}
	by := k.Owner
	if k.Can(apikey.MayRequest) {
		by = "client " + k.ClientID()
	}
	if _, err := s.Grants.RevokeGrant(id, by); err != nil {
		return s.internalError("revoke grant failed: "+id, err)
	}
	return nil
}

func (s *Server) rule(c grant.Use) Rule {
	return Rule{
		ID: c.ID, Kind: kindOf(&c.Grant), State: c.State(s.Now()), ClientID: c.ClientID, SessionID: c.SessionID,
		Form: c.Form, Tool: c.Tool, ActionType: c.ActionType, TargetKind: c.TargetKind, Target: c.Target, Words: c.Words, By: c.By, Via: c.Via,
		CreatedAt: c.CreatedAt.UTC(), ExpiresAt: c.ExpiresAt.UTC(), Uses: c.Uses, MaxUses: c.MaxUses,
		LastUsed: nonEmpty(c.LastUsed.UTC()), RevokedAt: nonEmpty(c.RevokedAt.UTC()),
	}
}
