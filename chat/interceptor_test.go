package chat

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
)

// fakeGate lists pending requests and records the decisions.
type fakeGate struct {
	waiting []approval.StoredPending
	settled []approval.Key
	asked   []decide.Input
	refuse  error
	broken  error
	empty   bool // returns no decision and no error
}

func (d *fakeGate) Waiting(_ context.Context, workspaces []string) ([]approval.StoredPending, error) {
	var list []approval.StoredPending
	for _, w := range d.waiting {
		for _, ws := range workspaces {
			if ws == w.Pending.SourceGroup {
				list = append(list, w)
			}
		}
	}
	return list, d.broken
}

func (d *fakeGate) Decide(_ context.Context, a decide.Input) (*approval.Decision, error) {
	d.asked = append(d.asked, a)
	if d.refuse != nil || d.empty {
		return nil, d.refuse
	}
	at := time.Date(2026, 11, 21, 12, 1, 0, 0, time.UTC)
	return &approval.Decision{
		Verdict: a.Verdict, Approved: a.Verdict == approval.Approved, Scope: a.Scope, DecidedAt: at, RunBefore: at.Add(10 * time.Minute),
	}, nil
}

func (d *fakeGate) Find(_ context.Context, _ []string, prefix string) ([]approval.Key, error) {
	var keys []approval.Key
	for _, k := range d.settled {
		if strings.HasPrefix(k.ID, prefix) {
			keys = append(keys, k)
		}
	}
	return keys, d.broken
}

var ann = approval.Person{Channel: "telegram", ID: "123456789", Name: "ann"}

func waiting(change ...func(*approval.Pending)) approval.StoredPending {
	p := example(change...)
	return approval.StoredPending{Pending: p, SHA256: "sha of " + p.RequestID}
}

func requestID(id string) func(*approval.Pending) {
	return func(p *approval.Pending) { p.RequestID, p.ShortID = id, approval.ShortID(id) }
}

func handle(d *fakeGate, m Message) Reply {
	m.From, m.Via = ann, "telegram"
	if m.Workspaces == nil {
		m.Workspaces = []string{"personal"}
	}
	return (&Interceptor{Decider: d, Viewer: d}).Handle(context.Background(), m)
}

