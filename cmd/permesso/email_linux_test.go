package main

import (
	"bytes"
	"fmt"
	"mime"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/email/mailserver"
	"github.com/permesso-dev/permesso/ipc/client"
)

// town is a village with a gate in it: real mail servers, a real daemon, and
// an agent in a sandbox.
type town struct {
	*place
	t       *testing.T
	village *mailserver.Village
	inboxes map[string]*mailserver.Inbox
	seen    map[string][]letter // by who got them
	mounts  string
	counts  string // a line for each thing that ran
	daemon  *daemon
}

const townConfig = `log_level = "debug"
[approvers.ann]
email = "ann@human.test"
[approvers.bob]
email = "bob@human.test"
[workspaces.work]
approvers = ["ann"]
channels = ["email"]
approval_timeout = "10m"
limits = { pending = 100, ask_per_minute = 1000 }
[workspaces.both]
approvers = ["ann", "bob"]
channels = ["email"]
email_ceiling = "reversible"
[tools.count]
verb = "count"
summary = "{what}"
target = "a file"
reversibility = "irreversible"
capability = "fs:write"
handler = { kind = "command", argv = ["/bin/sh", "-c", 'echo "$PERMESSO_REQUEST_ID" >>"$1"', "sh", "COUNTS"] }
[tools.easy]
verb = "count easily"
reversibility = "reversible"
capability = "fs:write"
handler = { kind = "command", argv = ["/bin/sh", "-c", 'echo "$PERMESSO_REQUEST_ID" >>"$1"', "sh", "COUNTS"] }
[channels.email]
from = "permesso@gate.test"
smtp = { address = "SMTP", username = "permesso@gate.test", password_file = "PASSWORD", ca_file = "CA" }
imap = { address = "IMAP", security = "starttls", username = "permesso@gate.test", password_file = "PASSWORD", ca_file = "CA" }
sub_addressing = true
dns = "DNS"
`

func newTown(t *testing.T, edit ...string) *town {
	t.Helper()
	v := mailserver.Start(t)
	w := &town{place: newPlace(t, "work", ""), t: t, village: v, inboxes: map[string]*mailserver.Inbox{}, seen: map[string][]letter{}}
	w.counts = filepath.Join(w.dir, "counts")
	password := filepath.Join(w.dir, "password")
	require.NoError(t, os.WriteFile(password, []byte(mailserver.Password+"\n"), 0o600))
	config := strings.NewReplacer("COUNTS", w.counts, "PASSWORD", password, "SMTP", v.SMTP, "CA", v.CAFile, "IMAP", v.IMAP, "DNS", v.DNS).Replace(townConfig)
	require.NoError(t, os.WriteFile(w.config, []byte(strings.NewReplacer(edit...).Replace(config)), 0o600))
	for _, user := range []string{mailserver.Ann, mailserver.Bob, mailserver.Eve} {
		w.inboxes[user] = v.Inbox(t, user)
	}
	w.daemon = w.serve()
	w.daemon.awaitLog(`"serving"`)
	code, mounts, errs := w.run("", "mounts", "work", "--bwrap")
	require.Zero(t, code, errs)
	w.mounts = strings.TrimSpace(mounts)
	return w
}

// letter is a mail that somebody got from the gate.
type letter struct {
	raw     []byte
	header  mail.Header
	subject string
	body    string
}

func readLetter(t *testing.T, raw []byte) letter {
	t.Helper()
	m, err := mail.ReadMessage(bytes.NewReader(raw))
	require.NoError(t, err)
	subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
	require.NoError(t, err)
	var body bytes.Buffer
	_, err = body.ReadFrom(m.Body)
	require.NoError(t, err)
	return letter{raw, m.Header, subject, body.String()}
}

// What the gate sends: cards and outcomes by itself, answers to mails.
const (
	itself  = "auto-generated"
	replied = "auto-replied"
)

// mailTo is the next mail of a kind to somebody about a request.
func (w *town) mailTo(user, id, kind string) letter {
	w.t.Helper()
	for {
		for i, l := range w.seen[user] {
			if strings.Contains(l.subject, "[appr_"+id) && l.header.Get("Auto-Submitted") == kind {
				w.seen[user] = append(w.seen[user][:i:i], w.seen[user][i+1:]...)
				return l
			}
		}
		w.seen[user] = append(w.seen[user], readLetter(w.t, w.inboxes[user].Next(w.t)))
	}
}

