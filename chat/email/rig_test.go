package email

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/emersion/go-message"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/gate/gatetest"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/email/authentic"
	"github.com/permesso-dev/permesso/chat/email/mailbox"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/seal"
)

// rig is a channel over the real store and the real Decide. It keeps the emails
// that it sends, and it trusts every From: the proof of a sender has its own tests. It runs
// in a bubble of synctest, whose clock moves only when a test advances it.
type rig struct {
	*Adapter
	*deliver.Channel
	t         testing.TB
	store     *ipc.Store
	seal      *seal.Key
	sentStore *ipc.SentStore
	names     []string                       // of the configured workspaces
	people    map[string][]approval.Approver // by workspace
	hints     chan approval.Key
	limit     *writeLimit // nil: the stores work
	wait      func()      // until the channel is idle
	stop      func()      // the run
	ceilings  map[string]approval.Reversibility
	outbox    *outbox
	clock     *bubbleClock
	problems  atomic.Pointer[string] // the last report
	notes     atomic.Pointer[string] // the last one that is no problem
	alerts    []string
	next      int
	last      approval.Key
}

// bubbleClock is the bubble's clock.
type bubbleClock struct{ mu sync.Mutex }

func (c *bubbleClock) now() time.Time { return time.Now() }

func (c *bubbleClock) advance(d time.Duration) {
	c.sync()
	time.Sleep(d)
	synctest.Wait()
}

// sync makes what the test changed before it advanced the clock visible to the channel, which
// calls it too.
func (c *bubbleClock) sync() {
	c.mu.Lock()
	c.mu.Unlock() //nolint:staticcheck // nothing is guarded
}

// outbox is a mailSender that keeps the emails.
type outbox struct {
	clock  *bubbleClock
	mu     sync.Mutex
	mails  []sentMail
	before func(to string, raw []byte) error // may refuse
}

type sentMail struct {
	to  string
	raw []byte
}

func (o *outbox) Send(_ context.Context, _ string, to []string, msg []byte) error {
	o.clock.sync()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.before != nil {
		if err := o.before(to[0], msg); err != nil {
			return err
		}
	}
	o.mails = append(o.mails, sentMail{to[0], msg})
	return nil
}

func (o *outbox) take() []sentMail {
	o.mu.Lock()
	defer o.mu.Unlock()
	mails := o.mails
	o.mails = nil
	return mails
}

const (
	annMail = "ann@human.test"
	bobMail = "bob@human.test"
	evaMail = "eva@human.test" // of another workspace
)

func newRig(t testing.TB) *rig {
	t.Helper()
	time.Sleep(time.Until(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)))
	return newRigOutside(t, synctest.Wait)
}

// newRigOutside is a rig that needs no bubble if wait needs none.
func newRigOutside(t testing.TB, wait func()) *rig {
	t.Helper()
	clock := &bubbleClock{}
	w := &rig{
		t: t, clock: clock, outbox: &outbox{clock: clock}, ceilings: map[string]approval.Reversibility{}, wait: wait, stop: func() {},
		names: []string{"home", "office", "shop"},
		people: map[string][]approval.Approver{
			"home":   {{Name: "ann", IDs: map[string]string{"email": annMail}}},
			"office": {{Name: "ann", IDs: map[string]string{"email": annMail}}, {Name: "bob", IDs: map[string]string{"email": bobMail}, Language: "it"}, {Name: "carl"}},
			"shop":   {{Name: "eva", IDs: map[string]string{"email": evaMail}}},
		},
	}
	var o gatetest.Options
	for ws := range w.people {
		o.Workspaces = append(o.Workspaces, approval.Workspace{Name: ws})
	}
	home := gatetest.New(t, o)
	w.store, w.seal = home.Store, home.Seal
	release, err := w.store.Lease(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, release()) })
	w.sentStore = &ipc.SentStore{Store: w.store, Channel: "email"}
	w.restart()
	t.Cleanup(func() { w.stop() })
	return w
}