func TestHandleDecides(t *testing.T) {
	card := waiting()
	ask := waiting(question)
	key := card.Key()
	base := decide.Input{Key: key, PendingSHA256: card.SHA256, By: ann, Via: "telegram"}
	with := func(change func(*decide.Input)) decide.Input {
		a := base
		change(&a)
		return a
	}
	const what = `post "Meeting at 5" -> x.com/ricardo`
	for _, tc := range []struct {
		text string
		card *approval.StoredPending
		want decide.Input
		says string
	}{
		{"approve a7f3b2c1", nil, with(func(a *decide.Input) { a.Verdict, a.Scope = approval.Approved, approval.Once }), "Approved: " + what + " · will not start after 12:11 UTC"},
		{"approve A7F3", nil, with(func(a *decide.Input) { a.Verdict, a.Scope = approval.Approved, approval.Once }), "Approved: " + what},
		{"deny a7f3b2c1 not now", nil, with(func(a *decide.Input) { a.Verdict, a.Feedback = approval.Denied, "not now" }), "Denied: " + what},
		{"1", &card, with(func(a *decide.Input) { a.Verdict, a.Scope, a.Code = approval.Approved, approval.Once, "1" }), "Approved: " + what},
		{"2", &card, with(func(a *decide.Input) { a.Verdict, a.Scope, a.Code = approval.Approved, approval.Session, "2" }), "Approved: " + what},
		{"3", &card, with(func(a *decide.Input) { a.Verdict, a.Code = approval.Denied, "3" }), "Denied: " + what},
		{"3 no", &card, with(func(a *decide.Input) { a.Verdict, a.Code, a.Feedback = approval.Denied, "3", "no" }), "Denied: " + what},
		{"4 add\nlogs", &card, with(func(a *decide.Input) {
			a.Verdict, a.Scope, a.Code, a.Note = approval.Approved, approval.Once, "4", "add\nlogs"
		}), "Approved: " + what},
		{"5 npm test", &card, with(func(a *decide.Input) { a.Verdict, a.Code, a.Override = approval.Overridden, "5", "npm test" }), "Not run: " + what + ` · your change goes to the agent: "npm test"`},
		{"6", &card, with(func(a *decide.Input) { a.Verdict, a.Scope, a.Code = approval.Approved, approval.Always, "6" }), "Approved: " + what},
		{"? agent, which team", &card, with(func(a *decide.Input) { a.Verdict, a.Feedback = approval.RequestMore, "which team" }), `Sent back to the agent: "which team"`},
		{"2", &ask, with(func(a *decide.Input) { a.Verdict, a.Text = approval.Answered, "dev" }), `Answered: "dev"`},
		{"neither\nof them", &ask, with(func(a *decide.Input) { a.Verdict, a.Text = approval.Answered, "neither\nof them" }), `Answered: "neither\nof them"`},
		{"deny a7f3b2c1", &ask, with(func(a *decide.Input) { a.Verdict = approval.Denied }), `Denied: "Which branch shall I build?"`},
	} {
		d := &fakeGate{waiting: []approval.StoredPending{card}}
		r := handle(d, Message{Text: tc.text, Card: tc.card})
		require.NoError(t, r.Err, tc.text)
		require.Equal(t, []decide.Input{tc.want}, d.asked, tc.text)
		require.True(t, r.Acted && !r.Ignore && r.Key == key, tc.text)
		require.Contains(t, r.Text, tc.says, tc.text)
	}
	receipt := waiting(func(p *approval.Pending) { p.ToolName = "" })
	r := handle(&fakeGate{waiting: []approval.StoredPending{receipt}}, Message{Text: "1", Card: &receipt})
	require.True(t, r.Acted)
	require.NotContains(t, r.Text, "will not start", "nothing starts on this host")
	r = handle(&fakeGate{waiting: []approval.StoredPending{card}}, Message{Text: "approve a7f3", Language: "it"})
	require.Equal(t, `Approvato: «Vuoi che pubblichi su X?» "Meeting at 5" -> x.com/ricardo · ultimo avvio possibile: 12:11 UTC`, r.Text) //nolint:misspell // Italian text
}

func TestHandleDecidesNothing(t *testing.T) {
	card, ask := waiting(), waiting(question)
	loose := waiting(refuse(approval.Because("no_session"), approval.Session), refuse(approval.Because("no_target"), approval.Always))
	old := waiting(func(p *approval.Pending) { p.Offers = nil })
	reasons := waiting(func(p *approval.Pending) { p.Ruling.Reasons = texts("always asks", "b\u202ed") })
	for _, tc := range []struct {
		text string
		card *approval.StoredPending
		says string
		why  string
	}{
		{"hello", &card, "Reply approve, deny, deny: <reason>", "never guessed"},
		{"1 no wait", &card, "1 takes no text", ""},
		{"4", &card, "4 needs text", ""},
		{"2", &loose, "2 is not possible here: the request names no session", "what is not offered is not given"},
		{"6", &loose, "6 is not possible here: a grant would not help", ""},
		{"6", &old, "6 is not possible here: what a grant would cover was not worked out", "a request without offers"},
		{"? why", &reasons, "a7f3b2c1 needs your decision because:\nalways asks\nb\\u{202E}d", "answered from facts, still pending"},
		{"? Why am I asked?", &reasons, "because:\nalways asks", ""},
		{"?", &reasons, "because:\nalways asks", ""},
		{"?", &card, "after the question mark", "no reason to answer with, no question to send"},
		{"4", &ask, "Not understood, nothing was answered", "no such option"},
		{"approve a7f3b2c1", &ask, "a7f3b2c1 is a question", ""},
		{"approve beef1234", &card, "you replied to a7f3b2c1", ""},
		{"approve a7f3b2c1? no", nil, "Not understood, nothing was decided", ""},
		{"approve a7", nil, "at least 4 digits", ""},
		{"approve beef1234", nil, "No pending request with this id: beef1234", ""},
		{"approve a7f3ffff", nil, "No pending request with this id", "longer than any match"},
	} {
		d := &fakeGate{waiting: []approval.StoredPending{card}}
		r := handle(d, Message{Text: tc.text, Card: tc.card})
		require.Empty(t, d.asked, "%s: %s", tc.text, tc.why)
		require.False(t, r.Acted || r.Ignore)
		require.Contains(t, r.Text, tc.says, tc.why)
	}
	require.Equal(t, Reply{Ignore: true}, handle(&fakeGate{}, Message{Text: "good morning"}))
}

