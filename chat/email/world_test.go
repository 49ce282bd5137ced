package email

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/mail"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-message"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/seal"
)

// world is a channel over the real store and the real Decide. Mails that it
// sends go no further, and a From is believed: who proves one has tests of its
// own.
type world struct {
	*Channel
	t       testing.TB
	store   *ipc.Store
	seal    *seal.Key
	book    *ipc.SentStore
	people  map[string][]approval.Approver // by workspace
	ceil    map[string]approval.Reversibility
	post    *outbox
	clock   *stillClock
	problem string
	alerts  []string
	next    int
	last    approval.Key
}

// stillClock is a time that stands still.
type stillClock struct {
	mu sync.Mutex
	at time.Time
}

func (c *stillClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *stillClock) passes(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// outbox is a Sender that keeps what it gets.
type outbox struct {
	mu     sync.Mutex
	mails  []sentMail
	before func(to string, raw []byte) error // may refuse
}

type sentMail struct {
	to  string
	raw []byte
}

func (o *outbox) Send(_ context.Context, _ string, to []string, msg []byte) error {
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

func newWorld(t testing.TB) *world {
	t.Helper()
	layout := ipc.Layout{Home: filepath.Join(t.TempDir(), "home")}
	require.NoError(t, layout.PrepareHome(ipc.OS()))
	w := &world{
		t: t, store: &ipc.Store{FS: ipc.OS(), Layout: layout}, post: &outbox{}, ceil: map[string]approval.Reversibility{},
		clock: &stillClock{at: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)},
		people: map[string][]approval.Approver{
			"home":   {{Name: "ann", Email: annMail}},
			"office": {{Name: "ann", Email: annMail}, {Name: "bob", Email: bobMail, Language: "it"}, {Name: "carl"}},
			"shop":   {{Name: "eva", Email: evaMail}},
		},
	}
	for ws := range w.people {
		require.NoError(t, layout.Prepare(ipc.OS(), ws))
	}
	var err error
	w.seal, err = seal.LoadOrCreate(ipc.OS(), layout.Keys())
	require.NoError(t, err)
	w.book = &ipc.SentStore{Store: w.store, Channel: "email"}
	w.restart()
	return w
}

// restart is a new process over the same files.
func (w *world) restart() {
	w.t.Helper()
	decider := &gate.Decider{Store: w.store, Seal: w.seal, Now: w.clock.now, Daemon: true, May: w.may}
	viewer := &gate.Viewer{Store: w.store, Workspaces: w.store, Seal: w.seal}
	drawer := func(name string) chat.StateStore {
		d, err := w.book.State(name)
		require.NoError(w.t, err)
		return d
	}
	w.problem = ""
	w.Channel = &Channel{
		Addressing: Addressing{Local: "permesso", Separator: "+", Domain: "gate.test"}, FollowUp: true,
		Sender: w.post, Prover: &Authenticator{TrustRelay: true},
		Viewer: viewer, Records: viewer, Interceptor: &chat.Interceptor{Decider: decider, Viewer: viewer, CanDecide: decider.CanDecide},
		Notebook: w.book, Taken: drawer("taken"), Tests: drawer("tests"),
		Workspaces: func() []string { return []string{"home", "office", "shop"} },
		People:     func(ws string) []approval.Approver { return w.people[ws] },
		Ceiling:    func(ws string) approval.Reversibility { return w.ceil[ws] },
		Style:      func(language string) chat.Style { return chat.Style{Language: language} },
		Foot:       func() string { return "log 1042 9f3c" },
		Problem:    func(what, _ string) { w.problem = what },
		Alert:      func(_, text string) { w.alerts = append(w.alerts, text) },
		Now:        w.clock.now,
	}
}

func (w *world) may(ws string, _ *approval.Pending, by approval.Person) (string, bool) {
	for _, p := range w.people[ws] {
		if by.Channel == "email" && p.Email == by.ID {
			return p.Name, true
		}
	}
	return "bob", by.Channel == "local"
}

// asks has a request wait.
func (w *world) asks(ws, id string, change ...func(*approval.Pending)) approval.Key {
	w.t.Helper()
	k := approval.Key{Workspace: ws, ID: id}
	at := w.clock.now()
	p := &approval.Pending{
		Version: 1, RequestID: id, ShortID: approval.ShortID(id), Type: approval.TypeAction, ToolName: "x_post", ToolSHA256: "5e",
		SourceGroup: ws, SessionID: "s1", RequestData: approval.Raw(`{"text":"Meeting at 5"}`), Timestamp: at, ExpiresAt: at.Add(5 * time.Minute),
		ActionType: "send_message", Capability: "channel:out", Target: "x.com/ricardo", Reversibility: approval.Irreversible,
		Verb: map[string]string{"en": "post"}, Summary: `"Meeting at 5" -> x.com/ricardo`, Agent: approval.Prose{Rationale: "I need to remind the team."},
	}
	for _, c := range change {
		c(p)
	}
	body, err := p.Encode()
	require.NoError(w.t, err)
	require.NoError(w.t, w.store.Create(approval.DocPending, k, w.seal.Seal(approval.DocPending, k, body), approval.Durable))
	return k
}

// asksNext has another request wait, a day later, in place of the one before.
func (w *world) asksNext(ws string, change ...func(*approval.Pending)) approval.Key {
	w.t.Helper()
	if w.next++; w.last.ID != "" {
		require.NoError(w.t, w.store.Remove(approval.DocPending, w.last))
	}
	w.clock.passes(24 * time.Hour)
	w.last = w.asks(ws, fmt.Sprintf("a7f3%04x00000000", w.next), change...)
	return w.last
}

// ends writes the record of a request.
func (w *world) ends(k approval.Key, status approval.Status) {
	w.t.Helper()
	w.endsBy(k, status, "bob", "terminal")
}

func (w *world) endsBy(k approval.Key, status approval.Status, by, via string) {
	w.t.Helper()
	resp := approval.Response{Version: 1, RequestID: k.ID, Status: status, RespondedAt: w.clock.now()}
	resp.Decision.By, resp.Decision.Via = &by, &via
	b, err := resp.Encode()
	require.NoError(w.t, err)
	d, err := w.store.Read(approval.DocDecision, k)
	if err != nil {
		d = nil
	}
	rec := approval.Record{Version: 1, RequestID: k.ID, Workspace: k.Workspace, Status: status, Decision: d, RequestedAt: w.clock.now(), EndedAt: w.clock.now(), Response: b}
	body, err := rec.Encode()
	require.NoError(w.t, err)
	require.NoError(w.t, w.store.Create(approval.DocRecord, k, w.seal.Seal(approval.DocRecord, k, body), approval.Durable))
	require.NoError(w.t, w.store.Remove(approval.DocPending, k))
}

// decided is what lies in the slot, nil where nothing does.
func (w *world) decided(k approval.Key) *approval.Decision {
	w.t.Helper()
	b, err := w.store.Read(approval.DocDecision, k)
	if err != nil {
		return nil
	}
	return (&gate.Viewer{Store: w.store, Workspaces: w.store, Seal: w.seal}).Decision(k, b)
}

// looks does what Run does, once.
func (w *world) looks() []sentMail {
	w.t.Helper()
	w.init()
	w.look(w.t.Context())
	return w.post.take()
}

// opened is a mail of ours, read.
type opened struct {
	sentMail
	header     mail.Header
	subject    string
	text, page string
	token      string
}

func open1(t testing.TB, m sentMail) opened {
	t.Helper()
	e, err := message.Read(strings.NewReader(string(m.raw)))
	require.NoError(t, err)
	o := opened{sentMail: m, header: mail.Header{}}
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

// one is the only mail there is.
func (w *world) one(mails []sentMail) opened {
	w.t.Helper()
	require.Len(w.t, mails, 1)
	return open1(w.t, mails[0])
}

var mailsWritten int

// letterTo is a reply to a card, as a plain mail program writes it.
func letterTo(card opened, from, text string, edit ...func(h map[string]string)) Incoming {
	mailsWritten++
	h := map[string]string{
		"From": from, "To": card.header.Get("Reply-To"), "Subject": "Re: =?utf-8?b?" + b64(card.subject) + "?=",
		"Date": "Sat, 21 Nov 2026 12:01:00 +0000", "Message-ID": fmt.Sprintf("<%d@human.test>", mailsWritten),
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
	return Incoming{Name: fmt.Sprintf("test %d", mailsWritten), Raw: []byte(raw), Size: int64(len(raw))}
}

func without(names ...string) func(map[string]string) {
	return func(h map[string]string) {
		for _, n := range names {
			delete(h, n)
		}
	}
}

func but(name, value string) func(map[string]string) {
	return func(h map[string]string) { h[name] = value }
}

// takes hands a mail in and gives what became of it, and what was answered.
func (w *world) takes(in Incoming) (Taken, []sentMail) {
	w.t.Helper()
	t, err := w.Take(w.t.Context(), in)
	require.NoError(w.t, err)
	return t, w.looks()
}

const id1 = "a7f3b2c1d4e5f6a7"

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
