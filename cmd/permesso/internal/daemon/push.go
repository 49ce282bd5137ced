package daemon

import (
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat/deliver"
	"github.com/permesso-dev/permesso/chat/web"
	"github.com/permesso-dev/permesso/chat/web/push"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/keyfile"
)

// pushLoopback, if not empty, allows push services on this machine. Only a program that is linked for tests sets it.
var pushLoopback string

// pushes is web push: the daemon's key, made when a person first could subscribe, and the subscriptions of users of
// the web UI.
type pushes struct {
	*server

	mu    sync.Mutex
	key   *push.Key
	store *push.Store
}

// keyFile is the file of the key, beside the other keys.
func (p *pushes) keyFile() keyfile.File {
	return keyfile.File{
		Path: filepath.Join(p.Layout.Keys(), "push.key"), Mode: 0o600, Refuse: 0o077, Min: push.KeySize, Max: push.KeySize, Protects: "subscriptions of browsers",
	}
}

// load returns the key. It creates the key if there is none.
func (p *pushes) load() (*push.Key, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.key != nil {
		return p.key, nil
	}
	f := p.keyFile()
	if err := errors.Join(f.Ensure(p.FS, push.NewKey), p.FS.SyncDir(p.Layout.Keys())); err != nil {
		return nil, err
	}
	b, err := f.Read(p.FS)
	if err != nil {
		return nil, err
	}
	if p.key, err = push.ParseKey(b); err != nil {
		return nil, f.Bad(err)
	}
	return p.key, nil
}

// subscriptions opens the store at its first use.
func (p *pushes) subscriptions() (*push.Store, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.store != nil {
		return p.store, nil
	}
	state, err := (&ipc.SentStore{Store: p.Store, Channel: push.Via}).State("subscriptions")
	if err != nil {
		return nil, err
	}
	store := &push.Store{State: state, Local: pushLoopback != "", Now: time.Now}
	if err := store.Load(); err != nil {
		return nil, err
	}
	p.store = store
	return store, nil
}

// Key implements web.Pusher.
func (p *pushes) Key() string {
	k, err := p.load()
	if err != nil {
		p.ui.Log(err)
		return ""
	}
	return k.Public()
}

// Subscribe implements web.Pusher.
func (p *pushes) Subscribe(u web.User, x web.Subscription) error {
	store, err := p.subscriptions()
	if err != nil {
		return err
	}
	return store.Add(push.Subscription{Endpoint: x.Endpoint, Key: x.Key, Auth: x.Auth, Language: x.Language, Person: u.Person, Operator: u.Operator})
}

// Unsubscribe implements web.Pusher.
func (p *pushes) Unsubscribe(u web.User, endpoint string) error {
	store, err := p.subscriptions()
	if err != nil {
		return err
	}
	return store.Remove(push.Subscription{Endpoint: endpoint}.ID(), u.Person.StableID())
}

// places returns the subscriptions of users who may see the requests of a workspace now.
func (p *pushes) places(store *push.Store, ws string) (places []deliver.Place) {
	for _, x := range store.All() {
		rights := uiPeople{p.server}.Rights(web.User{Person: x.Person, Operator: x.Operator})
		if !slices.Contains(rights.See, ws) {
			continue
		}
		if x.Operator {
			rights.Name = "" // sees the requests for others too
		}
		places = append(places, deliver.Place{Address: deliver.Address{Chat: deliver.ID(x.ID())}, Language: x.Language, Person: rights.Name})
	}
	return places
}

func pushKind() kind {
	enabled := func(cfg *config.Config) any {
		if cfg.UI == "" {
			return nil
		}
		return true
	}
	return kind{push.Via, enabled, openPush}
}

// openPush creates the channel. It sends nothing before a browser has subscribed.
func openPush(s *server, changes <-chan approval.Key) (channel, error) {
	store, err := s.push.subscriptions()
	if err != nil {
		return channel{}, err
	}
	r := s.channelEnv(push.Via)
	r.serves = func(_ *config.Config, ws string) bool { return len(s.push.places(store, ws)) > 0 }
	state, err := r.sentStore.State(storeState)
	if err != nil {
		return channel{}, err
	}
	a := &push.Adapter{Key: s.push.load, Store: store, Now: time.Now}
	c := r.deliver(a, state, changes, func(_ *config.Config, ws string) []deliver.Place { return s.push.places(store, ws) }, nil)
	c.Elsewhere = nil // other channels need not hear of one browser
	return channel{run: c.Run, limited: c.Limited}, nil
}
