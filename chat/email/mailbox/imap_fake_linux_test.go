package mailbox

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/permesso-dev/permesso/chat/email/mailserver"
)

// fakeIMAP is a faulty server. The first rule whose prefix matches answers a command. Of
// several rules with the same prefix, each but the last answers once. In a reply TAG is
// the tag and "…" is no answer; "" or CLOSE at the end closes the connection.
type fakeIMAP struct {
	address string
	mu      sync.Mutex
	rules   []step
	heard   strings.Builder
}

// inbox are the rules of a mailbox in which email 4 arrives, or 4 and 5.
var inbox = []step{
	{"CAPABILITY", "* CAPABILITY IMAP4rev1 IDLE\r\nTAG OK\r\n"},
	{"EXAMINE", "* 0 EXISTS\r\n* OK [UIDVALIDITY 9] x\r\n* OK [UIDNEXT 4] x\r\nTAG OK\r\n"},
	{"EXAMINE", "* 2 EXISTS\r\n* OK [UIDVALIDITY 9] x\r\n* OK [UIDNEXT 6] x\r\nTAG OK\r\n"},
	{"IDLE", "+ well\r\n"},
	{"UID FETCH 4 (UID BODY", "* 1 FETCH (UID 4 BODY[]<0> {17}\r\nSubject: four\r\n\r\n)\r\nTAG OK\r\n"},
	{"UID FETCH 4", "* 1 FETCH (UID 4 RFC822.SIZE 17 INTERNALDATE \"22-Nov-2026 10:00:00 +0000\")\r\nTAG OK\r\n"},
	{"UID FETCH 5 (UID BODY", "* 2 FETCH (UID 5 BODY[]<0> {17}\r\nSubject: five\r\n\r\n)\r\nTAG OK\r\n"},
	{"UID FETCH 5", "* 2 FETCH (UID 5 RFC822.SIZE 17 INTERNALDATE \"22-Nov-2026 10:00:00 +0000\")\r\nTAG OK\r\n"},
}

// with replaces rules of inbox. By default the first scan finds no email that came since
// the first start.
func with(rules ...step) []step {
	own := func(s step) bool { return slices.ContainsFunc(rules, func(r step) bool { return r.await == s.await }) }
	all := append(slices.Clone(rules), slices.DeleteFunc(slices.Clone(inbox), own)...)
	if !slices.ContainsFunc(rules, func(r step) bool { return strings.HasPrefix(r.await, sinceSearch) }) {
		all = slices.Insert(all, 0, step{sinceSearch, "* SEARCH\r\nTAG OK\r\n"})
	}
	return all
}

const sinceSearch = "UID SEARCH SINCE"

func newFakeIMAP(t *testing.T, greeting string, rules ...step) *fakeIMAP {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fakeIMAP{address: l.Addr().String(), rules: rules}
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wait.Go(func() {
				defer conn.Close()
				fmt.Fprint(conn, greeting)
				f.serve(conn)
			})
		}
	})
	t.Cleanup(func() { l.Close(); wait.Wait() })
	return f
}

func (f *fakeIMAP) serve(conn net.Conn) {
	in, idle := bufio.NewReader(conn), ""
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		tag, command, _ := strings.Cut(strings.TrimSpace(line), " ")
		reply := f.reply(command)
		switch {
		case tag == "DONE":
			tag, reply = idle, "TAG OK\r\n"
		case command == "IDLE":
			idle = tag
		}
		switch reply {
		case "":
			return
		case "…":
			_, _ = io.Copy(io.Discard, in) // until the connection is closed
			return
		}
		reply, closes := strings.CutSuffix(reply, "CLOSE")
		fmt.Fprint(conn, strings.ReplaceAll(reply, "TAG", tag))
		if closes {
			return
		}
	}
}

func (f *fakeIMAP) reply(command string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard.WriteString(command + "\n")
	for i, r := range f.rules {
		if !strings.HasPrefix(command, r.await) {
			continue
		}
		if slices.ContainsFunc(f.rules[i+1:], func(later step) bool { return later.await == r.await }) {
			f.rules = slices.Delete(slices.Clone(f.rules), i, i+1)
		}
		return r.reply
	}
	return "TAG OK\r\n"
}

