package telegram_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

// brittle is a notebook whose writes can fail.
type brittle struct {
	chat.SentStore
	fail func(p string) error
}

func (b brittle) Save(k approval.Key, p []byte) error {
	if err := b.fail(string(p)); err != nil {
		return err
	}
	return b.SentStore.Save(k, p)
}

var errDiskFull = errors.New("no space left on device")

// The buttons of a card are on disk before anybody can see them.
func TestNothingIsSentThatIsNotNoted(t *testing.T) {
	h := newHouse(t)
	var full atomic.Bool
	full.Store(true)
	h.open(func(c *telegram.Channel) {
		c.Notebook = brittle{c.Notebook, func(string) error {
			if full.Load() {
				return errDiskFull
			}
			return nil
		}}
	})
	k := keyIn(personal, 1)
	h.request(k, post)
	h.until("a failure", func() bool { return strings.Contains(h.logs(), "no space left") })
	require.Empty(t, h.api.State().FromBot(ann))
	full.Store(false)
	h.card(k, ann)
}

// openForgetful starts a life that sends cards and notes of none that it was sent.
func (h *house) openForgetful() {
	h.brittle = true
	h.open(func(c *telegram.Channel) {
		c.Notebook = brittle{c.Notebook, func(p string) error {
			if strings.Contains(p, `"message_id"`) {
				return errDiskFull
			}
			return nil
		}}
	})
}

// The gate dies between sending a card and noting that. A tap on that card is understood all the same, and
// so is one on the card that is sent in its place.
func TestATapOnACardThatWasNotNoted(t *testing.T) {
	for _, which := range []string{"the one that was not noted", "the new one"} {
		t.Run(which, func(t *testing.T) {
			h := newHouse(t)
			h.openForgetful()
			k := keyIn(personal, 1)
			old := h.asks(k, ann, post)
			h.until("the page", func() bool { return strings.Contains(h.page(k), `"state":"sending"`) })
			h.close()
			require.NotContains(t, h.page(k), "message_id")
			h.open()
			fresh := h.sees(ann, "a second card", func(m botapi.Message) bool { return m.ID > old.ID && m.Keyboard != nil })
			tapped := old
			if which == "the new one" {
				tapped = fresh
			}
			require.Contains(t, h.taps(ann, tapped, "✅ Once").Text, "Approved: ")
			require.Equal(t, approval.StatusApproved, h.settled(k).Status)
			h.says(tapped, "✅ Approved by ann")
			require.Equal(t, 1, h.hands.count(k))
			if tapped.ID == fresh.ID { // the other one still has its buttons, in a later life, too
				h.close()
				h.open()
				require.Regexp(t, "^Already approved by ann at ", h.taps(ann, old, "❌ Deny").Text)
				h.says(old, "✅ Approved by ann")
			}
			h.until("the end of the page", func() bool { return h.page(k) == "" })
		})
	}
}

// The same where the request is settled before the next life: no card takes the place of the one that was
// not noted, and whoever taps on it hears how it ended, however many lives later.
func TestATapOnACardThatWasNotNotedAndIsSettled(t *testing.T) {
	h := newHouse(t)
	h.openForgetful()
	k := keyIn(personal, 1)
	m := h.asks(k, ann, post)
	h.close()
	require.NotContains(t, h.page(k), "message_id")
	h.operator(k, approval.Denied)
	h.settled(k)
	for range 2 {
		h.open()
		h.until("all to be said", func() bool { return h.page(k) == "" || strings.Contains(h.page(k), `"phase":"over"`) })
		h.close()
	}
	h.open()
	require.Regexp(t, "^Already denied by operator:root at ", h.taps(ann, m, "✅ Once").Text)
	require.Empty(t, h.says(m, "❌ Denied by operator:root").Buttons())
	h.until("the end of the page", func() bool { return h.page(k) == "" })
}

// A card that perhaps stands somewhere is waited for a week, and no more than five hundred of them are.
func TestPagesThatLinger(t *testing.T) {
	h := newHouse(t)
	h.brittle = true
	var ahead atomic.Int64
	clock := func(c *telegram.Channel) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}
	h.open(clock)
	h.close()
	page := func(n int, began time.Time) string {
		return fmt.Sprintf(`{"version":1,"state":"sent","pending_sha256":"x","began":%q,"last":2,"posts":[`+
			`{"n":1,"chat_id":%d,"language":"en","nonces":{"1":"a%d"},"doubtful":true,"phase":"over","life":"x"},`+
			`{"n":2,"chat_id":%[2]d,"language":"en","nonces":{"1":"b%[3]d"},"message_id":9%03[3]d,"phase":"over","life":"x"}]}`,
			began.Format(time.RFC3339), ann, n)
	}
	began := time.Now()
	for n := range 502 {
		require.NoError(t, h.channel().Notebook.Save(keyIn(personal, n+1), []byte(page(n, began.Add(time.Duration(n)*time.Second)))))
	}
	h.open(clock)
	h.until("two to go", func() bool { return h.page(keyIn(personal, 1)) == "" && h.page(keyIn(personal, 2)) == "" })
	h.changed(keyIn(personal, 502))
	h.asks(keyIn(personal, 900), ann, post) // heeded after that one
	for n := range 500 {
		require.NotEmpty(t, h.page(keyIn(personal, n+3)), "page %d", n+3)
	}
	ahead.Store(int64(8 * 24 * time.Hour))
	h.until("the others to go", func() bool {
		ids, err := h.channel().Notebook.List(personal)
		return err == nil && !slices.ContainsFunc(ids, func(id string) bool { return id != keyIn(personal, 900).ID })
	})
}

