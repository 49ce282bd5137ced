package mailserver

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"mime"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Reply is a reply as a mail program writes it. From is Ann unless set, To is the gate.
type Reply struct {
	From, To  string
	Subject   string
	InReplyTo string // with its angle brackets
	Text      string
	HTML      string            // together with Text
	Header    map[string]string // additional fields; replaces From, Date …
}

// Mail returns the reply as an unsigned email.
func (r Reply) Mail() []byte {
	from := cmp.Or(r.From, Ann)
	h := map[string]string{
		"From": from, "To": cmp.Or(r.To, Gate), "Subject": mime.QEncoding.Encode("utf-8", r.Subject),
		"Date":        time.Now().Format(time.RFC1123Z),
		"Message-ID":  fmt.Sprintf("<%d@%s>", time.Now().UnixNano(), from[strings.LastIndex(from, "@")+1:]),
		"In-Reply-To": r.InReplyTo, "References": r.InReplyTo, "MIME-Version": "1.0",
		"Content-Type": "text/plain; charset=utf-8", "Content-Transfer-Encoding": "8bit",
	}
	body := crlf(r.Text)
	if r.HTML != "" {
		h["Content-Type"] = `multipart/alternative; boundary="=_boundary"`
		part := "--=_boundary\r\nContent-Type: text/%s; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n%s\r\n"
		body = fmt.Sprintf(part, "plain", body) + fmt.Sprintf(part, "html", crlf(r.HTML)) + "--=_boundary--\r\n"
	}
	maps.Copy(h, r.Header)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if h[name] != "" {
			fmt.Fprintf(&b, "%s: %s\r\n", name, h[name])
		}
	}
	return []byte(b.String() + "\r\n" + body)
}

// SignedReply is a reply with the signatures of human.test.
func (v *Servers) SignedReply(t testing.TB, r Reply) []byte {
	t.Helper()
	return v.Sign(t, r.Mail())
}

// Deliver sends an email as Ann's server would, to the gate unless to names another
// recipient ("permesso+TOKEN@gate.test").
func (v *Servers) Deliver(t testing.TB, raw []byte, to ...string) {
	t.Helper()
	if len(to) == 0 {
		to = []string{Gate}
	}
	conn, err := net.DialTimeout("tcp", v.MX, startTimeout)
	require.NoError(t, err)
	c := smtp.NewClient(conn)
	defer c.Close()
	c.CommandTimeout, c.SubmissionTimeout = startTimeout, startTimeout
	require.NoError(t, c.SendMail(Ann, to, bytes.NewReader(raw)))
	require.NoError(t, c.Quit())
}

// Drop writes an email directly into a user's maildir, without a server, and returns the
// file's path.
func (v *Servers) Drop(t testing.TB, user string, raw []byte) string {
	t.Helper()
	name := fmt.Sprintf("%d.M%dP%d.drop", time.Now().Unix(), time.Now().UnixNano(), os.Getpid())
	tmp := filepath.Join(v.Maildir(user), "tmp", name)
	write(t, tmp, strings.ReplaceAll(string(raw), "\r\n", "\n"))
	chownToServerUser(t, tmp)
	file := filepath.Join(v.Maildir(user), "new", name)
	require.NoError(t, os.Rename(tmp, file))
	return file
}

// Recent is the number of emails that a full mailbox has: 50,000 in a long run.
func Recent() int {
	if os.Getenv("PERMESSO_SOAK") != "" {
		return 50_000
	}
	return 2500
}