func (f *fakeIMAP) result(command string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Contains(f.heard.String(), command)
}

// box returns a mailbox on this server with short timeouts, but long enough for a busy
// machine.
func (f *fakeIMAP) box(s State, change func(*IMAP)) func(*mailboxRun) Mailbox {
	return func(r *mailboxRun) Mailbox {
		b := &IMAP{
			Address: f.address, Security: NoTLS, Username: "gate", Password: password(mailserver.Password),
			State: s, Report: r.report, Timeout: 2 * time.Second, Idle: 20 * time.Millisecond, retryDelay: 5 * time.Millisecond,
		}
		if change != nil {
			change(b)
		}
		return b
	}
}

const greeting = "* OK [CAPABILITY IMAP4rev1 IDLE] hi\r\n"

// TestIMAPOddServers: faults of real servers.
func TestIMAPOddServers(t *testing.T) {
	found := step{"UID SEARCH", "* SEARCH 4 5\r\nTAG OK\r\n"}
	both := []string{"four", "five"}
	tests := []struct {
		why   string
		rules []step
		want  []string
		never string // what we must not send
	}{
		{"no fault", []step{found}, both, "BODY["},
		{"it does not notify: the next scan finds it", []step{{"UID SEARCH", "* SEARCH\r\nTAG OK\r\n"}, {"UID SEARCH", "* SEARCH\r\nTAG OK\r\n"}, found}, both, ""},
		{"n:* finds the last one, even below n", []step{{"UID SEARCH", "* SEARCH 3\r\nTAG OK\r\n"}, found}, both, ""},
		{"it hangs in a search", []step{{"UID SEARCH", "…"}, found}, both, ""},
		{"it hangs in IDLE", []step{{"IDLE", "…"}, {"IDLE", "+ well\r\n"}, {"UID SEARCH", "* SEARCH\r\nTAG OK\r\n"}, found}, both, ""},
		{"it hangs in an email", []step{{"UID FETCH 4 (UID BODY", "* 1 FETCH (UID 4 BODY[] {17}\r\nSub"}, {"UID FETCH 4 (UID BODY", inbox[4].reply}, found}, []string{"five", "four"}, ""},
		{"an email that always breaks the connection", []step{{"UID FETCH 4 (UID BODY", ""}, found}, []string{"five"}, ""},
		{"it closes the connection in an email", []step{{"UID FETCH 4 (UID BODY", "* 1 FETCH (UID 4 BODY[] {17}\r\nSubCLOSE"}, {"UID FETCH 4 (UID BODY", inbox[4].reply}, found}, []string{"five", "four"}, ""},
		{"an email longer than announced", []step{{"UID FETCH 4 (UID BODY", "* 1 FETCH (UID 4 BODY[]<0> {600000}\r\n"}, found}, []string{"five"}, ""},
		{"an email deleted meanwhile", []step{{"UID FETCH 4", "TAG OK\r\n"}, found}, []string{"five"}, ""},
		{"an email that cannot be fetched", []step{{"UID FETCH 4", "TAG NO [EXPUNGEISSUED] gone\r\n"}, found}, []string{"five"}, ""},
		{"it does not report UIDNEXT", []step{
			{"EXAMINE", "* 0 EXISTS\r\n* OK [UIDVALIDITY 9] x\r\nTAG OK\r\n"}, {"UID SEARCH", "* SEARCH 2 3\r\nTAG OK\r\n"}, found,
		}, both, ""},
		{"it sends BYE", []step{{"UID SEARCH", "* BYE maintenance\r\n"}, found}, both, ""},
		{"it sends unrequested responses", []step{{"UID SEARCH", "* OK [ALERT] quota\r\n* 1 FETCH (FLAGS (\\Seen))\r\n* 7 EXPUNGE\r\n* SEARCH 4 5\r\nTAG OK\r\n"}}, both, ""},
		{"no IDLE", []step{{"CAPABILITY", "* CAPABILITY IMAP4rev1\r\nTAG OK\r\n"}, {"IDLE", "TAG BAD no\r\n"}, {"UID SEARCH", "* SEARCH\r\nTAG OK\r\n"}, found}, both, "IDLE"},
		{"an email that is far too large", []step{
			{"UID FETCH 4 (UID BODY.PEEK[HEADER]<0.65536>)", "* 1 FETCH (UID 4 BODY[HEADER]<0> {17}\r\nSubject: four\r\n\r\n)\r\nTAG OK\r\n"},
			{"UID FETCH 4 (UID BODY", "TAG NO what?\r\n"},
			{"UID FETCH 4", "* 1 FETCH (UID 4 RFC822.SIZE 600000 INTERNALDATE \"22-Nov-2026 10:00:00 +0000\")\r\nTAG OK\r\n"},
			found,
		}, both, "UID FETCH 4 (UID BODY.PEEK[]"},
	}
	before := goleak.IgnoreCurrent()
	t.Run("all at once", func(t *testing.T) {
		for _, tt := range tests {
			t.Run(tt.why, func(t *testing.T) {
				t.Parallel()
				f := newFakeIMAP(t, greeting, with(tt.rules...)...)
				r := run(t, nil, f.box(&memoryState{}, nil))
				require.Equal(t, tt.want, r.subjects(len(tt.want)))
				r.waitUntil("a report", func() bool { return len(r.reports) > 0 })
				r.stop()
				require.Len(t, r.taken, len(tt.want))
				require.False(t, f.result("STORE"))
				require.False(t, f.result("EXPUNGE"))
				require.False(t, f.result("SELECT"))
				require.False(t, tt.never != "" && f.result(tt.never), tt.never)
			})
		}
	})
	goleak.VerifyNone(t, before)
}

