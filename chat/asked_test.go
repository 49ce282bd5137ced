package chat

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/facts"
)

func TestTopicsOf(t *testing.T) {
	for _, tc := range []struct {
		text string
		want []topic
		why  string
	}{
		{"tell me what files will be written", []topic{aboutFiles}, ""},
		{"who will be emailed?", []topic{aboutMail}, ""},
		{"What tables are read?", []topic{aboutTables}, ""},
		{"which hosts?", []topic{aboutHosts}, ""},
		{"how much money?", []topic{aboutMoney}, ""},
		{"what will it cost", []topic{aboutMoney}, ""},
		{"why am I asked?", []topic{aboutWhy}, ""},
		{"why?", []topic{aboutWhy}, ""},
		{"please tell me which files and which tables the agent will read", []topic{aboutFiles, aboutTables}, "two at once"},
		{"dimmi quali file saranno scritti", []topic{aboutFiles}, ""},
		{"a chi sarà inviata l'e-mail?", []topic{aboutMail}, ""},
		{"quali tabelle vengono lette?", []topic{aboutTables}, ""},
		{"quali host?", []topic{aboutHosts}, ""},
		{"quanto denaro?", []topic{aboutMoney}, ""},
		{"perché me lo chiedi?", []topic{aboutWhy}, ""},

		{"why bob?", nil, "the gate does not know bob"},
		{"why are these files written?", nil, "only the agent knows its motives"},
		{"is bob among the recipients?", nil, "the agent must answer yes or no"},
		{"which files of the backup?", nil, "an unknown word changes the question"},
		{"what does the mail say?", nil, ""},
		{"what is in the mail?", nil, "a recipient is no answer to that"},
		{"how will the file be written?", nil, "a file name is no answer to how"},
		{"agent, who will be emailed?", nil, "addressed to the agent"},
		{"write the files", nil, "not a question"},
		{"show me all files", nil, "not a question: it could be an instruction"},
		{"who will be emailed? no", nil, "that could be a decision"},
		{"no files?", nil, ""},
		{"yes, which hosts?", nil, ""},
		{"ok what files", nil, ""},
		{"approve the files?", nil, ""},
		{"don't touch which files?", nil, ""},
		{"sì, quali file?", nil, ""},
		{"non vengono letti file?", nil, ""},
		{"go, which files?", nil, ""},
		{"do it, which files?", nil, "no question begins like that"},
		{"send it. which files?", nil, "two sentences"},
		{"vai quali file?", nil, ""},
		{"banana", nil, ""},
		{"1", nil, ""},
		{"which 1 file?", nil, "a digit could be a code"},
		{"wh\u0430t files?", nil, "a Cyrillic letter makes another word"},
		{"what files?" + strings.Repeat(" ", 300), nil, "too long"},
		{"", nil, ""},
	} {
		require.Equal(t, tc.want, topicsOf(tc.text), "%q %s", tc.text, tc.why)
	}
}

// A known question contains no word that can decide.
func TestDecisionWordsAreNoQuestion(t *testing.T) {
	for _, word := range []string{
		"yes", "no", "ok", "okay", "sure", "fine", "approve", "approved", "allow", "deny", "denied", "reject", "cancel", "stop", "go", "do it", "send it", "run it", "not", "never", "don't",
		"sì", "certo", "approva", "approvo", "nega", "nego", "annulla", "vai", "non", "mai", "1", "2", "3", "4", "5", "6",
	} {
		for _, q := range []string{"which files? " + word, word + ", which files?", "quali file? " + word, word + " quali file?"} {
			require.Empty(t, topicsOf(q), q)
			require.NotEqual(t, Question, Parse(q, actionCard).Kind, q)
		}
	}
}

// withKnownFacts gives the request recipients and files that the gate read. The
// tool runs no program.
func withKnownFacts(p *approval.Pending) {
	p.Facts.Host = []approval.HostFact{
		recipients("bob@example.com"),
		{Domain: facts.File, Op: "read", Name: "path", Values: []string{"/srv/a"}, From: facts.FromArgument},
	}
	p.Ruling.Reasons = texts("always asks")
}