// restart simulates a new process over the same files.
func (w *rig) restart() {
	w.t.Helper()
	w.stop()
	decider := &gate.Decider{Store: w.store, Seal: w.seal, Now: w.clock.now, May: w.canDecide}
	viewer := &read.Viewer{Store: w.store, Seal: w.seal}
	drawer := func(name string) chat.StateStore {
		d, err := w.sentStore.State(name)
		require.NoError(w.t, err)
		return d
	}
	w.problems.Store(new(""))
	w.notes.Store(new(""))
	w.limit, w.hints = nil, make(chan approval.Key, 10)
	w.Adapter = &Adapter{
		Addressing: Addressing{Local: "permesso", Separator: "+", Domain: "gate.test"}, FollowUp: true,
		Sender: w.outbox, Verifier: &authentic.Authenticator{TrustRelay: true},
		Taken: limitedStateStore{drawer("taken"), w}, Tests: drawer("tests"),
		Ceiling: func(ws string) approval.Reversibility { return w.ceilings[ws] },
	}
	w.Channel = &deliver.Channel{
		Name: "email", Adapter: w.Adapter, State: drawer("state"), Sent: limitedSentStore{w.sentStore, w},
		Viewer: viewer, Interceptor: &chat.Interceptor{Decider: decider, Viewer: viewer, CanDecide: decider.CanDecide},
		Workspaces: w.workspaces,
		Style:      func(language string) chat.Style { return chat.Style{Language: language} },
		Foot:       func() string { return "log 1042 9f3c" },
		Problem:    func(what, _ string) { w.problems.Store(&what) },
		Note:       func(what, _ string) { w.notes.Store(&what) },
		Elsewhere:  func(_, text string) { w.alerts = append(w.alerts, text) },
		Changes:    w.hints, Every: 10000 * time.Hour, Retry: FirstRetry,
		Log: func(err error) { w.t.Log(err) },
	}
	w.start()
}

func (w *rig) problem() string { return *w.problems.Load() }

func (w *rig) note() string { return *w.notes.Load() }

func (w *rig) start() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stopped := false
	w.stop = func() {
		if cancel(); !stopped {
			require.NoError(w.t, <-done)
		}
		stopped = true
	}
	w.wait()
}

func (w *rig) workspaces() (all []deliver.Workspace) {
	w.clock.sync()
	for _, name := range w.names {
		ws := deliver.Workspace{Name: name}
		for _, p := range w.people[name] {
			if to, ok := Place(p, "email"); ok {
				ws.Places = append(ws.Places, to)
			}
		}
		all = append(all, ws)
	}
	return all
}

// storedCard is what the sent record of a request says of the card to one approver.
type storedCard struct {
	Chat    string   `json:"chat_id"`
	Secrets []string `json:"secrets"`
	Phase   string   `json:"phase"`
}

func (w *rig) storedCard(k approval.Key, to string) (card storedCard, closed bool) {
	w.t.Helper()
	b, err := w.sentStore.Load(k)
	require.NoError(w.t, err)
	var rec struct {
		Posts  []storedCard
		Closed time.Time
	}
	require.NoError(w.t, json.Unmarshal(b, &rec))
	i := slices.IndexFunc(rec.Posts, func(c storedCard) bool { return c.Chat == to })
	require.GreaterOrEqual(w.t, i, 0)
	return rec.Posts[i], !rec.Closed.IsZero()
}

// count counts the replies of ann about a request that had a result.
func (w *rig) count(k approval.Key, status Status) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.handled {
		if t.key() == k && t.Sender == annMail && t.Status == status {
			n++
		}
	}
	return n
}

// forgetUnclear makes room for more unclear replies to a card.
func (w *rig) forgetUnclear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.handled {
		if t.Status == Unclear {
			t.Status = Ignored
		}
	}
}

func (w *rig) canDecide(ws string, _ *approval.Pending, by approval.Person) (string, bool) {
	for _, p := range w.people[ws] {
		if by.Channel == "email" && p.IDs["email"] == by.ID {
			return p.Name, true
		}
	}
	return "bob", by.Channel == "local"
}

