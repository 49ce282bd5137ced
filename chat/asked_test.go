package chat

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

func TestQuestionsThatAreKnown(t *testing.T) {
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

		{"why bob?", nil, "what the gate does not know is for the agent"},
		{"why are these files written?", nil, "its motives are its own"},
		{"is bob among the recipients?", nil, "yes or no is for the agent to say"},
		{"which files of the backup?", nil, "a word that we do not know changes the question"},
		{"what does the mail say?", nil, ""},
		{"what is in the mail?", nil, "to whom it goes is no answer to that"},
		{"how will the file be written?", nil, "nor is which one to how"},
		{"agent, who will be emailed?", nil, "said to the agent"},
		{"write the files", nil, "no question"},
		{"show me all files", nil, "no question either: it could be a wish"},
		{"who will be emailed? no", nil, "that could be a decision"},
		{"no files?", nil, ""},
		{"yes, which hosts?", nil, ""},
		{"ok what files", nil, ""},
		{"approve the files?", nil, ""},
		{"don't touch which files?", nil, ""},
		{"sì, quali file?", nil, ""},
		{"non vengono letti file?", nil, ""},
		{"go, which files?", nil, ""},
		{"do it, which files?", nil, "it begins as no question does"},
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

// No word that is one of a decision is one of a question that we know.
func TestNoQuestionIsADecision(t *testing.T) {
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

// known has the gate know recipients and files, of a tool that is no program.
func known(p *approval.Pending) {
	p.Facts.Host = []approval.HostFact{
		recipients("bob@example.com"),
		{Domain: approval.DomainFile, Op: "read", Name: "path", Values: []string{"/srv/a"}, From: approval.FromArgument},
	}
	p.Ruling.Reasons = []string{"always asks"}
}

func TestAnsweredFromFacts(t *testing.T) {
	left := func(p *approval.Pending) { known(p); p.Facts.Host[0].Left = 1 }
	program := func(p *approval.Pending) {
		known(p)
		p.Facts.Host = append(p.Facts.Host, approval.HostFact{Domain: approval.DomainCommand, Name: "program", Values: []string{"make"}, From: approval.FromCommand})
	}
	claimed := func(p *approval.Pending) {
		proven(p)
		p.Facts.Proof.Verified, p.Facts.Proof.Why = false, "nobody has signed it"
	}
	for _, tc := range []struct {
		why, text, lang string
		change          func(*approval.Pending)
		says            string // of what is known; "": it goes to the agent
		behind          string // what is said behind that
	}{
		{"the gate read it", "who will be emailed?", "", known, "From the request: mail send recipient: bob@example.com\na7f3b2c1 waits on. To have the agent answer, begin with: ? agent,", ""},
		{"in Italian", "a chi sarà inviata la mail?", "it", known, "Dalla richiesta: posta invio destinatario: bob@example.com\na7f3b2c1 aspetta ancora.", ""},
		{"two topics", "which files, and who gets the mail?", "", known, "mail send recipient: bob@example.com; file read path: /srv/a\n", ""},
		{"why", "why am I asked?", "", known, "a7f3b2c1 waits for you because: always asks", ""},
		{"a proof", "? who will be emailed", "", proven, "Verified by ci: mail send (recipients: [bob@example.com]; count: 1) (on trust: smtp.send)\nUnknown: mail (bodies)\na7f3b2c1 waits on.", ""},
		{"a proof that covers it", "what files will be written?", "", proven, "Verified by ci: file is covered by contracts", ""},

		{"half of it is known", "which files, and which hosts?", "", known, "", "the facts here do not answer it"},
		{"nobody speaks of it", "what tables are read?", "", known, "", "the facts here do not answer it"},
		{"not all could be read", "who will be emailed?", "", left, "", "the facts here do not answer it"},
		{"a program may do more than its arguments say", "who will be emailed?", "", program, "", "the facts here do not answer it"},
		{"a proof that failed", "what tables are read?", "", proven, "", "the facts here do not answer it"},
		{"a proof without a contract", "how much money?", "", proven, "", "the facts here do not answer it"},
		{"only the agent says it", "who will be emailed?", "", claimed, "", "only the agent's own proof, which nobody has verified, speaks of it"},
		{"the same in Italian", "a chi sarà inviata la mail?", "it", claimed, "", "ne parla solo la prova dell'agente, che nessuno ha verificato"}, //nolint:misspell // it is Italian
		{"anything else", "? is bob among them", "", known, "", "the facts here do not answer it"},
		{"said to the agent", "? agent, who will be emailed?", "", known, "", "the facts here do not answer it"},
		{"no reason is given", "why am I asked?", "", proven, "", "the facts here do not answer it"},
	} {
		w := waiting(tc.change)
		d := &desk{waiting: []approval.Waiting{w}}
		r := handle(d, Message{Text: tc.text, Card: &w, Language: tc.lang})
		if tc.says != "" {
			require.Contains(t, r.Text, tc.says, tc.why)
			require.False(t, r.Acted, tc.why)
			require.Empty(t, d.asked, tc.why)
			continue
		}
		require.True(t, r.Acted, tc.why)
		require.Contains(t, r.Text, tc.behind, tc.why)
		require.Equal(t, approval.RequestMore, d.asked[0].Verdict, tc.why)
		require.Equal(t, strings.TrimPrefix(tc.text, "? "), d.asked[0].Feedback, tc.why)
	}
}

// Before an answer it is asked whether the request waits at all: whoever asks about
// one that does not hears what happened, and a stranger hears nothing.
func TestQuestionsAboutWhatIsSettled(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 1, 0, 0, time.UTC)
	pause := &Pause{By: "ann", Since: at}
	decided := approval.Refusal{Reason: approval.ErrDecided, By: "bob", At: at, Verdict: approval.Approved}
	ended := decided
	ended.Hint = "it ended as approved"
	for _, tc := range []struct {
		why     string
		err     error
		want    string
		isnt    string
		pending bool
	}{
		{why: "it waits", want: "From the request: mail send recipient: bob@example.com\na7f3b2c1 waits on.", pending: true},
		{why: "decided, and held by a pause", err: &decided, want: "Already approved by bob at 12:01 UTC.\n⏸ paused since 12:01 UTC by ann: nothing runs until resume"},
		{why: "run", err: &ended, want: "Already approved by bob at 12:01 UTC.", isnt: "⏸"},
		{why: "expired", err: &approval.Refusal{Reason: approval.ErrTooLate, Hint: "it expired"}, want: "Too late: the request has expired or is settled. (it expired)"},
		{why: "gone", err: &approval.Refusal{Reason: approval.ErrUnknown}, want: "No such request"},
		{why: "a stranger", err: &approval.Refusal{Reason: approval.ErrNotAuthorized}, want: "Nothing here for you."},
	} {
		for _, text := range []string{"who will be emailed?", "?who will be emailed", "? why am I asked"} {
			w := waiting(known)
			d := &desk{waiting: []approval.Waiting{w}, refuse: tc.err}
			ic := &Interceptor{Decider: d, Viewer: d, Paused: func(string) *Pause { return pause }, CanDecide: func(_ context.Context, a approval.DecisionInput) error {
				require.Equal(t, approval.DecisionInput{Key: w.Key(), PendingSHA256: w.SHA256, By: ann, Via: "telegram"}, a)
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
				require.NotContains(t, r.Text, "waits on", tc.why)
			}
		}
		// The same is heard where the question would have gone to the agent.
		if tc.err != nil {
			w := waiting(known)
			d := &desk{refuse: tc.err}
			ic := &Interceptor{Decider: d, Viewer: d, Paused: func(string) *Pause { return pause }}
			r := ic.Handle(context.Background(), Message{From: ann, Text: "which hosts?", Card: &w, Workspaces: []string{"personal"}})
			require.Contains(t, r.Text, tc.want, tc.why)
		}
	}
}

// FuzzTopics: whatever is typed, a known question is no command, no code and no
// answer, and asking it again finds the same.
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