// TestIMAPKeepsItsPassword: no password is sent before the connection is encrypted.
func TestIMAPKeepsItsPassword(t *testing.T) {
	t.Parallel()
	tests := []struct {
		why, greeting string
		rules         []step
		security      string
		want          string
	}{
		{"it never greets", "", nil, StartTLS, "no answer"},
		{"STARTTLS is refused", greeting, []step{{"STARTTLS", "TAG NO not today\r\n"}}, StartTLS, "no STARTTLS"},
		{"it goes on in plain text", greeting, []step{{"STARTTLS", "TAG OK go\r\n* CAPABILITY IMAP4rev1\r\n"}}, StartTLS, "does not speak TLS"},
		{"no login is needed", "* PREAUTH hi\r\n", []step{{"STARTTLS", "TAG BAD too late\r\n"}}, StartTLS, "no STARTTLS"},
		{"the server takes no password", greeting, []step{{"CAPABILITY", "* CAPABILITY IMAP4rev1 LOGINDISABLED\r\nTAG OK\r\n"}}, NoTLS, ""},
		{"it repeats the password", greeting, []step{{"LOGIN", "TAG NO gate " + mailserver.Password + " is \x1b[31mwrong\r\n"}}, NoTLS, `gate [password] is \u{001B}[31mwrong`},
	}
	for _, tt := range tests {
		t.Run(tt.why, func(t *testing.T) {
			f := newFakeIMAP(t, tt.greeting, tt.rules...)
			b := f.box(&memoryState{}, func(b *IMAP) { b.Security = tt.security })(&mailboxRun{}).(*IMAP)
			err := b.Check(t.Context())
			if tt.want == "" {
				return
			}
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Contains(t, e.Error()+"\n"+e.Hint(), tt.want)
			require.NotContains(t, e.Error()+e.Hint(), mailserver.Password)
			require.Equal(t, tt.security == NoTLS, f.result("LOGIN"), "%v", e)
		})
	}
}

