package channeltest

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
)

// Fixture is an adapter and the service behind it: a group chat with the bot, an approver and a stranger.
type Fixture struct {
	Adapter            deliver.Adapter
	At                 deliver.Address
	Approver, Stranger deliver.ID
	Shown              func() []Shown                                  // the bot's messages in the chat as they are now, oldest first
	Tap                func(by, id deliver.ID, data string) string     // taps a button and returns the answer
	Say                func(by deliver.ID, text string, to deliver.ID) // writes a text, as a reply if to is set
	TooLong            int                                             // characters that a card does not show; 0: Traits.MaxText
	Fail               func()                                          // some calls fail, and then certainly nothing was sent
}

// Shown is a message of the bot.
type Shown struct {
	ID      deliver.ID
	Text    string            // and what is in its file
	Buttons map[string]string // their data by their texts
	Silent  bool              // of a notification
}

// Run tests an adapter. Each test opens a service of its own.
func Run(t *testing.T, open func(t *testing.T) Fixture) {
	for name, test := range map[string]func(*rig){
		"a decision by a button":          (*rig).decideByButton,
		"a decision by a reply":           (*rig).decideByReply,
		"a record after the decision":     (*rig).lateRecord,
		"a failure is told once":          (*rig).failure,
		"a stranger decides nothing":      (*rig).refuseStranger,
		"a restart asks nothing twice":    (*rig).restart,
		"a failure loses nothing":         (*rig).retry,
		"a deleted card is no problem":    (*rig).deletedCard,
		"a long card":                     (*rig).longCard,
		"many requests become a digest":   (*rig).digest,
		"commands and alerts":             (*rig).commands,
		"what was said while it was down": (*rig).saidWhileDown,
		"no approval of what is withheld": (*rig).withheld,
		"a secret that was not known":     (*rig).lateSecret,
		"no message has a secret":         (*rig).secretsInLists,
		"ids that begin the same":         (*rig).sameBeginning,
	} {
		t.Run(name, func(t *testing.T) {
			r := &rig{T: t, Fixture: open(t)}
			r.gate = newGate(t, "test", string(r.Approver))
			r.sent = r.gate.sent
			r.start()
			t.Cleanup(func() { r.stop() })
			test(r)
		})
	}
}

// testTimeout limits each wait for an expected event.
const testTimeout = time.Minute

// rig is a delivery channel with an adapter under test.
type rig struct {
	*testing.T
	Fixture
	gate   *gateRig
	sent   *sentStore
	spy    *spy
	run    *deliver.Channel
	redact scanner
	ahead  atomic.Int64 // of the real clock, in nanoseconds
	cancel context.CancelFunc
	done   chan error
}

// spy checks what the engine does with an adapter.
type spy struct {
	deliver.Adapter
	rig *rig

	mu       sync.Mutex
	traits   deliver.Traits
	deleted  bool     // edits find no message
	problems []string // as told to the operator
}

// Open implements deliver.Adapter.
func (s *spy) Open(ctx context.Context, in *deliver.Inbox) (deliver.Traits, error) {
	traits, err := s.Adapter.Open(ctx, in)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.traits = traits
	return traits, err
}

// Send implements deliver.Adapter. A button, and the ID of a card that is a letter, is recorded before it is sent.
func (s *spy) Send(ctx context.Context, to deliver.Address, m deliver.Message) (deliver.ID, error) {
	if m.Complete && !s.rig.sent.has(strings.Trim(string(m.ID), "<>")) {
		s.rig.Errorf("letter %s is sent before its record is durable", m.ID)
	}
	for _, row := range m.Buttons {
		for _, b := range row {
			_, nonce, _ := strings.Cut(b.Data, ":")
			if m.Card != nil && !s.rig.sent.has(nonce) {
				s.rig.Errorf("button %q is sent before its record is durable", b.Text)
			}
		}
	}
	return s.Adapter.Send(ctx, to, m)
}

// Edit implements deliver.Adapter.
func (s *spy) Edit(ctx context.Context, to deliver.Address, id deliver.ID, m deliver.Message) error {
	s.mu.Lock()
	deleted := s.deleted
	s.mu.Unlock()
	if deleted {
		return &deliver.Error{Class: deliver.Gone, Err: errors.New("message not found")}
	}
	return s.Adapter.Edit(ctx, to, id, m)
}

// problem implements deliver.Channel.
func (s *spy) problem(what, _ string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if what != "" {
		s.problems = append(s.problems, what)
	}
}

