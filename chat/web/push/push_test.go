package push_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/deliver/channeltest"
	"github.com/permesso-dev/permesso/chat/web/push"
	"github.com/permesso-dev/permesso/chat/web/push/pushserver"
)

// memory is a chat.StateStore.
type memory struct {
	mu    sync.Mutex
	files map[string][]byte
}

func (m *memory) Put(name string, b []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[name] = b
	return nil
}

func (m *memory) Get(name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.files[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return b, nil
}

func (m *memory) List() ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.files)), nil
}

func (m *memory) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, name)
	return nil
}

// rig is an adapter and a push service on loopback.
type rig struct {
	*pushserver.Server
	*push.Adapter
	key *push.Key
	now time.Time
}

func newRig(t *testing.T) *rig {
	b, err := push.NewKey()
	require.NoError(t, err)
	key, err := push.ParseKey(b)
	require.NoError(t, err)
	r := &rig{Server: pushserver.New(t), key: key, now: time.Now()}
	now := func() time.Time { return r.now }
	r.Adapter = &push.Adapter{Key: func() (*push.Key, error) { return key, nil }, Now: now, Store: &push.Store{State: &memory{files: map[string][]byte{}}, Local: true, Now: now}}
	require.NoError(t, r.Store.Load())
	return r
}

func person(name string) approval.Person {
	return approval.Person{Channel: "local", ID: name, Name: name}
}

// subscribe subscribes a browser of ann and returns its place.
func (r *rig) subscribe(t *testing.T, name string) deliver.Address {
	x := subscription(r.Subscribe(name, r.key.Public()))
	require.NoError(t, r.Store.Add(x))
	return deliver.Address{Chat: deliver.ID(x.ID())}
}

func subscription(b *pushserver.Browser) push.Subscription {
	return push.Subscription{Endpoint: b.Endpoint, Key: b.Key, Auth: b.Auth, Person: person("ann"), Language: "en"}
}

type payload struct {
	Title, Body, Tag, Path string
	Settled, Silent        bool
}

func shown(t *testing.T, m pushserver.Message) (p payload) {
	require.NoError(t, json.Unmarshal(m.Payload, &p))
	return p
}

func TestConformance(t *testing.T) {
	channeltest.RunPublisher(t, func(t *testing.T) channeltest.Fixture {
		r := newRig(t)
		return channeltest.Fixture{
			Adapter: r.Adapter, At: r.subscribe(t, "phone"),
			Shown: func() []channeltest.Shown {
				var all []channeltest.Shown
				for _, m := range r.Messages() {
					p := shown(t, m)
					all = slices.DeleteFunc(all, func(x channeltest.Shown) bool { return string(x.ID) == p.Tag })
					all = append(all, channeltest.Shown{ID: deliver.ID(p.Tag), Text: p.Title + "\n" + p.Body, Silent: p.Silent})
				}
				return all
			},
			Fail: func() { r.Fail(http.StatusTooManyRequests, http.StatusBadGateway) },
		}
	})
}

func (r *rig) card() deliver.Message {
	return deliver.Message{
		Key: approval.Key{Workspace: "personal", ID: "a7f3b2c1d4e5f6a7"}, ID: "0123456789abcdef0123456789abcdef", Until: r.now.Add(5 * time.Minute),
		Title: "🔐 May I post?", Lines: []string{"x_post · x.com/ricardo · personal · a7f3b2c1"},
	}
}

func TestMessages(t *testing.T) {
	r := newRig(t)
	at := r.subscribe(t, "phone")
	ctx := context.Background()
	_, err := r.Send(ctx, at, r.card())
	require.NoError(t, err)
	m := r.Messages()[0]
	require.Equal(t, 300, m.TTL, "the service drops it at the deadline")
	require.Equal(t, "high", m.Urgency)
	require.Equal(t, "0123456789abcdef0123456789abcdef", m.Topic, "a copy replaces it while the browser is not connected")
	want := payload{"🔐 May I post?", "x_post · x.com/ricardo · personal · a7f3b2c1", m.Topic, "r/personal/a7f3b2c1d4e5f6a7", false, false}
	require.Equal(t, want, shown(t, m))

	late := r.card()
	late.Until, late.Silent = r.now.Add(-time.Second), true
	_, err = r.Send(ctx, at, late)
	require.NoError(t, err)
	require.Zero(t, r.Messages()[1].TTL)
	require.True(t, shown(t, r.Messages()[1]).Silent)

	over := r.card()
	over.ID, over.ReplyTo, over.Until, over.Title, over.Lines = "", over.ID, time.Time{}, "Re: "+over.Title, []string{"Settled: denied · a7f3b2c1"}
	_, err = r.Send(ctx, at, over)
	require.NoError(t, err)
	want.Body, want.Settled, want.Silent = "Settled: denied · a7f3b2c1", true, true
	require.Equal(t, want, shown(t, r.Messages()[2]))
	require.Equal(t, "low", r.Messages()[2].Urgency)
	require.Empty(t, r.Refused())
}

