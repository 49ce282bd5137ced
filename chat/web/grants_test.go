package web_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/web"
)

func (w *fixture) proposeRule(context.Context, web.User, approval.Key) (chat.Proposal, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.proposal, w.proposalErr
}

// withPattern makes a request of a command for which a pattern is offered.
func withPattern(p *approval.Pending) {
	again := approval.Terms{
		Form: grant.Again, Workspace: workspace, ClientID: "ws:personal", Tool: "shell", ToolSHA256: "t", Digest: "5e",
	}
	pattern := again
	pattern.Form, pattern.Words = grant.Command, []string{"go", "test", "..."}
	p.ToolName, p.Capability, p.RequestData = "shell", "code:exec", approval.Raw(`{"command":"go test ./a"}`)
	p.Offers = []approval.Offer{
		{Scope: approval.Session, WhyNot: approval.Because("no_session")},
		{Scope: approval.Always, Terms: again, Hours: 2160},
		{Scope: approval.Commands, Terms: pattern, Hours: 2160, Would: 3, Of: 7},
	}
}

// textOf is the text of the element with an id, "" without one.
func textOf(p *page, id string) string {
	if n := p.find(id); n != nil {
		return innerText(n)
	}
	return ""
}

const patternSentence = "Always: shell like \"go test ...\" without other options in personal, 90 days"

// A button that gives a grant says the grant's sentence, and is there only where it is offered.
func TestOffers(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	for _, c := range []struct {
		why                       string
		change                    func(p *approval.Pending)
		session, always, commands string
		count                     string
	}{
		{
			why: "both", session: "For this session: x_post with any arguments in personal",
			always: "Always: x_post with any arguments in personal, 90 days",
		},
		{why: "none", change: func(p *approval.Pending) { p.Offers = nil }},
		{
			why: "only for a session", change: func(p *approval.Pending) {
				p.Offers[1] = approval.Offer{Scope: approval.Always, WhyNot: approval.Because("not_offered")}
			}, session: "For this session: x_post with any arguments in personal",
		},
		{
			why: "a pattern", change: withPattern, always: "Always: exactly this shell request again in personal, 90 days",
			commands: patternSentence, count: "It would have allowed 3 of the last 7 requests that were asked.",
		},
	} {
		p := b.get(b.pathOf(w.addRequest(1, c.change)))
		require.Equal(t, c.session, textOf(p, "code-2"), c.why)
		require.Equal(t, c.always, textOf(p, "code-6"), c.why)
		require.Equal(t, c.commands, textOf(p, "code-commands"), c.why)
		require.Equal(t, c.count, textOf(p, "commands-count"), c.why)
	}
}

// A grant is given with one sentence in view that says what is allowed, and the page says it again with Undo.
func TestGiveAndUndo(t *testing.T) {
	for _, c := range []struct {
		why      string
		change   func(p *approval.Pending)
		form     url.Values
		commands string
		sure     string // on the button of the confirmation
		given    string // the end of a grant is a date
	}{
		{
			"session", nil,
			url.Values{"code": {"2"}},
			"", "Yes, allow this now, and for this session allow x_post with any arguments in personal",
			"In session s1: x_post with any arguments in personal, until ",
		},
		{
			"always", nil,
			url.Values{"code": {"6"}},
			"", "Yes, allow this now, and for 90 days allow x_post with any arguments in personal",
			"Always: x_post with any arguments in personal, until ",
		},
		{
			"pattern", withPattern,
			url.Values{"code": {"6"}, "commands": {"go test ..."}},
			"go test ...", "Yes, allow this now, and for 90 days allow shell like \"go test ...\" without other options in personal",
			"Always: shell like \"go test ...\" without other options in personal, until ",
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			w := newFixture(t)
			b := w.login()
			k := w.addRequest(1, func(p *approval.Pending) {
				p.Reversibility = approval.Irreversible
				if c.change != nil {
					c.change(p)
				}
			})
			sure := b.decide(k, c.form)
			require.Equal(t, http.StatusOK, sure.StatusCode)
			require.Zero(t, w.decisionCount())
			require.Equal(t, c.sure, innerText(sure.find("sure")))
			require.Equal(t, c.commands, hiddenValue(sure.find("confirm"), "commands"))
			c.form.Set("sure", "yes")
			p := b.follow(b.decide(k, c.form))
			require.Equal(t, 1, w.decisionCount())
			require.Equal(t, c.commands, w.decisions[0].Commands)
			require.NotNil(t, p.find("undo"), "beside the sentence that says what was decided")
			p = b.get(b.pathOf(k))
			require.Contains(t, textOf(p, "grant"), c.given)
			require.NotNil(t, p.find("undo"))

			g := grant.From(w.asked[k], w.decided[k])
			w.grants = []grant.Use{{Grant: *g}}
			require.Contains(t, textOf(b.page("grants"), "grants"), c.given)
			p = b.follow(b.post(b.pathOf(k)+"/undo", url.Values{"undo": {"yes"}}))
			require.Contains(t, innerText(p.find("note")), c.given)
			require.False(t, w.grants[0].RevokedAt.IsZero())
			require.Nil(t, p.find("undo"), "it is revoked")
			require.Nil(t, p.find("grant"))
		})
	}
}

func hiddenValue(form *html.Node, name string) string {
	for n := range form.Descendants() {
		if n.Data == "input" && attr(n, "name") == name {
			return attr(n, "value")
		}
	}
	return ""
}