// After a restart a card is answered as before, from its page alone.
func TestRestart(t *testing.T) {
	h := newHouse(t)
	h.open()
	k := keyIn(personal, 1)
	m := h.asks(k, ann, post)
	h.close()
	b, _ := m.Button("✅ Once")
	tap := h.api.TapData(ann, ann, m.ID, b.CallbackData) // while nobody is there
	h.open()
	require.Contains(t, h.answer(tap).Text, "Approved: ")
	require.Equal(t, approval.StatusApproved, h.settled(k).Status)
	require.Len(t, h.api.State().FromBot(ann), 1, "it is not asked again, nor recalled so soon")
}

// What was decided, or expired, while the channel was away is told when it is back.
func TestSettledWhileAway(t *testing.T) {
	h := newHouse(t)
	h.open()
	k := keyIn(personal, 1)
	m := h.asks(k, ann, post)
	h.close()
	h.operator(k, approval.Denied)
	h.settled(k)
	h.open()
	m = h.says(m, "❌ Denied by operator:root")
	require.Empty(t, m.Buttons())
	h.until("the end of the page", func() bool { return h.page(k) == "" })
}

// A page that waits for an undo survives a restart; after a day it goes.
func TestUndoAfterRestart(t *testing.T) {
	h := newHouse(t)
	var ahead atomic.Int64
	clock := func(c *telegram.Channel) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}
	h.open(clock)
	k := keyIn(personal, 1)
	m := h.asks(k, ann, post)
	h.taps(ann, m, "✅ This session")
	h.settled(k)
	m = h.becomes(m, "an undo button", func(m botapi.Message) bool { return len(m.Buttons()) == 1 })
	h.close()
	h.open(clock)
	h.revoker.grants = append(h.revoker.grants, approval.Grant{ID: k.ID, Workspace: personal, By: "ann"})
	ahead.Store(int64(25 * time.Hour))
	m = h.becomes(m, "no button", func(m botapi.Message) bool { return len(m.Buttons()) == 0 })
	require.Contains(t, m.Text, "✅ Approved for this session by ann")
	h.until("the end of the page", func() bool { return h.page(k) == "" })
}

// After a restart people are reminded of what waits, though not after every one.
func TestRecall(t *testing.T) {
	h := newHouse(t)
	var ahead atomic.Int64
	clock := func(c *telegram.Channel) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}
	h.open(clock)
	k := keyIn(personal, 1)
	m := h.asks(k, ann, post)
	recalls := func() (n int) {
		for _, x := range h.api.State().FromBot(ann) {
			if x.ReplyTo != nil && x.ReplyTo.ID == m.ID && strings.Contains(x.Text, "the gate was away") {
				n++
			}
		}
		return n
	}
	for i, tc := range []struct {
		after time.Duration
		want  int
	}{{time.Minute, 0}, {11 * time.Minute, 1}, {15 * time.Minute, 1}, {22 * time.Minute, 2}} {
		h.close()
		ahead.Store(int64(tc.after))
		h.open(clock)
		marker := h.api.Say(ann, ann, "/help")
		h.answered(marker)
		h.until("the recalls", func() bool { return recalls() >= tc.want })
		require.Equal(t, tc.want, recalls(), "restart %d", i)
	}
}

// Half-way to its end a request is called to mind, once.
func TestReminder(t *testing.T) {
	h := newHouse(t, telegram.Place{Chat: ann, Language: "it"})
	h.open()
	k := keyIn(personal, 1)
	asked := time.Now()
	m := h.asks(k, ann, post+`,"expires_in_sec":8`) // on a slow machine, too, there is time to remind
	r := h.sees(ann, "a reminder", func(x botapi.Message) bool { return x.ReplyTo != nil && x.ReplyTo.ID == m.ID })
	require.True(t, strings.HasPrefix(r.Text, "⏳ a7000001 aspetta ancora, fino alle "), r.Text)
	require.GreaterOrEqual(t, time.Since(asked), 3900*time.Millisecond)
	h.says(m, "⌛ Scaduto alle ")
	require.Len(t, h.api.State().FromBot(ann), 2)
}