// addPending adds a pending request.
func (w *rig) addPending(ws, id string, change ...func(*approval.Pending)) approval.Key {
	w.t.Helper()
	k := approval.Key{Workspace: ws, ID: id}
	at := w.clock.now()
	p := &approval.Pending{
		Version: 1, RequestID: id, ShortID: approval.ShortID(id), Type: approval.TypeAction, ToolName: "x_post", ToolSHA256: "5e",
		SourceGroup: ws, SessionID: "s1", RequestData: approval.Raw(`{"text":"Meeting at 5"}`), Timestamp: at, ExpiresAt: at.Add(5 * time.Minute),
		ActionType: "send_message", Capability: "channel:out", Target: "x.com/ricardo", Reversibility: approval.Irreversible,
		Verb: map[string]string{"en": "post"}, Summary: `"Meeting at 5" -> x.com/ricardo`, Agent: approval.Prose{Rationale: "I need to remind the team."},
		Offers: postOffers(ws),
	}
	for _, c := range change {
		c(p)
	}
	body, err := p.Encode()
	require.NoError(w.t, err)
	require.NoError(w.t, w.store.Commit(context.Background(), store.Op{Doc: approval.DocPending, Key: k, Bytes: w.seal.Seal(approval.DocPending, k, body), Mode: store.Volatile}))
	return k
}

// postOffers are what codes 2 and 6 would remember of a post.
func postOffers(ws string) []approval.Offer {
	t := approval.Terms{Workspace: ws, ClientID: "ws:" + ws, Tool: "x_post", ToolSHA256: "5e", Form: grant.Target, Target: "x.com/ricardo", TargetKind: "exact"}
	session := t
	session.SessionID = "s1"
	return []approval.Offer{{Scope: approval.Session, Terms: session, Hours: 24}, {Scope: approval.Always, Terms: t, Hours: 90 * 24}}
}

// addNextPending replaces the pending request by another one, a day later.
func (w *rig) addNextPending(ws string, change ...func(*approval.Pending)) approval.Key {
	w.t.Helper()
	if w.next++; w.last.ID != "" {
		require.NoError(w.t, w.store.Remove(context.Background(), approval.DocPending, w.last))
	}
	w.clock.advance(24 * time.Hour)
	w.last = w.addPending(ws, fmt.Sprintf("a7f3%04x00000000", w.next), change...)
	return w.last
}

// writeRecord writes the record of a request.
func (w *rig) writeRecord(k approval.Key, status approval.Status) {
	w.t.Helper()
	w.writeRecordBy(k, status, "bob", "terminal")
}

func (w *rig) writeRecordBy(k approval.Key, status approval.Status, by, via string) {
	w.t.Helper()
	resp := approval.Response{Version: 1, RequestID: k.ID, Status: status, RespondedAt: w.clock.now()}
	resp.Decision.By, resp.Decision.Via = &by, &via
	b, err := resp.Encode()
	require.NoError(w.t, err)
	d, err := w.store.Read(context.Background(), approval.DocDecision, k)
	if err != nil {
		d = nil
	}
	rec := approval.Record{Version: 1, RequestID: k.ID, Workspace: k.Workspace, Status: status, Decision: d, RequestedAt: w.clock.now(), EndedAt: w.clock.now(), Response: b}
	body, err := rec.Encode()
	require.NoError(w.t, err)
	require.NoError(w.t, w.store.Commit(context.Background(), store.Op{Doc: approval.DocRecord, Key: k, Bytes: w.seal.Seal(approval.DocRecord, k, body), Mode: store.Volatile}))
	require.NoError(w.t, w.store.Remove(context.Background(), approval.DocPending, k))
}

// decision returns the decision on a request, or nil.
func (w *rig) decision(k approval.Key) *approval.Decision {
	w.t.Helper()
	b, err := w.store.Read(context.Background(), approval.DocDecision, k)
	if err != nil {
		return nil
	}
	return (&read.Viewer{Store: w.store, Seal: w.seal}).OpenDecision(k, b)
}