// asks files a request from the sandbox.
func (w *town) asks(args ...string) (id string) {
	w.t.Helper()
	id = client.NewID()
	c := &cage{place: w.place}
	code, out := c.inside(w.t, w.mounts, bwrapSystem(), nil, "permesso request "+shellWords(append(args, "--id", id)))
	require.Zero(w.t, code, out)
	return id
}

// answer is what somebody's mail program makes of a reply to a card.
func answer(card letter, text string) mailserver.Reply {
	return mailserver.Reply{
		To: card.header.Get("Reply-To"), Subject: "Re: " + card.subject, InReplyTo: card.header.Get("Message-Id"), Text: text,
	}
}

// sends has a reply signed and delivered.
func (w *town) sends(r mailserver.Reply) {
	w.t.Helper()
	to := r.To
	if to == "" {
		to = mailserver.Gate
	}
	w.village.Deliver(w.t, w.village.SignedReply(w.t, r), to)
}

func (w *town) ran(id string) int {
	w.t.Helper()
	b, err := os.ReadFile(w.counts)
	if os.IsNotExist(err) {
		return 0
	}
	require.NoError(w.t, err)
	return strings.Count(string(b), id+"\n")
}

// waits says that nobody has decided.
func (w *town) waits(id string) {
	w.t.Helper()
	require.FileExists(w.t, filepath.Join(w.layout.Pendings("work"), id+".json"))
	require.NoFileExists(w.t, filepath.Join(w.layout.Decisions("work"), id+".json"))
}

// awaitTaken waits until one more mail has had that fate, after do.
func (w *town) awaitTaken(status string, do func()) {
	w.t.Helper()
	count := func() int { return strings.Count(w.daemon.said(), `"status":"`+status+`"`) }
	before := count()
	do()
	await(w.t, w.daemon.log, func() bool { return count() > before })
}

// One village and one daemon for all: agents in a sandbox ask, people reply.
func TestEmail(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	for _, part := range []struct {
		name string
		test func(*town)
	}{
		{"invalid, then valid", (*town).invalidThenValid},
		{"expired", (*town).expired}, // early: nobody gets more than ten answers an hour
		{"decided elsewhere", (*town).decidedElsewhere},
		{"HTML only", (*town).onlyHTML},
		{"a card's quotation, from a phone", (*town).quoted},
		{"the token is missing", (*town).tokenMissing},
		{"a wrong sender", (*town).wrongSender},
		{"unsigned", (*town).unsigned},
		{"two Froms", (*town).twoFroms},
		{"two approvers, and a ceiling", (*town).ceiling},
		{"delivered by a program", (*town).deliveredByProgram},
		{"an address that is refused", (*town).refusedAddress},
		{"by a maildir", (*town).byMaildir},
		{"email test", (*town).rehearsal},
		{"email setup", (*town).setup},
		{"every code", (*town).everyCode},
	} {
		w.t = t
		t.Run(part.name, func(t *testing.T) {
			w.t, w.place.t, w.daemon.t = t, t, t
			part.test(w)
		})
	}
	w.t, w.place.t, w.daemon.t = t, t, t
	code, out, _ := w.run("", "status")
	require.Zero(t, code)
	require.NotContains(t, out, "mails cannot be sent")
	w.daemon.stop()
	b, err := os.ReadFile(w.daemon.log)
	require.NoError(t, err)
	require.NotContains(t, string(b), mailserver.Password)
	require.NotRegexp(t, `permesso\+[a-z2-7]{26}@`, string(b), "no token is logged")
}

// everyCode is the last part: behind "6" nothing of the kind is asked any more.
func (w *town) everyCode() {
	for _, row := range []struct {
		text   string
		status approval.Status
		code   string
		runs   int
		part   func(r *approval.Response) *string
		says   string
	}{
		{"1\n", approval.StatusApproved, "1", 1, nil, ""},
		{"2\n", approval.StatusApproved, "2", 1, nil, ""},
		{"3 not today\n", approval.StatusDenied, "3", 0, func(r *approval.Response) *string { return r.Feedback }, "not today"},
		{"4 mind the gap,\nplease\n", approval.StatusApproved, "4", 1, func(r *approval.Response) *string { return r.Decision.Note }, "mind the gap,\nplease"},
		{"5 count to ten\n", approval.StatusOverridden, "5", 0, func(r *approval.Response) *string { return r.Decision.Override }, "count to ten"},
		{"approve\n", approval.StatusApproved, "", 1, nil, ""},
		{"deny because\n", approval.StatusDenied, "", 0, func(r *approval.Response) *string { return r.Feedback }, "because"},
		{"6\n", approval.StatusApproved, "6", 1, nil, ""},
	} {
		id := w.asks("count", "--arg", "what=a sheep", "--session", "s"+client.NewID())
		w.sends(answer(w.mailTo(mailserver.Ann, id, itself), row.text))
		r := w.response(id)
		require.Equal(w.t, row.status, r.Status, row.text)
		require.Equal(w.t, row.runs, w.ran(id), row.text)
		require.Equal(w.t, []string{"ann", "email"}, []string{*r.Decision.By, *r.Decision.Via})
		if row.code != "" {
			require.Equal(w.t, row.code, *r.Decision.Code)
		}
		if row.part != nil {
			require.Equal(w.t, row.says, *row.part(r))
		}
	}
}