// Fill writes so many recent emails by others directly into a user's maildir.
func (v *Servers) Fill(t testing.TB, user string, n int) {
	t.Helper()
	for i := range n {
		id := fmt.Sprintf("<%d.%d@elsewhere.test>", time.Now().UnixNano(), i)
		raw := fmt.Sprintf("Return-Path: <news@elsewhere.test>\nReceived: from elsewhere.test\nFrom: News %d <news@elsewhere.test>\nTo: %s\n"+
			"Subject: News of the day %d\nDate: %s\nMessage-ID: %s\nReferences: <1%s <2%s\nContent-Type: text/plain; charset=utf-8\n\n%s",
			i, user, i, time.Now().Format(time.RFC1123Z), id, id[1:], id[1:], strings.Repeat("Nothing happened today, too.\n", 40))
		name := fmt.Sprintf("%d.M%dP%d.fill", time.Now().Unix(), time.Now().UnixNano(), os.Getpid())
		write(t, filepath.Join(v.Maildir(user), "new", name), raw)
	}
	chownToServerUser(t, filepath.Join(v.Maildir(user), "new"))
}

// Inbox returns a user's emails as they arrive, existing ones first.
type Inbox struct {
	dir    string
	events *os.File // inotify
	seen   map[string]bool
}

// Inbox opens a user's mailbox.
func (v *Servers) Inbox(t testing.TB, user string) *Inbox {
	t.Helper()
	in := &Inbox{dir: v.Maildir(user), seen: map[string]bool{}}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	require.NoError(t, err)
	in.events = os.NewFile(uintptr(fd), "inotify")
	t.Cleanup(func() { _ = in.events.Close() })
	for _, sub := range []string{"new", "cur"} {
		_, err = unix.InotifyAddWatch(fd, filepath.Join(in.dir, sub), unix.IN_MOVED_TO|unix.IN_CREATE)
		require.NoError(t, err)
	}
	return in
}

// Next waits for an email that it has not returned yet. Its lines end in CRLF, as over
// IMAP; in the file they end in LF.
func (in *Inbox) Next(t testing.TB) []byte {
	t.Helper()
	for end := time.Now().Add(startTimeout); ; {
		if raw := in.poll(t); raw != nil {
			return raw
		}
		require.True(t, in.wait(t, end), "no email came to %s", in.dir)
	}
}

// None waits for that time and fails if an email comes.
func (in *Inbox) None(t testing.TB, within time.Duration) {
	t.Helper()
	for end := time.Now().Add(within); ; {
		require.Nil(t, in.poll(t), "an unexpected email")
		if !in.wait(t, end) {
			return
		}
	}
}

// wait waits for an event in the folder; false: none before the end.
func (in *Inbox) wait(t testing.TB, end time.Time) bool {
	t.Helper()
	require.NoError(t, in.events.SetReadDeadline(end))
	_, err := in.events.Read(make([]byte, 64*1024))
	if os.IsTimeout(err) {
		return false
	}
	require.NoError(t, err)
	return true
}

// poll returns an email that was not returned yet, the oldest first, or nil.
func (in *Inbox) poll(t testing.TB) []byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(in.dir, "[nc][eu][wr]", "*"))
	require.NoError(t, err)
	slices.SortFunc(paths, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
	for _, p := range paths {
		name, _, _ := strings.Cut(filepath.Base(p), ":")
		if in.seen[name] {
			continue
		}
		raw, err := os.ReadFile(p)
		if os.IsNotExist(err) {
			continue // an IMAP server moved it, which is an event, too
		}
		require.NoError(t, err)
		in.seen[name] = true
		return []byte(crlf(string(raw)))
	}
	return nil
}

// IMAPForget makes Dovecot renumber a user's emails under another UIDVALIDITY, as after
// a move to another server. Stop Dovecot first.
func (v *Servers) IMAPForget(t testing.TB, user string) {
	t.Helper()
	list := filepath.Join(v.Maildir(user), "dovecot-uidlist")
	head, err := os.ReadFile(list)
	require.NoError(t, err)
	var validity uint32
	_, err = fmt.Sscanf(string(head), "3 V%d ", &validity)
	require.NoError(t, err)
	old, err := filepath.Glob(filepath.Join(v.Maildir(user), "dovecot*"))
	require.NoError(t, err)
	for _, name := range old {
		require.NoError(t, os.Remove(name))
	}
	write(t, list, fmt.Sprintf("3 V%d N1\n", validity+1))
	chownToServerUser(t, list)
}

func crlf(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "\r\n")
}