func TestHandleAmbiguous(t *testing.T) {
	d := &fakeGate{waiting: []approval.StoredPending{
		waiting(requestID("a7f3b2c1d4e5f6a7")), waiting(requestID("a7f3c0000000000a")),
		waiting(requestID("a7f3dddddddddddd"), func(p *approval.Pending) { p.SourceGroup = "other" }),
	}}
	r := handle(d, Message{Text: "approve a7f3"})
	require.Empty(t, d.asked)
	require.Equal(t, "Several requests begin with a7f3: type more digits.", r.Text)
	require.True(t, handle(d, Message{Text: "approve a7f3b"}).Acted)
	require.Equal(t, "a7f3b2c1d4e5f6a7", d.asked[0].Key.ID)
	require.False(t, handle(d, Message{Text: "approve a7f3d"}).Acted, "another workspace is not served here")

	card := d.waiting[1]
	require.True(t, handle(d, Message{Text: "approve a7f3", Card: &card}).Acted, "the card names the request")
	require.Equal(t, card.Key(), d.asked[1].Key)
	require.False(t, handle(d, Message{Text: "approve a7f3", Card: &card, Implicit: true}).Acted, "the card shown last does not name it")
}

func TestHandleSettled(t *testing.T) {
	at := time.Date(2026, 11, 21, 11, 59, 0, 0, time.UTC)
	d := &fakeGate{
		settled: []approval.Key{{Workspace: "personal", ID: cardID}, {Workspace: "personal", ID: "beef000000000000"}, {Workspace: "personal", ID: "beef111111111111"}},
		refuse:  &decide.Refusal{Reason: decide.ErrDecided, By: "bob", At: at, Verdict: approval.Denied},
	}
	ic := &Interceptor{Decider: d, Viewer: d}
	say := func(text string) Reply {
		return ic.Handle(context.Background(), Message{Text: text, Workspaces: []string{"personal"}})
	}
	require.Equal(t, "Already denied by bob at 11:59 UTC.", say("approve a7f3b2c1").Text, "approved twice")
	require.Equal(t, cardID, d.asked[0].Key.ID)
	require.Contains(t, say("approve beef").Text, "Several requests")
	require.Contains(t, say("approve 00001111").Text, "No pending request")
	d.refuse = nil
	require.Contains(t, say("deny a7f3b2c1").Text, "Denied: a7f3b2c1", "the card of a settled request is not available")
	d.broken = errors.New("disk")
	require.Error(t, say("approve 00001111").Err)

	card := waiting()
	gone := &fakeGate{refuse: d.refuse}
	require.True(t, handle(gone, Message{Text: "approve a7f3", Card: &card, Implicit: true}).Acted, "the shown card is known, Decide reports what happened")
}