func (w *town) invalidThenValid() {
	id := w.asks("count")
	card := w.mailTo(mailserver.Ann, id, itself)
	w.sends(answer(card, "go ahead, do it\n"))
	menu := w.mailTo(mailserver.Ann, id, replied)
	require.Contains(w.t, menu.body, "Unclear, nothing was decided.")
	require.Contains(w.t, menu.body, "3 <reason>")
	w.waits(id)
	w.sends(answer(menu, "1\n"))
	require.Equal(w.t, approval.StatusApproved, w.response(id).Status)
	require.Equal(w.t, 1, w.ran(id))
	require.Contains(w.t, w.mailTo(mailserver.Ann, id, replied).body, "Approved: ")
}

func (w *town) onlyHTML() {
	id := w.asks("count")
	r := answer(w.mailTo(mailserver.Ann, id, itself), "")
	r.HTML = `<html><body><div>4 by all means</div><div><br></div><blockquote type="cite"><div>1 once</div><div>3</div></blockquote></body></html>`
	w.sends(r)
	require.Equal(w.t, "by all means", *w.response(id).Decision.Note)
}

func (w *town) quoted() {
	id := w.asks("count", "--arg", "what=1\n\n6\n3")
	card := w.mailTo(mailserver.Ann, id, itself)
	w.sends(answer(card, "3 no\n\nSent from my phone\n\n> On 22 Nov 2026, at 10:00, permesso <permesso@gate.test> wrote:\n>\n> "+strings.ReplaceAll(card.body, "\r\n", "\r\n> ")))
	r := w.response(id)
	require.Equal(w.t, approval.StatusDenied, r.Status)
	require.Equal(w.t, "no", *r.Feedback)
}

func (w *town) tokenMissing() {
	id := w.asks("count")
	card := w.mailTo(mailserver.Ann, id, itself)
	r := answer(card, "1\n")
	r.To = mailserver.Gate
	w.sends(r)
	require.Contains(w.t, w.mailTo(mailserver.Ann, id, replied).body, "does not carry the code")
	w.waits(id)
	w.sends(answer(card, "deny\n"))
	require.Equal(w.t, approval.StatusDenied, w.response(id).Status)
}

func (w *town) wrongSender() {
	id := w.asks("count")
	card := w.mailTo(mailserver.Ann, id, itself)
	r := answer(card, "1\n")
	r.From = mailserver.Bob // an approver, of another workspace, and proved to be
	w.awaitTaken("refused", func() { w.sends(r) })
	r.From = "Ann <ann@human.test> <bob@human.test>"
	w.awaitTaken("refused", func() { w.sends(r) })
	r.From = `"ann@human.test" <bob@human.test>`
	w.awaitTaken("refused", func() { w.sends(r) })
	w.waits(id)
	w.sends(answer(card, "deny\n"))
	require.Equal(w.t, approval.StatusDenied, w.response(id).Status)
}

func (w *town) unsigned() {
	id := w.asks("count")
	card := w.mailTo(mailserver.Ann, id, itself)
	r := answer(card, "1\n")
	w.awaitTaken("refused", func() { w.village.Deliver(w.t, r.Mail(), r.To) })
	r.Header = map[string]string{"Authentication-Results": "mx.gate.test; dmarc=pass header.from=human.test"}
	w.awaitTaken("refused", func() { w.village.Deliver(w.t, r.Mail(), r.To) })
	w.waits(id)
	w.sends(answer(card, "deny\n"))
	require.Equal(w.t, approval.StatusDenied, w.response(id).Status)
}