func TestGoneSubscriptionIsRemoved(t *testing.T) {
	r := newRig(t)
	for _, code := range []int{http.StatusNotFound, http.StatusGone} {
		at := r.subscribe(t, fmt.Sprint(code))
		r.Fail(code)
		_, err := r.Send(context.Background(), at, r.card())
		require.NoError(t, err)
		require.Empty(t, r.Store.All())
		_, err = r.Send(context.Background(), at, r.card())
		require.NoError(t, err, "there is nothing to send")
	}
	require.Empty(t, r.Messages())
	require.NoError(t, r.Store.Load())
	require.Empty(t, r.Store.All(), "not after a restart, either")
}

func TestFailures(t *testing.T) {
	r := newRig(t)
	at := r.subscribe(t, "phone")
	for code, class := range map[int]deliver.Class{
		http.StatusTooManyRequests: deliver.Temporary, http.StatusServiceUnavailable: deliver.Temporary,
		http.StatusRequestEntityTooLarge: deliver.Rejected, http.StatusForbidden: deliver.Rejected, http.StatusTemporaryRedirect: deliver.Rejected,
		http.StatusFound: deliver.Rejected, // Go would follow it with GET
	} {
		r.Fail(code)
		_, err := r.Send(context.Background(), at, r.card())
		var e *deliver.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, class, e.Class, code)
		require.False(t, e.Service, "the other subscriptions are not delayed")
		require.NotContains(t, err.Error(), "/send/")
	}
	require.Len(t, r.Store.All(), 1)
	require.Len(t, r.Refused(), 6, "no redirect is followed")
}

// The address is checked when the connection is made: a name may lead anywhere by then.
func TestNoPrivateAddress(t *testing.T) {
	for _, host := range []string{"localhost", "127.0.0.1", "[::1]", "10.0.0.1", "169.254.169.254", "192.168.1.1", "[fe80::1]", "[::ffff:127.0.0.1]", "0.0.0.0"} {
		r := newRig(t)
		r.Store.Local = false
		b := r.Subscribe("phone", r.key.Public())
		x := subscription(b)
		x.Endpoint = "https://" + host + b.Endpoint[strings.LastIndexByte(r.URL, ':'):]
		require.NoError(t, r.Store.Add(x), "a name may lead to a public address later")
		_, err := r.Send(context.Background(), deliver.Address{Chat: deliver.ID(x.ID())}, r.card())
		require.NoError(t, err, host)
		require.Empty(t, r.Store.All(), "%s: the subscription is removed", host)
		require.Empty(t, r.Refused())
		require.Empty(t, r.Messages())
	}
}

func TestSubscriptionIsRefused(t *testing.T) {
	r := newRig(t)
	r.Store.Local = false
	good := subscription(r.Subscribe("phone", r.key.Public()))
	good.Endpoint = "https://push.example.org/send/1"
	require.NoError(t, r.Store.Add(good))
	for why, change := range map[string]func(x *push.Subscription){
		"no encryption":    func(x *push.Subscription) { x.Endpoint = "http://push.example.org/send/1" },
		"no host":          func(x *push.Subscription) { x.Endpoint = "https:///send/1" },
		"no URL":           func(x *push.Subscription) { x.Endpoint = "https://[" },
		"another scheme":   func(x *push.Subscription) { x.Endpoint = "file:///etc/passwd" },
		"a password":       func(x *push.Subscription) { x.Endpoint = "https://a:b@push.example.org/" },
		"a long endpoint":  func(x *push.Subscription) { x.Endpoint += strings.Repeat("x", 2048) },
		"a key of nothing": func(x *push.Subscription) { x.Key = "" },
		"a short secret":   func(x *push.Subscription) { x.Auth = "AA" },
	} {
		x := good
		change(&x)
		require.Error(t, r.Store.Add(x), why)
	}
	require.Len(t, r.Store.All(), 1)
}

func TestNumberOfSubscriptions(t *testing.T) {
	r := newRig(t)
	first := r.subscribe(t, "0")
	for n := range 10 {
		r.now = r.now.Add(time.Second)
		r.subscribe(t, fmt.Sprint(n+1))
	}
	require.Len(t, r.Store.All(), 10)
	_, there := r.Store.Find(string(first.Chat))
	require.False(t, there, "the oldest of the person ends")

	other := subscription(r.Subscribe("10", r.key.Public()))
	other.Person = person("bob")
	require.NoError(t, r.Store.Add(other))
	require.Len(t, r.Store.All(), 10, "the browser has another user now")
	require.NoError(t, r.Store.Remove(other.ID(), person("ann").StableID()))
	require.Len(t, r.Store.All(), 10, "of another person")
	require.NoError(t, r.Store.Remove(other.ID(), person("bob").StableID()))
	require.Len(t, r.Store.All(), 9)

	require.NoError(t, r.Store.Load())
	require.Len(t, r.Store.All(), 9, "after a restart")
	for n := range 600 {
		x := subscription(r.Subscribe(fmt.Sprint("many", n), r.key.Public()))
		x.Person = person(fmt.Sprint(n))
		if err := r.Store.Add(x); err != nil {
			require.ErrorIs(t, err, push.ErrFull)
			require.Len(t, r.Store.All(), 500)
			return
		}
	}
	require.Fail(t, "there is no limit")
}
