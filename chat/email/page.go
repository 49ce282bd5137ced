package email

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
)

// note is the page of one request: the mails that ask about it. It is durable
// before the first of them is sent, so that a reply can always be told from a
// forgery, and a restart knows what may be on its way.
type note struct {
	Version int       `json:"version"`
	SHA256  string    `json:"pending_sha256"` // of the pending that the mails show
	Cards   []*asking `json:"cards"`
	Closed  time.Time `json:"closed,omitzero"` // settled, and everybody told: kept for late replies
}

// asking is one mail that asks one person.
type asking struct {
	To        string   `json:"to"`
	Approver  string   `json:"approver"`
	Language  string   `json:"language,omitempty"`
	Subject   string   `json:"subject,omitempty"` // without the tag
	MessageID string   `json:"message_id"`
	Tokens    []string `json:"tokens"` // digests; any of them will do
	Whole     bool     `json:"whole"`  // it shows all that would run
	delivery
	FollowUp *delivery `json:"follow_up,omitempty"`

	Used    bool `json:"used,omitempty"`    // a reply to it has decided
	Late    bool `json:"late,omitempty"`    // its person was told that it is too late
	Unclear int  `json:"unclear,omitempty"` // how often a reply was answered with the menu

	told bool // that no attempt will help, in this life
}

// The states of a mail of ours. The zero state is one of a mail that waits for
// its first attempt.
const (
	stateSending = "sending" // an attempt may be under way, or another one is due
	stateSent    = "sent"
	stateFailed  = "failed" // no attempt will help
)

// delivery is how far a mail of ours has come.
type delivery struct {
	State string    `json:"state,omitempty"`
	Tries int       `json:"tries,omitempty"`
	Maybe bool      `json:"maybe,omitempty"` // it may have arrived, though nobody said so
	Next  time.Time `json:"next,omitzero"`   // not before
	Error string    `json:"error,omitempty"`
}

// due says whether an attempt is due.
func (d *delivery) due(now time.Time) bool { return d.open() && !d.Next.After(now) }

func (d *delivery) open() bool { return d.State == "" || d.State == stateSending }

// The tokens of one card are bounded: the first ones went out with the card
// itself, one for each attempt whose end we do not know, the others with answers
// of ours that can be replied to.
const (
	maxTokens   = 12
	firstTokens = 4
)

// issue has a new token open the card.
func (a *asking) issue() (token string) {
	token = NewToken()
	a.Tokens = append(a.Tokens, TokenDigest(token))
	if extra := len(a.Tokens) - maxTokens; extra > 0 {
		a.Tokens = slices.Delete(a.Tokens, firstTokens, firstTokens+extra)
	}
	return token
}

// withdraw is for a token that went nowhere.
func (a *asking) withdraw(token string) {
	digest := TokenDigest(token)
	a.Tokens = slices.DeleteFunc(a.Tokens, func(t string) bool { return t == digest })
}

// opens says whether the token with that digest is one of the card's.
func (a *asking) opens(digest string) bool {
	found := false
	for _, t := range a.Tokens {
		found = subtle.ConstantTimeCompare([]byte(t), []byte(digest)) == 1 || found
	}
	return found
}

// card is the one sent to an address, or nil.
func (n *note) card(to string) *asking {
	for _, a := range n.Cards {
		if a.To == to {
			return a
		}
	}
	return nil
}

// pages are the notes of all workspaces, as they lie in the notebook. The
// caller holds the channel's lock.
type pages struct {
	notes  map[approval.Key]*note
	loaded map[string]bool // workspaces
}

// load reads what the notebook says of a workspace. A page that cannot be read
// counts as none: a card that is sent twice does no harm.
func (c *Channel) load(ws string) error {
	p := &c.state.pages
	if p.loaded[ws] {
		return nil
	}
	if p.notes == nil {
		p.notes, p.loaded = map[approval.Key]*note{}, map[string]bool{}
	}
	ids, err := c.Notebook.List(ws)
	if err != nil {
		return err
	}
	for _, id := range ids {
		k := approval.Key{Workspace: ws, ID: id}
		b, err := c.Notebook.Load(k)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		n := &note{}
		if err := json.Unmarshal(b, n); err != nil || n.Version != 1 {
			c.Log.Warn().Str("ws", ws).Str("id", id).Msg("a page of the notebook cannot be read: it is asked anew")
			continue
		}
		p.notes[k] = n
	}
	c.catchUp(ws)
	p.loaded[ws] = true
	return nil
}

// catchUp marks on a workspace's cards what the ledger says of replies to them: an
// earlier life may have ended before it did.
func (c *Channel) catchUp(ws string) {
	unclear := map[*asking]int{}
	for _, t := range c.state.taken.byFile {
		n := c.state.pages.notes[t.key()]
		if t.Workspace != ws || n == nil || t.SHA256 != n.SHA256 {
			continue
		}
		a := n.card(t.Sender)
		if a == nil {
			continue
		}
		switch t.Status {
		case Decided:
			a.Used = true
		case Late:
			a.Late = true
		case Unclear:
			unclear[a]++
			a.Unclear = max(a.Unclear, unclear[a])
		}
	}
}

// save makes a note durable.
func (c *Channel) save(k approval.Key, n *note) error {
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if err := c.Notebook.Save(k, b); err != nil {
		return fmt.Errorf("note what was sent for %s: %w", approval.ShortID(k.ID), err)
	}
	c.state.pages.notes[k] = n
	return nil
}

// named are the requests with that id; an agent may have chosen the id of
// another workspace's request.
func (p *pages) named(id string) (keys []approval.Key) {
	for k := range p.notes {
		if k.ID == id {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

// opened is the card that a token belongs to, and its request.
func (p *pages) opened(token string) (approval.Key, *asking) {
	digest := TokenDigest(token)
	for k, n := range p.notes {
		for _, a := range n.Cards {
			if a.opens(digest) {
				return k, a
			}
		}
	}
	return approval.Key{}, nil
}