func (r *rig) start() {
	r.build()
	r.begin()
}

// build makes the channel, begin runs it.
func (r *rig) build() {
	r.spy = &spy{Adapter: r.Adapter, rig: r}
	r.run = &deliver.Channel{
		Name: "test", Adapter: r.spy, State: r.gate.state, Sent: r.sent, Viewer: r.gate, Guard: r.gate,
		Interceptor: &chat.Interceptor{Decider: r.gate.decider, Viewer: r.gate, Redact: &r.redact},
		Workspaces: func() []deliver.Workspace {
			return []deliver.Workspace{{Name: workspace, Language: "en", Places: []deliver.Place{{Address: r.At}}}}
		},
		Style:   func(language string) chat.Style { return chat.Style{Language: language, Redact: &r.redact} },
		Now:     func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) },
		Changes: r.gate.changes, Every: 20 * time.Millisecond, Retry: 5 * time.Millisecond, MaxCards: 3,
		Log: func(err error) { r.Log(err) }, Problem: r.spy.problem,
	}
}

func (r *rig) begin() {
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	r.done = make(chan error, 1)
	go func() { r.done <- r.run.Run(ctx) }()
}

func (r *rig) stop() {
	r.cancel()
	select {
	case err := <-r.done:
		require.NoError(r, err)
	case <-time.After(testTimeout):
		require.Fail(r, "the run does not end with its context")
	}
}

func (r *rig) traits() deliver.Traits {
	r.spy.mu.Lock()
	defer r.spy.mu.Unlock()
	return r.spy.traits
}

// letters reports whether messages are letters.
func (r *rig) letters() bool {
	r.await("the adapter", func() bool { return r.traits().Service != "" })
	return r.traits().Letters != nil
}

func (r *rig) await(what string, ok func() bool) {
	r.Helper()
	if assert.Eventually(r, ok, testTimeout, time.Millisecond, what) {
		return
	}
	for _, m := range r.Shown() {
		r.Logf("shown: %q", m.Text)
	}
	r.FailNow()
}

// awaitMessage waits for a message.
func (r *rig) awaitMessage(what string, ok func(Shown) bool) (found Shown) {
	r.Helper()
	r.await(what, func() bool {
		all := r.Shown()
		i := slices.IndexFunc(all, ok)
		if i >= 0 {
			found = all[i]
		}
		return i >= 0
	})
	return found
}

// card waits until a card is shown and recorded.
func (r *rig) card(k approval.Key) Shown {
	r.Helper()
	m := r.awaitMessage("the card of "+k.ID, func(m Shown) bool { return isCard(m, k) })
	r.await("the record of the card", func() bool { return r.sent.has(`"state":"sent"`) && r.sent.has(string(m.ID)) })
	return m
}

func isCard(m Shown, k approval.Key) bool {
	return strings.HasPrefix(m.Text, "🔐") && strings.Contains(m.Text, approval.ShortID(k.ID))
}

// cards counts the cards of a request.
func (r *rig) cards(k approval.Key) (n int) {
	for _, m := range r.Shown() {
		if isCard(m, k) {
			n++
		}
	}
	return n
}

// awaitOutcome waits until a card's outcome is shown: on the card without its buttons or, where messages cannot
// be edited, as a message of its own. By letter only those are told who did not decide.
func (r *rig) awaitOutcome(card Shown, text string) {
	r.Helper()
	if r.letters() {
		r.await("the end of the record", func() bool { return r.sent.has(`"closed"`) })
		isCard := func(m Shown) bool { return strings.HasPrefix(m.Text, "🔐") }
		r.await("one answer", func() bool { return len(slices.DeleteFunc(r.Shown(), isCard)) == 1 })
		return
	}
	r.awaitMessage("the outcome "+text, func(m Shown) bool {
		return strings.Contains(m.Text, text) && (m.ID == card.ID) == r.traits().Edits && len(m.Buttons) == 0
	})
}

func (r *rig) decideByButton() {
	k := r.gate.ask(1, "hello")
	m := r.card(k)
	if !r.traits().Buttons {
		require.Empty(r, m.Buttons)
		return
	}
	require.Contains(r, r.Tap(r.Approver, m.ID, m.Buttons["✅ Once"]), "Approved")
	require.Equal(r, approval.Approved, r.gate.decision(k).Verdict)
	r.awaitOutcome(m, "✅ Approved by ann")
}

