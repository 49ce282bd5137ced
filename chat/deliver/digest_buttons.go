package deliver

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// The verbs of the buttons about all requests of a digest.
const (
	verbDenyAll = "denyall"
	verbPause   = "pause"
)

// maxViews is how many views of a digest are kept. The buttons of older ones have expired.
const maxViews = 5

// view is what a digest showed: the SHA-256 of each pending request, by ID. Its nonce is durable before it is shown.
type view struct {
	Nonce string            `json:"nonce"`
	Shown map[string]string `json:"shown"`
}

// digestButtons are the buttons about all requests of a digest, of which these are shown.
func (s *session) digestButtons(d *digest, shown map[string]string) (row []Button, err error) {
	t := catalogFor(d.Language)
	n, err := s.viewOf(d.ID, shown)
	if err != nil {
		return nil, err
	}
	deny := t.DenyThis
	if len(shown) > 1 {
		deny = chat.Format(t.DenyThese, "n", strconv.Itoa(len(shown)))
	}
	row = []Button{{deny, verbDenyAll + ":" + n}}
	if s.Pauser != nil && s.pauseOf(d.Workspace) == nil {
		row = append(row, Button{Truncate(chat.Format(t.Pause, "workspace", chat.Escape(d.Workspace)), maxOptionText), verbPause + ":" + n})
	}
	return row, nil
}

// viewOf returns the nonce of the view with exactly these requests. A new one is durable on return.
func (s *session) viewOf(id string, shown map[string]string) (nonceOf string, err error) {
	s.digests.mu.Lock()
	defer s.digests.mu.Unlock()
	next := *s.digests.all[id]
	if n := len(next.Views); n > 0 && maps.Equal(next.Views[n-1].Shown, shown) {
		return next.Views[n-1].Nonce, nil
	}
	v := view{nonce(), shown}
	kept := next.Views[max(0, len(next.Views)-maxViews+1):]
	next.Views = append(slices.Clone(kept), v)
	return v.Nonce, s.saveDigest(&next)
}

// findView returns the digest and the view of a button's nonce.
func (s *session) findView(n string) (*digest, view) {
	s.digests.mu.Lock()
	defer s.digests.mu.Unlock()
	for _, d := range s.digests.all {
		for _, v := range d.Views {
			if v.Nonce == n {
				return d, v
			}
		}
	}
	return nil, view{}
}

// handleDigestButton handles a tap on a button about all requests of a digest.
func (t *incomingTap) handleDigestButton(ctx context.Context, verb string, d *digest, v view) {
	t.language = d.Language
	_, may := t.Guard.May(d.Workspace, nil, t.person)
	switch {
	case !may || d.Chat != t.At.Chat || !t.serves(d.Workspace):
		t.refuseTap(approval.Key{})
	case d.Message != "" && d.Message != t.Message:
		t.answer(catalogFor(t.language).ButtonExpired, true)
	case verb == verbDenyAll:
		t.denyAll(ctx, d, v)
	case verb == verbPause && t.Pauser != nil:
		w := incomingText{session: t.session, person: t.person, language: t.language}
		t.notify(w.pauseOrResumeOne(ctx, "pause", d.Workspace, ""), false)
		t.queueDigest(d.ID)
	default:
		t.refuseTap(approval.Key{})
	}
}

// denyAll denies the requests of a view, each as a tap on its own card would: if this user may decide it, and if it
// is as it was when its line was shown. The answer says how many others wait.
func (t *incomingTap) denyAll(ctx context.Context, d *digest, v view) {
	denied, left, why := 0, 0, ""
	for _, id := range d.Requests {
		sha, shown := v.Shown[id]
		if !shown {
			continue
		}
		k := approval.Key{Workspace: d.Workspace, ID: id}
		text, done := t.denyShown(ctx, k, sha)
		if done {
			denied++
			continue
		}
		left, why = left+1, text
	}
	if denied == 0 {
		t.notify(why, true)
		return
	}
	w := catalogFor(t.language)
	text := chat.Format(w.DeniedThese, "workspace", chat.Escape(d.Workspace), "n", strconv.Itoa(denied))
	if left > 0 {
		text += chat.Format(w.LeftAlone, "n", strconv.Itoa(left))
	}
	others, err := t.decidable(ctx, listRequest{person: t.person, workspaces: []string{d.Workspace}})
	t.log(err)
	if len(others) > 0 {
		text += chat.Format(w.OthersOpen, "n", strconv.Itoa(len(others)))
	}
	t.notify(text, left+len(others) > 0)
}

// denyShown denies one request that was shown with this digest.
func (t *incomingTap) denyShown(ctx context.Context, k approval.Key, sha string) (text string, done bool) {
	st, err := t.status(ctx, k)
	switch {
	case err != nil:
		t.log(err)
		return catalogFor(t.language).Unsure, false
	case st.Pending == nil:
		return catalogFor(t.language).UnknownRequest, false
	}
	if _, ok := t.Guard.May(k.Workspace, st.Pending, t.person); !ok {
		return t.refusalText(t.language), false
	}
	reply := t.cardReply(buttonRef{key: k}, &sentRecord{SHA256: sha}, st)
	return reply.submit(ctx, textOf(buttonRef{key: k, verb: "3"}, st.Pending))
}