func TestAnsweredFromFacts(t *testing.T) {
	left := func(p *approval.Pending) { withKnownFacts(p); p.Facts.Host[0].Omitted = 1 }
	program := func(p *approval.Pending) {
		withKnownFacts(p)
		p.Facts.Host = append(p.Facts.Host, approval.HostFact{Domain: facts.Command, Name: "program", Values: []string{"make"}, From: facts.FromCommand})
	}
	claimed := func(p *approval.Pending) {
		proven(p)
		p.Facts.Proof.Verified, p.Facts.Proof.Why = false, approval.Because("proof_no_prover")
	}
	for _, tc := range []struct {
		why, text, lang string
		change          func(*approval.Pending)
		says            string // the answer; "": the question goes to the agent
		behind          string // the end of the reply
	}{
		{"the gate read it", "who will be emailed?", "", withKnownFacts, "From the request: mail send recipient: bob@example.com\na7f3b2c1 is still pending. To ask the agent instead, begin with: ? agent,", ""},
		{"in Italian", "a chi sarà inviata la mail?", "it", withKnownFacts, "Dalla richiesta: posta in uscita destinatario: bob@example.com\na7f3b2c1 è ancora in attesa.", ""},
		{"two topics", "which files, and who gets the mail?", "", withKnownFacts, "mail send recipient: bob@example.com; file read path: /srv/a\n", ""},
		{"why", "why am I asked?", "", withKnownFacts, "a7f3b2c1 needs your decision because:\nalways asks", ""},
		{"a proof", "? who will be emailed", "", proven, "Verified by ci: mail send (recipients: [bob@example.com]; count: 1) (trusted without proof: smtp.send)\nUnknown: mail (bodies)\na7f3b2c1 is still pending.", ""},
		{"a proof that covers the topic", "what files will be written?", "", proven, "Verified by ci: file is covered by contracts", ""},

		{"what runs", "what will run?", "", withKnownFacts, "text: Meeting at 5\na7f3b2c1 is still pending.", ""},
		{"whether it can be undone", "can it be undone?", "", withKnownFacts, "As the operator has described the tool: irreversible\na7f3b2c1 is still pending.", ""},
		{"where it goes", "Where does it go?", "", withKnownFacts, "As the operator has described the tool: x.com/ricardo\n", ""},
		{"who receives it, in Italian", "chi la riceve?", "it", withKnownFacts, "bob@example.com\n", ""},
		{"which host", "which host?", "", func(p *approval.Pending) {
			p.Facts.Host = []approval.HostFact{{Domain: facts.Host, Name: "host", Values: []string{"x.com"}, From: facts.FromTemplate}}
		}, "x.com", ""},

		{"only one topic is known", "which files, and which hosts?", "", withKnownFacts, "", "The gate's facts do not answer that. Sending the question"},
		{"no fact about it", "what tables are read?", "", withKnownFacts, "", "The gate's facts do not answer that. Sending the question"},
		{"not every value could be read", "who will be emailed?", "", left, "", "The gate's facts do not answer that. Sending the question"},
		{"a program may do more than its arguments say", "who will be emailed?", "", program, "", "The gate's facts do not answer that. Sending the question"},
		{"a proof that failed", "what tables are read?", "", proven, "", "The gate's facts do not answer that. Sending the question"},
		{"a proof without a contract", "how much money?", "", proven, "", "The gate's facts do not answer that. Sending the question"},
		{"only an unverified proof", "who will be emailed?", "", claimed, "", "Only the agent's unverified proof mentions that."},
		{"the same in Italian", "a chi sarà inviata la mail?", "it", claimed, "", "Ne parla solo la prova dell'agente, che non è verificata."},
		{"anything else", "? is bob among them", "", withKnownFacts, "", "The gate's facts do not answer that. Sending the question"},
		{"no reason is given", "why am I asked?", "", proven, "", "The gate's facts do not answer that. Sending the question"},
	} {
		w := waiting(tc.change)
		d := &fakeGate{waiting: []approval.StoredPending{w}}
		r := handle(d, Message{Text: tc.text, Card: &w, Language: tc.lang})
		if tc.says != "" {
			require.Contains(t, r.Text, tc.says, tc.why)
			require.False(t, r.Acted, tc.why)
			require.Empty(t, d.asked, tc.why)
			continue
		}
		require.Contains(t, r.Text, tc.behind, tc.why)
		question := strings.TrimPrefix(tc.text, "? ")
		word := map[string]string{"": "agent", "en": "agent", "it": "agente"}[tc.lang]
		require.Contains(t, r.Text, ": ? "+word+", "+question, tc.why)
		require.Empty(t, d.asked, "%s: the request would end, so the person is asked again", tc.why)
		r = handle(d, Message{Text: "? " + word + ", " + question, Card: &w, Language: tc.lang})
		require.True(t, r.Acted, tc.why)
		require.Equal(t, approval.RequestMore, d.asked[0].Verdict, tc.why)
		require.Equal(t, question, d.asked[0].Feedback, tc.why)
	}
}