// A workspace that is asked elsewhere from now on: the old card decides nothing, the new one does.
func TestAnotherPlace(t *testing.T) {
	h := newHouse(t, telegram.Place{Chat: ann})
	h.open()
	k := keyIn(personal, 1)
	old := h.asks(k, ann, post)
	b, _ := old.Button("✅ Once")
	h.mu.Lock()
	h.workspaces[0].Places = []telegram.Place{{Chat: family}}
	h.mu.Unlock()
	h.says(old, "This is asked elsewhere now.")
	m := h.card(k, family)
	require.Equal(t, "You are not an approver here.", h.answer(h.api.TapData(ann, ann, old.ID, b.CallbackData)).Text)
	require.Contains(t, h.taps(ann, m, "✅ Once").Text, "Approved: ")
}

// A page that cannot be read is torn out, and its request is asked anew.
func TestADamagedPage(t *testing.T) {
	h := newHouse(t)
	h.open()
	k := keyIn(personal, 1)
	old := h.asks(k, ann, post)
	h.close()
	require.NoError(t, h.channel().Notebook.Save(k, []byte(`{"version":1,"posts":[{"n":1}]}`)))
	h.open()
	h.sees(ann, "a new card", func(m botapi.Message) bool { return m.ID > old.ID && m.Keyboard != nil })
	b, _ := old.Button("✅ Once")
	require.Contains(t, h.answer(h.api.TapData(ann, ann, old.ID, b.CallbackData)).Text, "no longer means anything")
}

// An update whose handler fails by a bug comes again, and not for ever.
func TestAPoisonUpdate(t *testing.T) {
	h := newHouse(t)
	var calls atomic.Int32
	h.open(func(c *telegram.Channel) {
		c.Guard = panicking{h, &calls}
	})
	h.until("the journal to be empty", func() bool {
		names, err := h.channel().Updates.List()
		return err == nil && !strings.Contains(strings.Join(names, " "), "update-")
	})
	calls.Store(0)
	h.api.Say(ann, ann, "pending")
	h.until("it to be given up", func() bool { return strings.Contains(h.trouble(), "could not be handled and was given up") })
	require.EqualValues(t, 3, calls.Load())
	h.until("the journal to be empty", func() bool {
		names, err := h.channel().Updates.List()
		return err == nil && !strings.Contains(strings.Join(names, " "), "update-")
	})
}

type panicking struct {
	*house
	calls *atomic.Int32
}

func (p panicking) May(string, *approval.Pending, approval.Person) (string, bool) {
	p.calls.Add(1)
	panic("a bug")
}

// One that ends the process each time is given up, too: how often is counted on disk.
func TestAnUpdateThatKills(t *testing.T) {
	h := newHouse(t)
	raw, err := json.Marshal(map[string]any{"update_id": 5, "message": map[string]any{
		"message_id": 1, "date": 1, "text": "pending", "chat": map[string]any{"id": ann, "type": "private"}, "from": map[string]any{"id": ann, "first_name": "Ann"},
	}})
	require.NoError(t, err)
	require.NoError(t, h.channel().Updates.Put("update-5.json", raw))
	require.NoError(t, h.channel().Notes.Put("tries-5", []byte("3"))) // as three lives that ended in its handler leave it
	var calls atomic.Int32
	h.open(func(c *telegram.Channel) { c.Guard = panicking{h, &calls} })
	h.until("it to be given up", func() bool {
		names, err := h.channel().Updates.List()
		return err == nil && !strings.Contains(strings.Join(names, " "), "update-5")
	})
	require.Contains(t, h.trouble(), "could not be handled")
}

// One update in the journal that cannot be read holds up no other.
func TestAnUpdateThatCannotBeRead(t *testing.T) {
	h := newHouse(t)
	h.open()
	k := keyIn(personal, 1)
	m := h.asks(k, ann, post)
	h.close()
	b, _ := m.Button("✅ Once")
	for id, data := range map[int]string{900_000_001: "?", 900_000_002: b.CallbackData} {
		raw, err := json.Marshal(map[string]any{"update_id": id, "callback_query": map[string]any{
			"id": "1", "from": map[string]any{"id": ann, "first_name": "Ann"}, "chat_instance": "1", "data": data,
			"message": map[string]any{"message_id": m.ID, "date": 1, "chat": map[string]any{"id": ann, "type": "private"}},
		}})
		require.NoError(t, err)
		require.NoError(t, h.channel().Updates.Put(fmt.Sprintf("update-%d.json", id), raw))
	}
	h.open(func(c *telegram.Channel) { c.Updates = badDrawer{c.Updates} })
	require.Equal(t, approval.StatusApproved, h.settled(k).Status)
	h.until("the complaint", func() bool { return strings.Contains(h.logs(), "read update 900000001: input/output error") })
}

// badDrawer has one thing in it that cannot be read.
type badDrawer struct{ chat.StateStore }

func (d badDrawer) Get(name string) ([]byte, error) {
	if name == "update-900000001.json" {
		return nil, syscall.EIO
	}
	return d.StateStore.Get(name)
}
