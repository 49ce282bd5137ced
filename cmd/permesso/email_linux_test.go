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

// mailTo is the next mail to somebody about a request.
func (w *town) mailTo(user, id string) letter {
	w.t.Helper()
	for {
		for i, l := range w.seen[user] {
			if strings.Contains(l.subject, "[appr_"+id) {
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

// A reply decides, whatever the code, and what was approved runs once.
func TestEmailDecides(t *testing.T) {
	w := newTown(t)
	for _, row := range []struct {
		text   string
		status approval.Status
		code   string
		runs   int
	}{
		{"1\n", approval.StatusApproved, "1", 1},
		{"2\n", approval.StatusApproved, "2", 1},
		{"3 not today\n", approval.StatusDenied, "3", 0},
		{"4 mind the gap\n", approval.StatusApproved, "4", 1},
		{"5 count to ten\n", approval.StatusOverridden, "5", 0},
		{"approve\n", approval.StatusApproved, "", 1},
		{"deny because\n", approval.StatusDenied, "", 0},
		{"6\n", approval.StatusApproved, "6", 1}, // the last one: nothing of the kind is asked any more
	} {
		what := fmt.Sprintf("what %s", row.text)
		id := w.asks("count", "--arg", "what="+what, "--session", "s"+row.code+client.NewID())
		card := w.mailTo(mailserver.Ann, id)
		w.sends(answer(card, row.text))
		r := w.response(id)
		require.Equal(t, row.status, r.Status, row.text)
		require.Equal(t, row.runs, w.ran(id), row.text)
		require.Equal(t, "email", *r.Decision.Via)
		require.Equal(t, "ann", *r.Decision.By)
		if row.code != "" {
			require.Equal(t, row.code, *r.Decision.Code)
		}
	}
}
