package telegram

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// The states of a page, for those who only want to know whether anybody was asked.
const (
	stateSending = "sending" // nobody can be said to have seen a card
	stateSent    = "sent"
)

// page is what the notebook holds for one request: the messages that stand for it, and what each of their
// buttons means. It is durable before any of them is sent, so that a tap is understood even where the
// gate died between sending a message and noting its id.
type page struct {
	Version  int       `json:"version"`
	State    string    `json:"state"`
	SHA256   string    `json:"pending_sha256"` // of what is shown
	Began    time.Time `json:"began"`          // when the page was made
	Recalled time.Time `json:"recalled,omitzero"`
	Reminded bool      `json:"reminded,omitzero"`
	Undone   bool      `json:"undone,omitzero"` // what was remembered of it is taken back
	Last     int       `json:"last"`            // number of the post made last
	Posts    []*post   `json:"posts"`           // in the order in which they were made
}

// post is one message with a card on it, or one that is about to be sent, or perhaps was.
type post struct {
	N        int               `json:"n"` // names it within the page
	Chat     int64             `json:"chat_id"`
	Thread   int               `json:"thread_id,omitzero"`
	Language string            `json:"language"`
	Nonces   map[string]string `json:"nonces"` // by verb
	Message  int               `json:"message_id,omitzero"`
	SentAt   time.Time         `json:"sent_at,omitzero"`
	Phase    phase             `json:"phase,omitzero"`
	Shown    string            `json:"shown,omitzero"`    // digest of what it shows, so that nothing is edited for nothing
	Whole    bool              `json:"whole,omitzero"`    // everything that would run was shown in this chat
	Wanted   bool              `json:"show_all,omitzero"` // somebody wants to see all of it
	Document int               `json:"document_id,omitzero"`
	Doubtful bool              `json:"doubtful,omitzero"` // it may have been sent; another one took its place
	Stale    string            `json:"stale,omitzero"`    // why it holds no more, though the request waits
	Digest   string            `json:"digest,omitzero"`   // it is a line of that digest
	Opened   bool              `json:"opened,omitzero"`   // … and somebody wanted the card, too
	Life     string            `json:"life"`              // of the channel, in which it was made
	Prompts  []prompt          `json:"prompts,omitzero"`
}

// prompt is a message of ours that opened a reply: what is said to it is said to the card, behind a code.
type prompt struct {
	Message int    `json:"message_id"`
	Verb    string `json:"verb"`
}

// phase is what a message shows.
type phase string

const (
	unsent  phase = ""
	partial phase = "partial" // the card, cut: it cannot be approved yet
	asked   phase = "asked"   // the card with all its buttons
	decided phase = "decided" // who decided what; it may be running
	undoing phase = "undo"    // how it ended, and a button to take back what is remembered of it
	over    phase = "over"    // how it ended; nothing changes any more
)

// Why a card holds no more, though its request waits.
const (
	staleMoved    = "moved"    // its chat is no longer that of the workspace
	staleReplaced = "replaced" // the request is another one by now
)

// The verbs of buttons. Those of the menu are its codes; options are o1 to o8.
const (
	verbAll    = "all"
	verbUndo   = "undo"
	verbOpen   = "open"
	verbSay    = "say" // the answer to a question, in words
	verbOption = "o"
)

// nonce is 128 random bits in hex: 32 bytes of the 64 that a button can carry.
func nonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func nonces(verbs []string) map[string]string {
	all := make(map[string]string, len(verbs))
	for _, v := range verbs {
		all[v] = nonce()
	}
	return all
}

// add puts a new post on the page, with fresh nonces for all the buttons that it may ever have.
func (p *page) add(life string, to Place, verbs []string) *post {
	p.Last++
	x := &post{N: p.Last, Life: life, Chat: to.Chat, Thread: to.Thread, Language: to.Language, Nonces: nonces(verbs)}
	p.Posts = append(p.Posts, x)
	return x
}

func (p *page) post(n int) *post {
	if p == nil {
		return nil
	}
	for _, x := range p.Posts {
		if x.N == n {
			return x
		}
	}
	return nil
}

func (p *page) drop(n int) {
	p.Posts = slices.DeleteFunc(p.Posts, func(x *post) bool { return x.N == n })
}

// at is the card in a place, sent or on its way; nil where there is none.
func (p *page) at(to Place) *post {
	for _, x := range p.Posts {
		if x.Chat == to.Chat && x.Thread == to.Thread && !x.Doubtful && x.Stale == "" {
			return x
		}
	}
	return nil
}

// verb says what a button of this post means.
func (x *post) verb(nonce string) string {
	for v, n := range x.Nonces {
		if n == nonce {
			return v
		}
	}
	return ""
}

// note keeps the state in step with the posts.
func (p *page) note() {
	p.State = stateSending
	for _, x := range p.Posts {
		if x.Message != 0 || !x.SentAt.IsZero() {
			p.State = stateSent
		}
	}
}

func (p *page) encode() ([]byte, error) {
	p.note()
	b, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode page: %w", err)
	}
	return append(b, '\n'), nil
}

func parsePage(b []byte) (*page, error) {
	p := &page{}
	if err := json.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("parse page: %w", err)
	}
	if p.Version != 1 {
		return nil, fmt.Errorf("parse page: version %d", p.Version)
	}
	for _, x := range p.Posts {
		if x == nil || x.N < 1 || x.Chat == 0 {
			return nil, fmt.Errorf("parse page: a post without a place")
		}
	}
	return p, nil
}

// clone is a page that may be changed.
func (p *page) clone() *page {
	if p == nil {
		return nil
	}
	q := *p
	q.Posts = make([]*post, len(p.Posts))
	for i, x := range p.Posts {
		y := *x
		y.Nonces, y.Prompts = maps.Clone(x.Nonces), slices.Clone(x.Prompts)
		q.Posts[i] = &y
	}
	return &q
}
