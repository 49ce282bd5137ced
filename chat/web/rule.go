package web

import (
	"errors"
	"net/http"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
)

// rulePage shows a rule that would allow a request. It changes nothing.
type rulePage struct {
	*requestPage
	Says  []string // what the rule would have allowed, or why there is none
	Lines string   // of permesso.toml; "": there is no such rule
}

// proposeRule is the page of a rule that would allow a request.
func (v *visit) proposeRule() {
	k := approval.Key{Workspace: v.r.PathValue("ws"), ID: v.r.PathValue("id")}
	p, err := v.loadRequest(k)
	switch {
	case err != nil:
		v.internalError(err)
		return
	case p == nil || !p.MayPropose:
		v.fail(http.StatusNotFound, v.w.RequestNotFound)
		return
	}
	x, err := v.Backend.ProposeRule(v.r.Context(), v.se.user, k)
	switch {
	case errors.As(err, new(*decide.Refusal)):
		v.fail(http.StatusNotFound, v.w.RequestNotFound)
	case err != nil:
		v.internalError(err)
	default:
		p.Here, p.Stream, p.Refresh = "rule", "", false
		v.write(v.rw, http.StatusOK, "rule", rulePage{p, v.Style(v.lang).Proposal(p.Pending, x), x.Rule})
	}
}