// No form gives a grant that its page does not offer.
func TestNotOffered(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	shell := w.addRequest(1, withPattern)
	none := w.addRequest(2, func(p *approval.Pending) { p.Offers = nil })
	for _, c := range []struct {
		key  approval.Key
		form url.Values
		code int
	}{
		{shell, url.Values{"code": {"6"}, "commands": {"go ..."}}, http.StatusUnprocessableEntity},
		{shell, url.Values{"code": {"6"}, "commands": {"go test ...", "go test ..."}}, http.StatusBadRequest},
		{shell, url.Values{"code": {"1"}, "commands": {"go test ..."}}, http.StatusBadRequest},
		{shell, url.Values{"code": {"2"}}, http.StatusSeeOther},
		{none, url.Values{"code": {"6"}, "commands": {"go test ..."}}, http.StatusUnprocessableEntity},
		{none, url.Values{"code": {"6"}}, http.StatusSeeOther},
		{none, url.Values{"code": {"2"}}, http.StatusSeeOther},
	} {
		c.form.Set("sure", "yes")
		p := b.decide(c.key, c.form)
		require.Equal(t, c.code, p.StatusCode, c.form)
		if c.code == http.StatusSeeOther {
			require.Contains(t, innerText(b.follow(p).find("note")), "not possible", c.form)
		}
	}
	require.Zero(t, w.decisionCount())
}

// Only who may decide in the workspace is shown Undo.
func TestUndoIsForDeciders(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	k := w.addRequest(1, nil)
	b.decide(k, url.Values{"code": {"6"}})
	w.allow(func(r *web.Rights) { r.Decide = nil })
	p := b.get(b.pathOf(k))
	require.NotNil(t, p.find("grant"))
	require.Nil(t, p.find("undo"))
}

// The history names the grant that allowed a request by its sentence.
func TestHistoryNamesGrants(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	w.grants = []grant.Use{{Grant: grant.Grant{
		ID:    "5e5e5e5e5e5e5e5e",
		Terms: approval.Terms{Form: grant.Tool, Workspace: workspace, ClientID: "ws:personal", Tool: "x_post"},
	}}}
	k := approval.Key{Workspace: workspace, ID: "a7f3b2c1d4e5f6a7"}
	w.history = []*read.Request{{
		Key: k, Tool: "x_post", Status: approval.StatusAutoApproved, Rule: "consent", Grant: "5e5e5e5e5e5e5e5e",
	}}
	require.Contains(t, b.page("history").text, "Always: x_post with any arguments in personal")
	w.history[0].Grant = "0000000000000000" // it was removed
	require.Contains(t, b.page("history").text, "consent")
}

// The page of a proposed rule shows its lines and what they would have allowed, and has no
// form that changes anything.
func TestProposeRule(t *testing.T) {
	w := newFixture(t)
	b := w.login()
	k := w.addRequest(1, nil)
	require.Equal(t, b.pathOf(k)+"/rule", attr(b.get(b.pathOf(k)).find("propose"), "href"))
	w.proposal = chat.Proposal{Rule: "[[rules]]\nmatch = { tool = \"<b>\" }", Would: 3, Of: 7}
	p := b.get(b.pathOf(k) + "/rule")
	require.Equal(t, http.StatusOK, p.StatusCode)
	require.Contains(t, innerText(p.find("rule")), w.proposal.Rule)
	require.Contains(t, textOf(p, "rule-says"), "It would have allowed 3 of the last 7 requests that were asked.")
	require.Contains(t, p.text, "permesso rule add --from "+k.ID[:8])
	for n := range p.find("main").Descendants() {
		require.NotContains(t, []string{"form", "input", "textarea", "button"}, n.Data)
	}

	w.proposal = chat.Proposal{WhyNot: []approval.Reason{approval.Because("rule_masked")}}
	p = b.get(b.pathOf(k) + "/rule")
	require.Contains(t, textOf(p, "rule-says"), "No rule can allow this request:")
	require.Contains(t, textOf(p, "rule-says"), "it holds a secret")
	require.NotContains(t, p.text, "[[rules]]")

	for status, err := range map[int]error{
		http.StatusInternalServerError: errors.New("disk full"),
		http.StatusNotFound:            &decide.Refusal{Reason: decide.ErrUnknown},
	} {
		w.proposalErr = err
		require.Equal(t, status, b.get(b.pathOf(k)+"/rule").StatusCode)
	}
	w.proposalErr = nil
	asks := w.addRequest(3, func(p *approval.Pending) {
		p.Ruling.Reasons = append(p.Ruling.Reasons, approval.Because("rule_ask", "rule", "r"))
	})
	require.Nil(t, b.get(b.pathOf(asks)).find("propose"), "no rule lifts the ask of another")
	require.Equal(t, http.StatusOK, b.get(b.pathOf(asks)+"/rule").StatusCode, "the page says why")
	release := w.addRequest(2, func(p *approval.Pending) { p.ToolName, p.ToolSHA256 = "", "" })
	require.Nil(t, b.get(b.pathOf(release)).find("propose"))
	require.Equal(t, http.StatusNotFound, b.get(b.pathOf(release)+"/rule").StatusCode)
	w.allow(func(r *web.Rights) { r.Operator, r.See = false, []string{"other"} })
	require.Equal(t, http.StatusNotFound, b.get(b.pathOf(k)+"/rule").StatusCode)
}