func TestHandleRefusals(t *testing.T) {
	at := time.Date(2026, 11, 21, 11, 59, 0, 0, time.UTC)
	for _, tc := range []struct {
		err      error
		en, it   string
		loggable bool
	}{
		{&decide.Refusal{Reason: decide.ErrNotAuthorized, By: "bob", Hint: "ask bob"}, "You are not an approver here.", "Qui non sei tra gli approvatori.", false},
		{&decide.Refusal{Reason: decide.ErrUnknown}, "No such request: unknown id, or settled and removed.", "Richiesta inesistente: identificativo sconosciuto, oppure richiesta conclusa e rimossa.", false}, //nolint:misspell // Italian text
		{&decide.Refusal{Reason: decide.ErrDecided, By: "b\u202eob", At: at, Verdict: approval.Approved}, `Already approved by b\u{202E}ob at 11:59 UTC.`, `Già approvato da b\u{202E}ob (11:59 UTC).`, false},
		{&decide.Refusal{Reason: decide.ErrDecided}, "Already decided.", "Già deciso.", false},
		{&decide.Refusal{Reason: decide.ErrTooLate}, "Too late: the request has expired or is settled.", "Troppo tardi: la richiesta è scaduta o conclusa.", false},
		{&decide.Refusal{Reason: decide.ErrTooLate, Hint: "look again"}, "Too late: the request has expired or is settled. (look again)", "Troppo tardi: la richiesta è scaduta o conclusa. (look again)", false},
		{&decide.Refusal{Reason: decide.ErrChanged, Hint: "look"}, catalog("en").Changed, catalog("it").Changed, false},
		{&decide.Refusal{Reason: decide.ErrDecided, Hint: "it ended as\nx"}, `Already decided. (it ended as\nx)`, `Già deciso. (it ended as\nx)`, false},
		{&decide.Refusal{Reason: decide.ErrNotApplicable, Hint: "no session"}, "Not possible here. (no session)", catalog("it").NotPossible + " (no session)", false},
		{decide.ErrTooLate, "Too late: the request has expired or is settled.", "Troppo tardi: la richiesta è scaduta o conclusa.", false},
		{errors.New("sync /srv/secret/path: no space"), "Not confirmed: do not rely on it. The daemon's log has the error.", "Nessuna conferma: non farci affidamento. L'errore è nel log del daemon.", true},
	} {
		for lang, want := range map[string]string{"en": tc.en, "it": tc.it} {
			d := &fakeGate{waiting: []approval.StoredPending{waiting()}, refuse: tc.err}
			r := handle(d, Message{Text: "approve a7f3b2c1", Language: lang})
			require.Equal(t, want, r.Text)
			require.False(t, r.Acted)
			require.Equal(t, tc.loggable, r.Err != nil)
		}
	}
}

func TestUnauthorizedPeopleLearnNothing(t *testing.T) {
	card := waiting()
	for _, text := range []string{"pending", "approve a7f3b2c1", "approve beef1234", "approve a7f3b2c1? no", "1", "deny a7f3 x", "?"} {
		d := &fakeGate{waiting: []approval.StoredPending{card}}
		for _, c := range []*approval.StoredPending{nil, &card} {
			r := handle(d, Message{Text: text, Card: c, Workspaces: []string{}})
			require.True(t, r.Ignore || r.Text == "You are not an approver here.", "%s: %s", text, r.Text)
			require.Empty(t, d.asked)
		}
	}
}

func TestHandleWithoutAGate(t *testing.T) {
	card := waiting()
	m := Message{Text: "1", Card: &card, Workspaces: []string{"personal"}}
	require.Equal(t, Reply{Text: "You are not an approver here."}, (&Interceptor{}).Handle(context.Background(), m), "the zero value refuses")
	r := handle(&fakeGate{empty: true}, m)
	require.False(t, r.Acted, "without a decision there is no approval")
	require.Error(t, r.Err)
	r = handle(&fakeGate{broken: errors.New("disk")}, Message{Text: "approve a7f3b2c1"})
	require.Error(t, r.Err)
	require.Contains(t, r.Text, "do not rely on it")
	require.Error(t, handle(&fakeGate{broken: errors.New("disk")}, Message{Text: "pending"}).Err)
}

func TestHandlePending(t *testing.T) {
	require.Equal(t, "No pending approvals.", handle(&fakeGate{}, Message{Text: "pending"}).Text)
	require.Equal(t, "Nessuna approvazione in attesa.", handle(&fakeGate{}, Message{Text: "pending", Language: "it"}).Text)
	d := &fakeGate{waiting: []approval.StoredPending{waiting(), waiting(question), waiting(hostile)}}
	require.Len(t, strings.Split(handle(d, Message{Text: "pending"}).Text, "\n"), 3, "one line each")
	for lang, want := range map[string]string{
		"en": "The pending requests cannot be listed now: the daemon's log has the error.",
		"it": "Ora non è possibile elencare le richieste in attesa: l'errore è nel log del daemon.", //nolint:misspell // Italian
	} {
		r := handle(&fakeGate{broken: errors.New("disk")}, Message{Text: "pending", Language: lang})
		require.Equal(t, want, r.Text, "no decision was made that could be unconfirmed")
		require.Error(t, r.Err)
	}
}