func (r *rig) decideByReply() {
	k := r.gate.ask(1, "hello")
	m := r.card(k)
	r.Say(r.Approver, "3 not today", m.ID)
	r.awaitMessage("the confirmation", func(m Shown) bool { return strings.HasPrefix(m.Text, "Denied") })
	require.Equal(r, "not today", r.gate.decision(k).Feedback)
	r.awaitOutcome(m, "❌ Denied by ann")
	r.await("the end of the record", func() bool { return r.letters() || !r.sent.has(`"state"`) })
}

// lateRecord: the channel handles the decision before the gate has written the record. The outcome is shown once, also
// where the record adds nothing to the text of the decision.
func (r *rig) lateRecord() {
	k := r.gate.ask(1, "hello")
	m := r.card(k)
	r.gate.decider.Decided = nil // the gate learns of the decision below
	r.Say(r.Approver, "3 not today", m.ID)
	r.await("the decision", func() bool { return r.gate.decision(k) != nil })
	r.await("the card with the decision", func() bool { return r.letters() || r.sent.has(`"phase":"decided"`) })
	r.gate.home.Gate.Wake(k)
	r.awaitOutcome(m, "❌ Denied by ann")
	r.await("the end of the record", func() bool { return r.letters() || !r.sent.has(`"state"`) })
	lacks := func(m Shown) bool { return !strings.Contains(m.Text, "❌ Denied by ann") }
	require.True(r, r.letters() || len(slices.DeleteFunc(r.Shown(), lacks)) == 1, "one outcome")
}

// failure: what fails after its approval is told in one new message, also after a restart.
func (r *rig) failure() {
	k := r.gate.askTool("fails", "a7000001deadbeef", "hello")
	m := r.card(k)
	r.Say(r.Approver, "1", m.ID)
	told := func() (n int) {
		for _, x := range r.Shown() {
			if x.ID != m.ID && strings.Contains(x.Text, "boom") {
				n++
			}
		}
		return n
	}
	r.await("the message", func() bool { return told() > 0 })
	r.await("the end of the record", func() bool { return r.sent.has(`"closed"`) || !r.sent.has(`"state"`) })
	r.stop()
	r.start()
	r.card(r.gate.ask(2, "hello"))
	require.Equal(r, 1, told())
}

func (r *rig) refuseStranger() {
	k := r.gate.ask(1, "hello")
	m := r.card(k)
	if r.traits().Buttons {
		answer := r.Tap(r.Stranger, m.ID, m.Buttons["✅ Once"])
		require.NotEmpty(r, answer)
		require.NotContains(r, answer, "note")
	}
	before := len(r.Shown())
	r.Say(r.Stranger, "1", m.ID)
	if r.letters() { // a letter to a stranger could be answered forever
		r.Say(r.Approver, "3", m.ID)
		r.awaitMessage("the confirmation", func(m Shown) bool { return strings.HasPrefix(m.Text, "Denied") })
		require.Equal(r, approval.Denied, r.gate.decision(k).Verdict)
		require.Len(r, r.Shown(), before+1)
		return
	}
	r.await("the refusal", func() bool { return len(r.Shown()) > before })
	require.Nil(r, r.gate.decision(k))
	r.gate.mu.Lock()
	defer r.gate.mu.Unlock()
	require.Positive(r, r.gate.refused)
}

func (r *rig) restart() {
	k := r.gate.ask(1, "hello")
	m := r.card(k)
	r.stop()
	r.start()
	second := r.gate.ask(2, "hello")
	r.card(second)
	require.Equal(r, 1, r.cards(k))
	r.Say(r.Approver, "1", m.ID)
	r.await("the decision", func() bool { return r.gate.decision(k) != nil })
	require.Nil(r, r.gate.decision(second))
	r.awaitOutcome(m, "✅ Approved by ann")
}

func (r *rig) retry() {
	if r.Fail == nil {
		r.Skip("the service cannot be made to fail")
	}
	r.Fail()
	k := r.gate.ask(1, "hello")
	r.card(k)
	require.Equal(r, 1, r.cards(k))
}

// deletedCard: people clear their chats. A card that is gone needs no outcome, and the operator nothing to do.
func (r *rig) deletedCard() {
	k := r.gate.ask(1, "hello")
	m := r.card(k)
	if !r.traits().Edits {
		return
	}
	r.spy.mu.Lock()
	r.spy.deleted = true
	r.spy.mu.Unlock()
	r.Say(r.Approver, "1", m.ID)
	r.await("the end of the record", func() bool { return r.gate.decision(k) != nil && !r.sent.has(`"state"`) })
	r.spy.mu.Lock()
	defer r.spy.mu.Unlock()
	require.Empty(r, r.spy.problems)
}