// TestIMAPNames: the name of an email never changes, and differs from every name in
// another mailbox, also if both have the same numbers.
func TestIMAPNames(t *testing.T) {
	name := func(user, mailbox string) string {
		f := newFakeIMAP(t, greeting, with(step{"UID SEARCH", "* SEARCH 4\r\nTAG OK\r\n"})...)
		r := run(t, nil, f.box(&memoryState{}, func(b *IMAP) { b.Username, b.Mailbox, b.Timeout = user, mailbox, testTimeout }))
		defer r.stop()
		r.subjects(1)
		return r.taken[0].Name
	}
	require.Equal(t, name("gate", ""), name("gate", "INBOX"))
	require.NotEqual(t, name("gate", ""), name("other", ""))
	require.NotEqual(t, name("gate", ""), name("gate", "Replies"))
}

// TestIMAPPauses: after a refusal the delay is longer than after a fault.
func TestIMAPPauses(t *testing.T) {
	b := &IMAP{}
	require.Equal(t, refusedDelay, b.maxDelay(&Error{}))
	require.Equal(t, maxReconnectDelay, b.maxDelay(&Error{Temporary: true}))
	require.Equal(t, maxReconnectDelay, b.maxDelay(errors.Join(&Error{Temporary: true}, nil)))
	for _, data := range []string{"{", `{"version":2}`, `{"version":1,"what":1}`} {
		b := &IMAP{Address: "127.0.0.1:1", State: &memoryState{data: []byte(data)}}
		require.ErrorContains(t, b.Run(t.Context(), nil), "state", data)
	}
	require.ErrorContains(t, (&IMAP{Address: "127.0.0.1:1"}).Run(t.Context(), nil), "no store for the state")
	require.ErrorContains(t, (&IMAP{}).Run(t.Context(), nil), "address")
}

// TestIMAPTooManyFailures: if every email fails, the list of open ones stays short.
func TestIMAPTooManyFailures(t *testing.T) {
	t.Parallel()
	var uids, all strings.Builder
	rules := []step{}
	for uid := 4; uid < 4+2*maxOpen; uid++ {
		fmt.Fprintf(&uids, " %d", uid)
		id := fmt.Sprint(uid)
		fmt.Fprintf(&all, "* 1 FETCH (UID %d RFC822.SIZE 17 INTERNALDATE \"22-Nov-2026 10:00:00 +0000\" BODY[HEADER.FIELDS (MESSAGE-ID)] {2}\r\n\r\n)\r\n", uid)
		rules = append(rules,
			step{"UID FETCH " + id + " (UID BODY", "* 1 FETCH (UID " + id + " BODY[]<0> {17}\r\nSubject: mail\r\n\r\n)\r\nTAG OK\r\n"},
			step{"UID FETCH " + id + " ", "* 1 FETCH (UID " + id + " RFC822.SIZE 17 INTERNALDATE \"22-Nov-2026 10:00:00 +0000\")\r\nTAG OK\r\n"})
	}
	rules = append([]step{{fmt.Sprintf("UID FETCH 4:%d ", 3+2*maxOpen), all.String() + "TAG OK\r\n"}}, rules...)
	rules = append(rules, step{"UID SEARCH", "* SEARCH" + uids.String() + "\r\nTAG OK\r\n"})
	f := newFakeIMAP(t, greeting, with(rules...)...)
	state := &memoryState{}
	works := false
	r := run(t, func(Incoming) error {
		if works {
			return nil
		}
		return errors.New("disk full")
	}, f.box(state, func(b *IMAP) { b.Timeout = testTimeout }))
	r.waitUntil("an error report", r.reported(fmt.Sprintf("will be retried: %d", maxOpen)))
	r.mu.Lock()
	works = true
	r.mu.Unlock()
	require.Len(t, r.subjects(2*maxOpen), 2*maxOpen)
	r.healthy()
	r.stop()
	require.Less(t, len(state.data), 20_000)
}

