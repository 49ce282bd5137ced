package terminal

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/grant"
)

// fakeGrants gives what a decision gives, and revokes it.
type fakeGrants struct {
	given   []grant.Grant
	revoked []approval.Person
}

func (f *fakeGrants) Given(p *approval.Pending, d *approval.Decision) *grant.Grant {
	g := grant.From(p, d)
	if g != nil {
		f.given = append(f.given, *g)
	}
	return g
}

func (f *fakeGrants) Remembered(context.Context, []string) ([]grant.Grant, error) {
	return f.given, nil
}

func (f *fakeGrants) Revoke(_ context.Context, g grant.Grant, by approval.Person) (bool, error) {
	f.given[0].RevokedAt, f.revoked = g.CreatedAt, append(f.revoked, by)
	return len(f.revoked) == 1, nil
}

// offering is a request for which code 6 would remember x_post to x.com, and code 2 nothing.
func offering() approval.StoredPending {
	w := request(first)
	w.Pending.Offers = []approval.Offer{
		{Scope: approval.Session, WhyNot: approval.Because("no_session")},
		{Scope: approval.Always, Hours: 90 * 24, Terms: approval.Terms{
			Form: grant.Target, Workspace: "personal", ClientID: "ws:personal", Tool: "x_post", ToolSHA256: "5e",
			TargetKind: "exact", Target: "x.com",
		}},
	}
	return w
}

// The sentence that the card shows is the confirmation's, and undo takes back what it says.
func TestUndoOnTheTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		grants := &fakeGrants{}
		h := &fakeGate{waiting: []approval.StoredPending{offering()}}
		s := start(t, h, func(c *Channel) { c.Interceptor.Revoker = grants })
		s.waitFor("6 Always: x_post to x.com in personal, 90 days\n→ approve")
		s.typeLine("2")
		s.waitFor("2 is not possible here: the request names no session")
		require.Empty(t, grants.given)
		s.typeLine("6")
		s.waitFor(" · Always: x_post to x.com in personal, 90 days · " +
			"To undo: send undo a7f3b2c1 here, or run permesso revoke a7f3b2c1\n")
		require.Len(t, grants.given, 1)
		s.typeLine("undo a7f3b2c1")
		s.waitFor("Revoked: a7f3b2c1 (Always: x_post to x.com in personal, until 2027-02-19). " +
			"Such requests need approval again.\n")
		require.Equal(t, []approval.Person{{Channel: "local", ID: "1000", Name: "operator:ann"}}, grants.revoked)
		s.typeLine("undo a7f3b2c1")
		s.waitFor("No grant to revoke for a7f3b2c1")
	})
}

// Why leads to a rule where the card is on this host.
func TestWhyOnTheTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, &fakeGate{waiting: []approval.StoredPending{offering()}}, func(c *Channel) { c.Style.Local = true })
		s.wait(time.Minute)
		s.typeLine("?")
		s.waitFor("2 is not possible here: the request names no session; the agent can give its session_id\n" +
			"Propose a rule: permesso rule add --from a7f3b2c1\n")
		s.typeLine("2")
		s.waitFor("Propose a rule: permesso rule add --from a7f3b2c1\n")
		require.Equal(t, 2, strings.Count(s.String(), "Propose a rule"))
	})
}
