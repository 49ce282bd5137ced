package web

import (
	"errors"
	"net/http"
	"slices"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
)

// reveal lets the next page of the request show what its card masks, once: a reload hides
// it again. That page is a GET, so that a reload does not send the form another time.
func (v *visit) reveal() {
	k := approval.Key{Workspace: v.r.PathValue("ws"), ID: v.r.PathValue("id")}
	if v.Backend.Reveal == nil || !approval.ValidID(k.ID) || !slices.Contains(v.rights.See, k.Workspace) {
		v.fail(http.StatusNotFound, v.w.RequestNotFound)
		return
	}
	_, err := v.Backend.Reveal(v.r.Context(), v.se.user, k)
	switch {
	case errors.Is(err, decide.ErrNotApplicable): // nothing is masked any more
		v.redirect(pathOf(k))
	case errors.As(err, new(*decide.Refusal)):
		v.fail(http.StatusNotFound, v.w.RequestNotFound)
	case err != nil:
		v.internalError(err)
	default:
		v.redirect(pathOf(k) + "?revealed=" + v.se.allowReveal(k))
	}
}

// revealsNow reports whether this page may show what the card masks, and uses that up.
func (v *visit) revealsNow(k approval.Key) bool {
	return v.r.Method == http.MethodGet && v.se.useReveal(k, v.r.URL.Query().Get("revealed"))
}

// mayReveal reports whether the page offers to show what the card masks.
func (v *visit) mayReveal(p *approval.Pending) bool {
	return v.Backend.Reveal != nil && v.mayDecide(p)
}

// mayDecide reports whether the user may decide a request.
func (v *visit) mayDecide(p *approval.Pending) bool {
	return slices.Contains(v.rights.Decide, p.SourceGroup) && v.People.May(v.se.user, p.SourceGroup, p)
}