// TestIMAPSavesLater: a failed save is repeated.
func TestIMAPSavesLater(t *testing.T) {
	f := newFakeIMAP(t, greeting, with(step{"UID SEARCH", "* SEARCH 4\r\nTAG OK\r\n"})...)
	state := &memoryState{fail: errors.New("read-only")}
	r := run(t, nil, f.box(state, nil))
	require.Equal(t, []string{"four"}, r.subjects(1))
	r.waitUntil("an error report", r.reported("read-only"))
	state.refuse(nil)
	r.healthy()
	r.stop()
	require.Contains(t, string(state.data), `"next":5`)
	require.Len(t, r.taken, 1)
}

// TestIMAPTriesWithPauses: notifications by the server do not shorten the delays.
func TestIMAPTriesWithPauses(t *testing.T) {
	f := newFakeIMAP(t, greeting, with(step{"UID SEARCH", "* SEARCH 4\r\nTAG OK\r\n"})...)
	tries := 0
	r := run(t, func(Incoming) error { tries++; return errors.New("no") }, f.box(&memoryState{}, func(b *IMAP) {
		b.Idle, b.retryDelay = time.Millisecond, 20*time.Millisecond
	}))
	r.waitUntil("many scans", func() bool { return len(r.reports) > 50 })
	r.stop()
	require.Greater(t, tries, 1)
	require.Less(t, tries, 15, "the delays double: no more attempts fit into the minute that the scans may take")
}

// endless is a literal of announced size 2^40.
type endless struct{ read int }

func (e *endless) Size() int64 { return 1 << 40 }

func (e *endless) Read(p []byte) (int, error) {
	if e.read += len(p); e.read > 1<<20 {
		return 0, io.EOF
	}
	return len(p), nil
}

func TestIMAPReadsNoEndlessMail(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	text, err := (&imapConn{session: &session{conn: here}}).literal(&endless{}, MaxMail+1)
	require.ErrorContains(t, err, "the server sends 1099511627776 bytes")
	require.Empty(t, text)
	_, err = here.Write([]byte("x"))
	require.ErrorIs(t, err, io.ErrClosedPipe, "the connection is closed")
}

// TestIMAPKnowsOldEmails under new numbers: by the date, and within an hour of the newest
// one by the remembered Message-IDs. An email that was not taken yet is never old.
func TestIMAPKnowsOldEmails(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	mails := []struct {
		why  string
		at   time.Duration
		id   string
		open bool
	}{
		{"far older than the newest we knew", -5 * time.Hour, "<ancient@x>", false},
		{"as old, but not taken so far", -5 * time.Hour, "<stuck@x>", true},
		{"the newest we knew", -2 * time.Hour, "<newest@x>", false},
		{"a little older, and unknown: emails may arrive out of order", -150 * time.Minute, "<slow@x>", true},
		{"it came while the server moved", -time.Hour, "<fresh@x>", true},
	}
	var found, search strings.Builder
	var want []string
	for i, m := range mails {
		field := "Message-ID: " + m.id + "\r\n\r\n"
		fmt.Fprintf(&search, " %d", i+1)
		fmt.Fprintf(&found, "* %d FETCH (UID %d RFC822.SIZE 17 INTERNALDATE \"%s\" BODY[HEADER.FIELDS (Message-ID)] {%d}\r\n%s)\r\n",
			i+1, i+1, now.Add(m.at).Format("02-Jan-2006 15:04:05 -0700"), len(field), field)
		if m.open {
			want = append(want, fmt.Sprintf("imap 10/%d of ", i+1))
		}
	}
	rules := []step{
		{"EXAMINE", "* 5 EXISTS\r\n* OK [UIDVALIDITY 10] x\r\n* OK [UIDNEXT 6] x\r\nTAG OK\r\n"},
		{`UID SEARCH SINCE "20-Nov-2026"`, "* SEARCH" + search.String() + "\r\nTAG OK\r\n"},
		{"UID SEARCH", "* SEARCH\r\nTAG OK\r\n"},
		{"UID FETCH 1:5 ", found.String() + "TAG OK\r\n"},
	}
	for i := range mails {
		id := fmt.Sprint(i + 1)
		rules = append(rules,
			step{"UID FETCH " + id + " (UID BODY", "* " + id + " FETCH (UID " + id + " BODY[]<0> {17}\r\nSubject: mail\r\n\r\n)\r\nTAG OK\r\n"},
			step{"UID FETCH " + id + " ", "* " + id + " FETCH (UID " + id + " RFC822.SIZE 17 INTERNALDATE \"22-Nov-2026 10:00:00 +0000\")\r\nTAG OK\r\n"})
	}
	printed := func(id string) string { return emailDigest([]byte("Message-ID: "+id+"\r\n"), now, 17) }
	state := &memoryState{data: fmt.Appendf(nil,
		`{"version":1,"uidvalidity":9,"next":77,"open":[{"uid":70,"date":%d,"print":%q}],"seen":[{"uid":76,"date":%d,"print":%q}]}`,
		now.Add(-5*time.Hour).Unix(), printed("<stuck@x>"), now.Add(-2*time.Hour).Unix(), printed("<newest@x>"))}
	f := newFakeIMAP(t, greeting, with(rules...)...)
	r := run(t, nil, f.box(state, func(b *IMAP) { b.Now, b.Timeout = func() time.Time { return now }, testTimeout }))
	r.subjects(len(want))
	r.ready()
	r.stop()
	var names []string
	for _, m := range r.taken {
		names = append(names, m.Name[:len(m.Name)-8])
	}
	require.Equal(t, want, names)
	require.Contains(t, string(state.data), `"uidvalidity":10,"next":6`)
}

