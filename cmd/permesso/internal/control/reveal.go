package control

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/httpapi"
)

type revealBody struct {
	OneQuery
	Body none
}

var opReveal = post("reveal", "/requests/{workspace}/{id}/reveal", "Get a request to show what its card masks",
	(*Service).reveal)

func (s *Service) reveal(ctx context.Context, c *httpapi.Caller, in *revealBody) (d waitingDoc, err error) {
	w, err := s.Reveal(ctx, c, in.key())
	if err != nil {
		return d, err
	}
	return docOf(*w)
}

// Reveal returns a request, pending or ended, to a person who wants to see what its card
// masks. Only who may decide it may do that. When it returns the request, the audit log
// durably holds who it was, and the kinds of the secrets. The digest of an ended request
// is "".
func (s *Service) Reveal(ctx context.Context, c *httpapi.Caller, k approval.Key) (*approval.StoredPending, error) {
	p, sha, name, err := s.mayReveal(ctx, c, k)
	if err != nil {
		return nil, err
	}
	kinds := (chat.Style{Redact: home.NewRedaction()}).Masked(p)
	if len(kinds) == 0 {
		return nil, &decide.Refusal{Reason: decide.ErrNotApplicable, Hint: "nothing is masked"}
	}
	entry := event.Entry{
		Event: event.Revealed, Workspace: k.Workspace, RequestID: k.ID, Tool: p.ToolName,
		By: name, ByID: c.Person.StableID(), Via: c.Via, Reason: countMasks(kinds),
	}
	if err := s.Audit(entry); err != nil {
		return nil, fmt.Errorf("nothing is revealed: %w", err)
	}
	return &approval.StoredPending{Pending: p, SHA256: sha}, nil
}

// mayReveal returns the request and the person's name, or the refusal that Decide would
// return to a person who may not decide it.
func (s *Service) mayReveal(
	ctx context.Context, c *httpapi.Caller, k approval.Key,
) (p *approval.Pending, sha, name string, err error) {
	if !approval.ValidID(k.ID) || !ipc.ValidWorkspace(k.Workspace) || !c.Sees(k.Workspace) {
		return nil, "", "", s.refuseReveal(c, approval.Key{})
	}
	st, err := s.Viewer.Story(ctx, k)
	if err != nil {
		return nil, "", "", err
	}
	name, ok := s.Decider.May(k.Workspace, st.Pending, c.Person)
	switch {
	case !ok:
		return nil, "", "", s.refuseReveal(c, k)
	case st.Pending == nil:
		return nil, "", "", &decide.Refusal{Reason: decide.ErrUnknown, Hint: "no request with this ID needed an approver"}
	}
	return st.Pending, st.SHA256, name, nil
}

func (s *Service) refuseReveal(c *httpapi.Caller, k approval.Key) error {
	if s.Decider.Refused != nil {
		s.Decider.Refused(k, c.Person, c.Via)
	}
	return &decide.Refusal{Reason: decide.ErrNotAuthorized}
}

// countMasks is "3 masks: aws key, github token".
func countMasks(kinds []string) string {
	n := fmt.Sprintf("%d masks: ", len(kinds))
	if len(kinds) == 1 {
		n = "1 mask: "
	}
	return n + strings.Join(slices.Compact(slices.Sorted(slices.Values(kinds))), ", ")
}
