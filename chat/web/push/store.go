package push

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// Subscription is a browser that wants notifications, and its user. The endpoint is a secret: who knows it can make
// the push service work.
type Subscription struct {
	Endpoint string          `json:"endpoint"`
	Key      string          `json:"p256dh"` // the browser's public key
	Auth     string          `json:"auth"`   // its secret
	Person   approval.Person `json:"person"`
	Operator bool            `json:"operator,omitzero"` // the person could read HOME
	Language string          `json:"language"`
	Since    time.Time       `json:"since"`
}

// The largest numbers of subscriptions. Beyond the first, a person's oldest ends.
const (
	maxOfPerson = 10
	maxOfAll    = 500
)

const maxEndpoint = 2048 // bytes

// ErrFull says that there are too many subscriptions.
var ErrFull = errors.New("too many subscriptions")

// ID names a subscription. It does not tell the endpoint.
func (s Subscription) ID() string { return approval.Digest([]byte(s.Endpoint))[:32] }

// check reports what is wrong with a subscription. local allows a push service on this machine, for tests.
func (s Subscription) check(local bool) error {
	u, err := url.Parse(s.Endpoint)
	switch {
	case err != nil || len(s.Endpoint) > maxEndpoint || u.Host == "" || u.User != nil || u.Fragment != "":
		return errors.New("the endpoint is not valid")
	case u.Scheme != "https" && !local:
		return errors.New("the endpoint must use https")
	}
	_, err = newReceiver(s.Key, s.Auth)
	return err
}

// Store keeps the subscriptions. Set State, and call Load.
type Store struct {
	State chat.StateStore
	Local bool // a push service may be on this machine, and without https: for tests
	Now   func() time.Time

	mu  sync.Mutex
	all map[string]Subscription // by ID
}

// Load reads the subscriptions. One that is damaged is left out: its user can subscribe again.
func (s *Store) Load() error {
	names, err := s.State.List()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = map[string]Subscription{}
	for _, name := range names {
		b, err := s.State.Get(name)
		if err != nil {
			return err
		}
		var x Subscription
		if json.Unmarshal(b, &x) == nil && x.check(s.Local) == nil && x.ID() == name {
			s.all[name] = x
		}
	}
	return nil
}

// Add keeps a subscription. An earlier one with its endpoint ends: the browser has another user now.
func (s *Store) Add(x Subscription) error {
	if err := x.check(s.Local); err != nil {
		return err
	}
	x.Since = s.Now().UTC()
	b, err := json.Marshal(x)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.makeRoom(x); err != nil {
		return err
	}
	if err := s.State.Put(x.ID(), b); err != nil {
		return fmt.Errorf("keep subscription: %w", err)
	}
	s.all[x.ID()] = x
	return nil
}

// makeRoom removes the oldest subscription of a person who has too many. The caller holds the lock.
func (s *Store) makeRoom(x Subscription) error {
	var own []Subscription
	for id, old := range s.all {
		if id != x.ID() && old.Person.StableID() == x.Person.StableID() {
			own = append(own, old)
		}
	}
	if len(own) < maxOfPerson {
		if _, known := s.all[x.ID()]; !known && len(s.all) >= maxOfAll {
			return ErrFull
		}
		return nil
	}
	oldest := slices.MinFunc(own, func(a, b Subscription) int { return a.Since.Compare(b.Since) })
	return s.remove(oldest.ID())
}

// Remove ends the subscription with an ID, if it belongs to the person; "" is any person.
func (s *Store) Remove(id, stableID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x, ok := s.all[id]; !ok || stableID != "" && x.Person.StableID() != stableID {
		return nil
	}
	return s.remove(id)
}

// remove needs the lock.
func (s *Store) remove(id string) error {
	delete(s.all, id)
	if err := s.State.Remove(id); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Find returns the subscription with an ID.
func (s *Store) Find(id string) (Subscription, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.all[id]
	return x, ok
}

// All returns the subscriptions, in no order.
func (s *Store) All() []Subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.all))
}