// runAndTakeSent does one pass of Run and returns the emails that it sent.
func (w *rig) runAndTakeSent() []sentMail {
	w.t.Helper()
	w.hints <- approval.Key{}
	w.wait()
	return w.outbox.take()
}

// parsedEmail is a parsed email of ours.
type parsedEmail struct {
	sentMail
	header     mail.Header
	subject    string
	text, page string
	token      string
}

func parseEmail(t testing.TB, m sentMail) parsedEmail {
	t.Helper()
	e, err := message.Read(strings.NewReader(string(m.raw)))
	require.NoError(t, err)
	o := parsedEmail{sentMail: m, header: mail.Header{}}
	for f := e.Header.Fields(); f.Next(); {
		o.header[f.Key()] = append(o.header[f.Key()], f.Value())
	}
	o.subject, err = e.Header.Text("Subject")
	require.NoError(t, err)
	require.NoError(t, e.Walk(func(_ []int, part *message.Entity, err error) error {
		require.NoError(t, err)
		kind, _, err := part.Header.ContentType()
		require.NoError(t, err)
		var b strings.Builder
		if !strings.HasPrefix(kind, "multipart/") {
			_, err = fmt.Fprint(&b, readAll(t, part))
		}
		switch kind {
		case "text/plain":
			o.text = b.String()
		case "text/html":
			o.page = b.String()
		}
		return err
	}))
	o.token = strings.TrimSuffix(strings.TrimPrefix(o.header.Get("Reply-To"), "permesso+"), "@gate.test")
	return o
}

func readAll(t testing.TB, e *message.Entity) string {
	t.Helper()
	var b strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := e.Body.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			return strings.ReplaceAll(b.String(), "\r\n", "\n")
		}
	}
}

// onlyEmail parses the only email in the list.
func (w *rig) onlyEmail(mails []sentMail) parsedEmail {
	w.t.Helper()
	require.Len(w.t, mails, 1)
	return parseEmail(w.t, mails[0])
}

var repliesWritten int

// replyTo returns a reply to a card, as a simple mail program writes it.
func replyTo(card parsedEmail, from, text string, edit ...func(h map[string]string)) mailbox.Incoming {
	repliesWritten++
	h := map[string]string{
		"From": from, "To": card.header.Get("Reply-To"), "Subject": "Re: =?utf-8?b?" + b64(card.subject) + "?=",
		"Date": time.Now().Format(time.RFC1123Z), "Message-ID": fmt.Sprintf("<%d@human.test>", repliesWritten),
		"In-Reply-To": card.header.Get("Message-Id"), "References": card.header.Get("Message-Id"), "Content-Type": "text/plain; charset=utf-8",
	}
	if h["To"] == "" {
		h["To"] = "permesso@gate.test"
	}
	for _, e := range edit {
		e(h)
	}
	var b strings.Builder
	for _, name := range []string{"From", "To", "Subject", "Date", "Message-ID", "In-Reply-To", "References", "Content-Type", "Content-Transfer-Encoding", "X"} {
		if h[name] != "" {
			fmt.Fprintf(&b, "%s: %s\r\n", name, h[name])
		}
	}
	raw := b.String() + "\r\n" + strings.ReplaceAll(text, "\n", "\r\n")
	return mailbox.Incoming{Name: fmt.Sprintf("test %d", repliesWritten), Raw: []byte(raw)}
}

func withoutHeaders(names ...string) func(map[string]string) {
	return func(h map[string]string) {
		for _, n := range names {
			delete(h, n)
		}
	}
}

func withHeader(name, value string) func(map[string]string) {
	return func(h map[string]string) { h[name] = value }
}

// deliver delivers an email and returns the result and the answers.
func (w *rig) deliver(in mailbox.Incoming) (Taken, []sentMail) {
	w.t.Helper()
	t, err := w.Take(w.t.Context(), in)
	require.NoError(w.t, err)
	return t, w.runAndTakeSent()
}

const id1 = "a7f3b2c1d4e5f6a7"

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// withCRLF is an email as it comes in.
func withCRLF(raw []byte) []byte {
	return bytes.ReplaceAll(bytes.ReplaceAll(raw, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))
}
