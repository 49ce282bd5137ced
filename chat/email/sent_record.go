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

// sentRecord is the sent record of one request: the emails that ask about it. It is saved
// before the first email is sent. So a reply can always be distinguished from a forgery, and
// after a restart we know what may have been sent.
type sentRecord struct {
	Version int         `json:"version"`
	SHA256  string      `json:"pending_sha256"` // of the pending that the cards show
	Cards   []*cardCopy `json:"cards"`
	Closed  time.Time   `json:"closed,omitzero"` // settled, and all outcomes sent; kept for late replies
}

// cardCopy is one card, sent to one approver.
type cardCopy struct {
	To        string   `json:"to"`
	Language  string   `json:"language,omitempty"`
	Subject   string   `json:"subject,omitempty"` // without the tag
	MessageID string   `json:"message_id"`
	Tokens    []string `json:"tokens"` // digests; any of them is valid
	Complete  bool     `json:"whole"`  // it shows everything that would run
	delivery
	FollowUp *delivery `json:"follow_up,omitempty"`

	Used    bool `json:"used,omitempty"`    // a reply to it has decided
	Late    bool `json:"late,omitempty"`    // its approver was told that it is too late
	Unclear int  `json:"unclear,omitempty"` // how many replies were answered with the menu

	failureReported bool // the final failure was reported, in this process
}

// A card has a limited number of tokens. The first ones belong to the card itself,
// one for each attempt with an unknown result. The others belong to answers of ours
// that can be replied to.
const (
	maxTokens   = 12
	firstTokens = 4
)

// addToken adds a new token to the card.
func (a *cardCopy) addToken() (token string) {
	token = NewToken()
	a.Tokens = append(a.Tokens, tokenDigest(token))
	if extra := len(a.Tokens) - maxTokens; extra > 0 {
		a.Tokens = slices.Delete(a.Tokens, firstTokens, firstTokens+extra)
	}
	return token
}

// removeToken removes a token that was not sent.
func (a *cardCopy) removeToken(token string) {
	digest := tokenDigest(token)
	a.Tokens = slices.DeleteFunc(a.Tokens, func(t string) bool { return t == digest })
}

// hasToken says whether the card has the token with that digest.
func (a *cardCopy) hasToken(digest string) bool {
	found := false
	for _, t := range a.Tokens {
		found = subtle.ConstantTimeCompare([]byte(t), []byte(digest)) == 1 || found
	}
	return found
}

// card returns the one sent to an address, or nil.
func (n *sentRecord) card(to string) *cardCopy {
	for _, a := range n.Cards {
		if a.To == to {
			return a
		}
	}
	return nil
}

// sentRecords are the sent records of all workspaces. The caller holds the channel's lock.
type sentRecords struct {
	records map[approval.Key]*sentRecord
	loaded  map[string]bool // workspaces
}

// load reads the sent records of a workspace. An unreadable one counts as missing: to
// send a card twice does no harm.
func (c *Channel) load(ws string) error {
	p := &c.state.sent
	if p.loaded[ws] {
		return nil
	}
	ids, err := c.Sent.List(ws)
	if err != nil {
		return err
	}
	for _, id := range ids {
		k := approval.Key{Workspace: ws, ID: id}
		b, err := c.Sent.Load(k)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		n := &sentRecord{}
		if err := json.Unmarshal(b, n); err != nil || n.Version != 1 {
			c.Log.Warn().Str("ws", ws).Str("id", id).Msg("sent record unreadable; card is sent again")
			continue
		}
		p.records[k] = n
	}
	c.applyHandled(ws)
	p.loaded[ws] = true
	return nil
}

// applyHandled applies the saved replies of a workspace to its cards: an earlier process
// may have ended before it did.
func (c *Channel) applyHandled(ws string) {
	unclear := map[*cardCopy]int{}
	for _, t := range c.state.handled.byFile {
		n := c.state.sent.records[t.key()]
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

// save makes a sent record durable.
func (c *Channel) save(k approval.Key, n *sentRecord) error {
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if err := c.Sent.Save(k, b); err != nil {
		return fmt.Errorf("save sent record of %s: %w", approval.ShortID(k.ID), err)
	}
	c.state.sent.records[k] = n
	return nil
}

// withID returns the requests with that id: agents of two workspaces may choose the
// same id.
func (p *sentRecords) withID(id string) (keys []approval.Key) {
	for k := range p.records {
		if k.ID == id {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

// byToken returns the card that a token belongs to, and its request.
func (p *sentRecords) byToken(token string) (approval.Key, *cardCopy) {
	digest := tokenDigest(token)
	for k, n := range p.records {
		for _, a := range n.Cards {
			if a.hasToken(digest) {
				return k, a
			}
		}
	}
	return approval.Key{}, nil
}