// TestIMAPRenumbered is the choice of what is old, by dates and by Message-IDs.
func TestIMAPRenumbered(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) int64 { return now.Add(d).Unix() }
	many := make([]imapMail, maxSeen)
	for i := range many {
		many[i] = imapMail{Date: at(-time.Duration(i) * time.Second), Digest: fmt.Sprint(i)}
	}
	tests := []struct {
		why  string
		seen []imapMail
		want int64
	}{
		{"there never was an email", nil, 0},
		{"an hour before the newest", []imapMail{{Date: at(-time.Hour)}, {Date: at(-3 * time.Hour)}}, at(-2 * time.Hour)},
		{"an email with a date in the future", []imapMail{{Date: at(24 * time.Hour)}, {Date: at(-time.Hour)}}, at(-2 * time.Hour)},
		{"more within the hour than we remember", many, at(-(maxSeen-1)*time.Second) + 1},
	}
	for _, tt := range tests {
		r := &imapReader{IMAP: &IMAP{Now: func() time.Time { return now }}, position: position[imapState]{state: imapState{Seen: tt.seen}}}
		require.Equal(t, tt.want, r.newSince(), tt.why)
	}
}

// TestIMAPManyHeadersFail: if the headers of many emails cannot be read at once, the emails are taken
// one by one.
func TestIMAPManyHeadersFail(t *testing.T) {
	t.Parallel()
	const last = 4 + manyNew
	var uids strings.Builder
	rules := []step{{fmt.Sprintf("UID FETCH 4:%d ", last), "* 1 FETCH (UID 4 BODY[HEADER.FIELDS (MESSAGE-ID)] {9999999}\r\n"}}
	for uid := 4; uid <= last; uid++ {
		fmt.Fprintf(&uids, " %d", uid)
		id := fmt.Sprint(uid)
		rules = append(rules,
			step{"UID FETCH " + id + " (UID BODY", "* 1 FETCH (UID " + id + " BODY[]<0> {17}\r\nSubject: mail\r\n\r\n)\r\nTAG OK\r\n"},
			step{"UID FETCH " + id + " ", "* 1 FETCH (UID " + id + " RFC822.SIZE 17 INTERNALDATE \"22-Nov-2026 10:00:00 +0000\")\r\nTAG OK\r\n"})
	}
	rules = append(rules, step{"UID SEARCH", "* SEARCH" + uids.String() + "\r\nTAG OK\r\n"})
	r := run(t, nil, newFakeIMAP(t, greeting, with(rules...)...).box(&memoryState{}, nil))
	require.Len(t, r.subjects(manyNew+1), manyNew+1)
	r.waitUntil("an error report", r.reported("fetch"))
}