func (r *rig) longCard() {
	r.await("the adapter", func() bool { return r.traits().Service != "" })
	limit := cmp.Or(r.TooLong, r.traits().MaxText)
	if limit == 0 {
		r.Skip("no card is too long")
	}
	k := r.gate.ask(1, strings.Repeat("x ", limit))
	m := r.card(k)
	require.NotContains(r, m.Buttons, "✅ Once")
	r.Say(r.Approver, "1", m.ID)
	r.awaitMessage("the refusal", func(m Shown) bool {
		letter := strings.Contains(m.Text, "does not show the complete request") && !isCard(m, k)
		return letter || strings.HasPrefix(m.Text, "Not all of ")
	})
	require.Nil(r, r.gate.decision(k))
	if r.traits().Buttons {
		r.Tap(r.Approver, m.ID, m.Buttons["📄 Show all"])
		r.awaitMessage("the document", func(m Shown) bool { return strings.Contains(m.Text, ": complete text") })
		r.await("the record of the document", func() bool { return r.sent.has(`"whole":true`) })
		r.await("the decision", func() bool { return r.answered(k, "1", m) })
	}
}

// answered replies to a card, and reports whether that decided: a record is on the disk before it counts.
func (r *rig) answered(k approval.Key, text string, card Shown) bool {
	before := len(r.Shown())
	r.Say(r.Approver, text, card.ID)
	r.await("an answer", func() bool { return len(r.Shown()) > before })
	return r.gate.decision(k) != nil
}

func (r *rig) digest() {
	keys := map[string]approval.Key{} // by short id
	for n := range 6 {
		k := r.gate.ask(n, "hello")
		keys[approval.ShortID(k.ID)] = k
	}
	if r.letters() {
		r.await("a card for each", func() bool { return len(r.Shown()) == 6 })
		return
	}
	// Requests that come together are asked in any order.
	isDigest := func(m Shown) bool { return strings.HasPrefix(m.Text, "📋") }
	m := r.awaitMessage("the digest", isDigest)
	if !r.traits().Edits || !r.traits().Buttons {
		return
	}
	m = r.awaitMessage("a line for each that has no card", func(m Shown) bool {
		cards := slices.DeleteFunc(r.Shown(), isDigest)
		return isDigest(m) && len(m.Buttons) == len(keys)-len(cards)+1
	})
	inDigest := slices.DeleteFunc(slices.Sorted(maps.Keys(keys)), func(short string) bool { return !strings.Contains(m.Text, short) })
	for label, data := range m.Buttons {
		number, _, _ := strings.Cut(label, " · ")
		i := slices.IndexFunc(inDigest, func(short string) bool { return strings.Contains(m.Text, "\n"+number+" ⏳ "+short) })
		if i < 0 {
			continue
		}
		r.Tap(r.Approver, m.ID, data)
		card := r.awaitMessage("the card", func(m Shown) bool { return isCard(m, keys[inDigest[i]]) })
		require.Contains(r, card.Buttons, "✅ Once")
		break
	}
	all := m.Buttons["❌ Deny these "+strconv.Itoa(len(inDigest))]
	require.NotContains(r, r.Tap(r.Stranger, m.ID, all), "Denied")
	require.Contains(r, r.Tap(r.Approver, m.ID, all), "Denied in "+workspace+": "+strconv.Itoa(len(inDigest)))
	for short, k := range keys {
		d := r.gate.decision(k)
		require.Equal(r, slices.Contains(inDigest, short), d != nil && d.Verdict == approval.Denied, short)
	}
}

func (r *rig) commands() {
	r.card(r.gate.ask(1, "hello"))
	if r.letters() {
		return // there are none
	}
	r.Say(r.Approver, "/pending", "")
	r.awaitMessage("the list", func(m Shown) bool { return strings.HasPrefix(m.Text, "Pending: 1") })
	r.run.Alert(workspace, "forged: see http://evil.example")
	r.awaitMessage("the alert", func(m Shown) bool { return strings.HasPrefix(m.Text, "forged: see") })
}

func (r *rig) saidWhileDown() {
	k := r.gate.ask(1, "hello")
	m := r.card(k)
	r.stop()
	r.Say(r.Approver, "1", m.ID)
	r.start()
	r.await("the decision", func() bool { return r.gate.decision(k) != nil })
	r.awaitOutcome(m, "✅ Approved by ann")
}
