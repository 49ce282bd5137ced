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
	Kind       string     `json:"kind" enum:"allow_rule,session_allow,grant"`
	State      string     `json:"state" enum:"active,expired,used up,revoked"`
	ClientID   string     `json:"client_id"`
	SessionID  string     `json:"session_id"`
	ActionType string     `json:"action_type"`
	Capability string     `json:"capability" doc:"Only for kind grant."`
	TargetKind string     `json:"target_kind" doc:"Only for kind grant: exact, host, path_glob or none."`
	Target     string     `json:"target" doc:"Only for kind grant."`
	Exact      bool       `json:"exact" doc:"It allows only one exact command line."`
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
	ID string `path:"id" pattern:"^([0-9a-f]{16,64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$"`
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
		kind           grant.Kind
		path, id, what string
		revoke         []string
	}{
		{grant.Rule, "allow-rules", "allow-rule", "allow rules: one action type of one client, always", revoke},
		{grant.Session, "session-allows", "session-allow", "session allows: one action type of one client, for a session", revoke},
		{grant.Target, "grants", "grant", "grants: a capability on a target, for every client of the workspace", []string{apikey.MayDecide}},
	} {
		base := "/v1/" + x.path
		register(api, op("list-"+x.path, http.MethodGet, base, "List "+x.what,
			"A key with the scope request sees only its own; of grants, all of its workspace.", read),
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
			"After the response it allows nothing. 204 also if it was already revoked.", x.revoke, http.StatusNotFound)
		revokeOp.DefaultStatus = http.StatusNoContent
		huma.Register(api, revokeOp, func(ctx context.Context, in *ruleIn) (*struct{}, error) {
			return nil, s.revoke(keyFrom(ctx), x.kind, in.ID)
		})
	}
}

func (s *Server) grantsOf(k *apikey.Key, kind grant.Kind) []grant.Use {
	if s.Grants == nil {
		return nil
	}
	var list []grant.Use
	for _, c := range s.Grants.GrantsIn(k.Workspace) {
		if c.Kind == kind && (kind == grant.Target || s.clientOf(k).Sees(c.ClientID)) {
			list = append(list, c)
		}
	}
	return list
}

func (s *Server) findGrant(k *apikey.Key, kind grant.Kind, id string) (*grant.Use, error) {
	for _, c := range s.grantsOf(k, kind) {
		if c.ID == id {
			return &c, nil
		}
	}
	return nil, problem(http.StatusNotFound, detailNoRule)
}

func (s *Server) revoke(k *apikey.Key, kind grant.Kind, id string) error {
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
		ID: c.ID, Kind: string(c.Kind), State: c.State(s.Now()), ClientID: c.ClientID, SessionID: c.SessionID, ActionType: c.ActionType,
		Capability: c.Capability, TargetKind: c.TargetKind, Target: c.Target, Exact: c.Exact != "", By: c.By, Via: c.Via,
		CreatedAt: c.CreatedAt.UTC(), ExpiresAt: c.ExpiresAt.UTC(), Uses: c.Uses, MaxUses: c.MaxUses,
		LastUsed: nonEmpty(c.LastUsed.UTC()), RevokedAt: nonEmpty(c.RevokedAt.UTC()),
	}
}