// A question is answered only while the request is pending. Otherwise an approver
// is told what happened, and an unauthorized person learns nothing.
func TestQuestionsAboutSettledRequests(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 1, 0, 0, time.UTC)
	pause := &Pause{By: "ann", Since: at}
	decided := decide.Refusal{Reason: decide.ErrDecided, By: "bob", At: at, Verdict: approval.Approved}
	ended := decided
	ended.Hint = "it ended as approved"
	for _, tc := range []struct {
		why     string
		err     error
		want    string
		isnt    string
		pending bool
	}{
		{why: "pending", want: "From the request: mail send recipient: bob@example.com\na7f3b2c1 is still pending.", pending: true},
		{why: "decided, in a paused workspace", err: &decided, want: "Already approved by bob at 12:01 UTC.\n⏸ paused since 12:01 UTC by ann: nothing runs until resume"},
		{why: "run", err: &ended, want: "Already approved by bob at 12:01 UTC.", isnt: "⏸"},
		{why: "expired", err: &decide.Refusal{Reason: decide.ErrTooLate, Hint: "it expired"}, want: "Too late: the request has expired or is settled. (it expired)"},
		{why: "gone", err: &decide.Refusal{Reason: decide.ErrUnknown}, want: "No such request"},
		{why: "unauthorized", err: &decide.Refusal{Reason: decide.ErrNotAuthorized}, want: "You are not an approver here."},
	} {
		for _, text := range []string{"who will be emailed?", "?who will be emailed", "? why am I asked"} {
			w := waiting(withKnownFacts)
			d := &fakeGate{waiting: []approval.StoredPending{w}, refuse: tc.err}
			ic := &Interceptor{Decider: d, Viewer: d, Paused: func(string) *Pause { return pause }, CanDecide: func(_ context.Context, a decide.Input) error {
				require.Equal(t, decide.Input{Key: w.Key(), PendingSHA256: w.SHA256, By: ann, Via: "telegram"}, a)
				return tc.err
			}}
			r := ic.Handle(context.Background(), Message{From: ann, Via: "telegram", Text: text, Card: &w, Workspaces: []string{"personal"}})
			require.Empty(t, d.asked, "nothing is written")
			require.False(t, r.Acted)
			if tc.pending && strings.Contains(text, "why") {
				continue
			}
			require.Contains(t, r.Text, tc.want, "%s: %s", tc.why, text)
			if tc.isnt != "" {
				require.NotContains(t, r.Text, tc.isnt, tc.why)
			}
			if tc.err != nil {
				require.NotContains(t, r.Text, "still pending", tc.why)
			}
		}
		// The reply is the same if the question would have gone to the agent.
		if tc.err != nil {
			w := waiting(withKnownFacts)
			d := &fakeGate{refuse: tc.err}
			ic := &Interceptor{Decider: d, Viewer: d, Paused: func(string) *Pause { return pause }, CanDecide: func(context.Context, decide.Input) error { return tc.err }}
			r := ic.Handle(context.Background(), Message{From: ann, Text: "which hosts?", Card: &w, Workspaces: []string{"personal"}})
			require.Contains(t, r.Text, tc.want, tc.why)
		}
	}
}

// FuzzTopics checks that a known question is no command, no code and no answer,
// and that topicsOf is deterministic.
func FuzzTopics(f *testing.F) {
	for _, s := range []string{"who will be emailed?", "quali file?", "1 which files", "approve a7f3b2c1? which files", "deny a7f3", "? what", "perché?"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		about := topicsOf(s)
		if len(about) == 0 {
			return
		}
		require.NotContains(t, []Kind{Approve, Deny, Undo, Pending, Menu}, Parse(s, actionCard).Kind)
		require.Equal(t, NotAddressed, Parse(s, noCard).Kind)
		require.NotEqual(t, Question, Parse(s, openCard).Kind)
		require.Equal(t, about, topicsOf(s))
	})
}