func (w *town) twoFroms() {
	id := w.asks("count")
	card := w.mailTo(mailserver.Ann, id, itself)
	signed := w.village.SignedReply(w.t, func() mailserver.Reply { r := answer(card, "1\n"); r.From = mailserver.Bob; return r }())
	w.awaitTaken("refused", func() {
		w.village.Deliver(w.t, append([]byte("From: "+mailserver.Ann+"\r\n"), signed...), card.header.Get("Reply-To"))
	})
	w.waits(id)
	w.sends(answer(card, "deny\n"))
	require.Equal(w.t, approval.StatusDenied, w.response(id).Status)
}

func (w *town) expired() {
	id := w.asks("count", "--expires", "10s") // on a busy machine the card has to go out before that
	card := w.mailTo(mailserver.Ann, id, itself)
	require.Equal(w.t, approval.StatusExpired, w.response(id).Status)
	after := w.mailTo(mailserver.Ann, id, itself)
	require.Equal(w.t, card.header.Get("Message-Id"), after.header.Get("In-Reply-To"))
	require.Contains(w.t, after.body, "expired")
	w.sends(answer(card, "1\n"))
	require.Contains(w.t, w.mailTo(mailserver.Ann, id, replied).body, "Too late, nothing was changed.")
	require.Zero(w.t, w.ran(id))
}

func (w *town) decidedElsewhere() {
	id := w.asks("count")
	card := w.mailTo(mailserver.Ann, id, itself)
	code, _, errs := w.run("", "deny", id, "not", "now")
	require.Zero(w.t, code, errs)
	require.Contains(w.t, w.mailTo(mailserver.Ann, id, itself).body, "denied =C2=B7 by operator:")
	w.sends(answer(card, "1\n"))
	require.Contains(w.t, w.mailTo(mailserver.Ann, id, replied).body, "Too late")
	require.Equal(w.t, approval.StatusDenied, w.response(id).Status)
	require.Zero(w.t, w.ran(id))
}

// ceiling: in the other workspace two are asked, and mail approves only what can
// be taken back.
func (w *town) ceiling() {
	both := *w.place
	both.agent = client.Files{Requests: w.layout.Requests("both"), Responses: w.layout.Responses("both")}
	id := both.ask(`{"tool_name":"count","request_data":{}}`)
	card := w.mailTo(mailserver.Bob, id, itself)
	w.mailTo(mailserver.Ann, id, itself)
	no := answer(card, "1\n")
	no.From = mailserver.Bob
	w.sends(no)
	require.Contains(w.t, w.mailTo(mailserver.Bob, id, replied).body, "By mail this cannot be approved")
	no.Text = "deny\n"
	w.sends(no)
	require.Equal(w.t, approval.StatusDenied, both.response(id).Status)
	require.Contains(w.t, w.mailTo(mailserver.Ann, id, itself).body, "denied =C2=B7 by bob (email)", "the other one hears of it")

	id = both.ask(`{"tool_name":"easy","request_data":{}}`)
	yes := answer(w.mailTo(mailserver.Bob, id, itself), "1\n")
	yes.From = mailserver.Bob
	w.sends(yes)
	require.Equal(w.t, approval.StatusApproved, both.response(id).Status)
	require.Equal(w.t, 1, w.ran(id))
}

func (w *town) deliveredByProgram() {
	id := w.asks("count")
	mail := w.village.SignedReply(w.t, answer(w.mailTo(mailserver.Ann, id, itself), "1\n"))
	code, _, errs := w.run("From ann@human.test Sun Nov 22 10:00:00 2026\n"+strings.ReplaceAll(string(mail), "\r\n", "\n"), "email", "deliver", "permesso")
	require.Zero(w.t, code, errs)
	require.Equal(w.t, approval.StatusApproved, w.response(id).Status)
	require.Equal(w.t, 1, w.ran(id))
	w.awaitTaken("duplicate", func() { w.village.Deliver(w.t, mail, mailserver.Gate) })
}

// refusedAddress: whoever cannot be asked by mail does not go unnoticed.
func (w *town) refusedAddress() {
	old, err := os.ReadFile(w.config)
	require.NoError(w.t, err)
	w.daemon.reconfigure(strings.Replace(string(old), `[workspaces.both]`, "[approvers.never]\nemail = \"never@human.test\"\n[workspaces.never]\napprovers = [\"never\"]\nchannels = [\"email\"]\n[workspaces.both]", 1))
	never := *w.place
	never.agent = client.Files{Requests: w.layout.Requests("never"), Responses: w.layout.Responses("never")}
	id := never.ask(`{"tool_name":"count","request_data":{}}`)
	await(w.t, w.layout.Health(), func() bool {
		b, _ := os.ReadFile(w.layout.Health())
		return strings.Contains(string(b), "never@human.test was refused")
	})
	code, out, _ := w.run("", "status")
	require.Zero(w.t, code)
	require.Contains(w.t, out, "No such user here")
	require.Contains(w.t, out, "permesso approve "+id[:8])
	code, out, _ = w.run("", "doctor", "--quick")
	require.NotZero(w.t, code)
	require.Contains(w.t, out, "never@human.test was refused")
	w.daemon.reconfigure(string(old))
}