func TestConfirmRepeatsTheFirstReply(t *testing.T) {
	card := waiting()
	for _, text := range []string{"1", "3 no", "4 be quiet", "5 on Monday", "? agent, why on earth"} {
		d := &fakeGate{waiting: []approval.StoredPending{card}}
		m := Message{Text: text, Card: &card}
		first := handle(d, m)
		require.True(t, first.Acted, text)
		a := d.asked[0]
		at := time.Date(2026, 11, 21, 12, 1, 0, 0, time.UTC)
		dec := &approval.Decision{
			Verdict: a.Verdict, Note: a.Note, Override: a.Override, Feedback: a.Feedback, DecidedAt: at, RunBefore: at.Add(10 * time.Minute),
		}
		require.Equal(t, first.Text, (&Interceptor{}).Confirm(m, dec), text)
	}
}

// A short id that an earlier card showed never decides another request whose id begins
// with it.
func TestShortIDOfAnotherCard(t *testing.T) {
	second := waiting(requestID("aaaaaaaa00000002"), func(p *approval.Pending) { p.ShortID = "00000002" })
	first := approval.Key{Workspace: "personal", ID: "aaaaaaaa00000001"}
	d := &fakeGate{waiting: []approval.StoredPending{second}, settled: []approval.Key{first}}
	for _, c := range []struct {
		text string
		card *approval.StoredPending
		want []approval.Key
	}{
		{"approve aaaaaaaa", nil, []approval.Key{first}}, // Decide says how it ended
		{"approve aaaaaaaa", &second, nil},               // names another card
		{"approve 00000002", nil, []approval.Key{second.Key()}},
		{"approve 00000002", &second, []approval.Key{second.Key()}},
		{"approve aaaaaaaa00000002", nil, []approval.Key{second.Key()}},
	} {
		d.asked = nil
		handle(d, Message{Text: c.text, Card: c.card})
		var asked []approval.Key
		for _, a := range d.asked {
			asked = append(asked, a.Key)
		}
		require.Equal(t, c.want, asked, c.text)
	}
}

// Digits that fit a pending request and a settled one decide nothing: the approver may
// have read the card of either. The answer names both, and more digits decide.
func TestDigitsOfASettledCard(t *testing.T) {
	for _, c := range []struct {
		why, pending, settled, typed string
		refused                      bool
	}{
		{"cancelled, then the same short id", "a7f3b2c1dddddddd", "a7f3b2c1eeeeeeee", "a7f3b2c1", true},
		{"the first digits of both", "a7f3b2c1dddddddd", "a7f3ffffeeeeeeee", "a7f3", true},
		{"digits of one", "a7f3b2c1dddddddd", "a7f3ffffeeeeeeee", "a7f3b", false},
		{"the whole id", "a7f3b2c1dddddddd", "a7f3b2c1eeeeeeee", "a7f3b2c1dddddddd", false},
	} {
		d := &fakeGate{
			waiting: []approval.StoredPending{waiting(requestID(c.pending), func(p *approval.Pending) { p.SourceGroup = "other" })},
			settled: []approval.Key{{Workspace: "personal", ID: c.settled}},
		}
		for _, verb := range []string{"approve ", "deny "} {
			r := handle(d, Message{Text: verb + c.typed, Workspaces: []string{"personal", "other"}})
			require.Equal(t, !c.refused, r.Acted, c.why)
			if c.refused {
				require.Contains(t, r.Text, "fits other/"+c.pending+", which is pending, and personal/"+c.settled+", which is settled", c.why)
			}
		}
		require.Equal(t, c.refused, len(d.asked) == 0, c.why)
	}
}