// byMaildir: where answers come in may change while the gate serves.
func (w *town) byMaildir() {
	old, err := os.ReadFile(w.config)
	require.NoError(w.t, err)
	var lines []string
	for line := range strings.Lines(string(old)) {
		if strings.HasPrefix(line, "imap = ") {
			line = fmt.Sprintf("maildir = %q\n", w.village.Maildir(mailserver.Gate))
		}
		lines = append(lines, line)
	}
	w.daemon.reconfigure(strings.Join(lines, ""))
	awaitFile(w.t, filepath.Join(w.layout.Home, "sent", "email", ".state", "maildir"))
	id := w.asks("count")
	w.sends(answer(w.mailTo(mailserver.Ann, id, itself), "1\n"))
	require.Equal(w.t, approval.StatusApproved, w.response(id).Status)
	require.Contains(w.t, w.daemon.said(), `"mail":"maildir `)
	w.daemon.reconfigure(string(old))
}

func (d *daemon) reconfigure(text string) {
	d.t.Helper()
	count := strings.Count(d.said(), `"message":"configuration `)
	require.NoError(d.t, os.WriteFile(d.config, []byte(text), 0o600))
	await(d.t, d.log, func() bool { return strings.Count(d.said(), `"message":"configuration `) > count })
}

func (w *town) rehearsal() {
	cmd := w.command("email", "test", "ann", "--timeout", "60s")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(w.t, cmd.Start())
	card := w.mailTo(mailserver.Ann, "0000000000000000", itself)
	w.sends(answer(card, "1\n"))
	require.NoError(w.t, cmd.Wait(), out.String())
	require.Contains(w.t, out.String(), `received a reply: "1"`)
	require.Contains(w.t, out.String(), "DKIM, verified here: proves the sender")
	require.Contains(w.t, out.String(), "your mail server writes no Authentication-Results")
	require.Contains(w.t, out.String(), "  dkim = true\n")
	require.NotContains(w.t, out.String(), "authserv_id =")
}

func (w *town) setup() {
	code, out, errs := w.run("", "email", "setup")
	require.Zero(w.t, code, out+errs)
	require.Regexp(w.t, `(?m)^ok      outgoing email at 127\.0\.0\.1:\d+\nok      incoming email at 127\.0\.0\.1:\d+$`, out)
	other := filepath.Join(w.dir, "fresh.toml")
	require.NoError(w.t, os.WriteFile(other, []byte("# mine\n[workspaces.w]\n"), 0o600))
	wrong := filepath.Join(w.dir, "wrong")
	require.NoError(w.t, os.WriteFile(wrong, []byte("guess\n"), 0o600))
	flags := func(password string) []string {
		return []string{
			"--config", other, "email", "setup", "--from", mailserver.Gate, "--smtp", w.village.SMTP, "--imap", w.village.IMAP, "--imap-security", "starttls",
			"--username", mailserver.Gate, "--password-file", password, "--ca-file", w.village.CAFile,
		}
	}
	code, out, errs = w.run("", append(flags(wrong), "--write")...)
	require.Equal(w.t, exitError, code)
	require.Equal(w.t, 2, strings.Count(out, "failed  "), out)
	require.NotContains(w.t, out+errs, "guess")
	code, out, errs = w.run("", flags(filepath.Join(w.dir, "password"))...)
	require.Zero(w.t, code, out+errs)
	require.Contains(w.t, out, "[channels.email]\nfrom = \"permesso@gate.test\"\n")
	b, err := os.ReadFile(other)
	require.NoError(w.t, err)
	require.Equal(w.t, "# mine\n[workspaces.w]\n", string(b), "printed only")
	code, out, errs = w.run("", append(flags(filepath.Join(w.dir, "password")), "--write")...)
	require.Zero(w.t, code, out+errs)
	code, out, errs = w.run("", "--config", other, "email", "setup")
	require.Zero(w.t, code, out+errs)
	b, err = os.ReadFile(other)
	require.NoError(w.t, err)
	require.True(w.t, strings.HasPrefix(string(b), "# mine\n[workspaces.w]\n\n[channels.email]\n"), string(b))
}
