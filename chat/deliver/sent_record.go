package deliver

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// The states of a record. Readers of the file use them to see whether any approver was asked.
const (
	stateSending = "sending" // no card is known to be sent
	stateSent    = "sent"
)

// sentRecord lists the messages that show one request, and the nonces of their buttons. It is durable before
// any of them is sent, so that a tap is understood even if the daemon died between sending a message and
// recording its ID.
type sentRecord struct {
	Version    int         `json:"version"`
	State      string      `json:"state"`
	SHA256     string      `json:"pending_sha256"`    // of the pending that is shown
	CreatedAt  time.Time   `json:"began"`             // of this record
	Reminded   bool        `json:"reminded,omitzero"` // as an earlier version recorded it
	Undone     bool        `json:"undone,omitzero"`   // the grant of its approval was revoked
	LastNumber int         `json:"last"`              // of the newest copy
	Copies     []*sentCopy `json:"posts"`             // oldest first
	ClosedAt   time.Time   `json:"closed,omitzero"`   // of letters: when the last outcome was sent
	First      []oldLetter `json:"cards,omitempty"`   // the copies, as the first version of the email channel wrote them
}

// sentCopy is one card message: sent, about to be sent, or possibly sent.
type sentCopy struct {
	Number      int               `json:"n"` // unique in the record
	Chat        ID                `json:"chat_id"`
	Thread      ID                `json:"thread_id,omitzero"`
	Language    string            `json:"language"`
	Nonces      map[string]string `json:"nonces"` // by verb
	Message     ID                `json:"message_id,omitzero"`
	SentAt      time.Time         `json:"sent_at,omitzero"`
	Phase       phase             `json:"phase,omitzero"`
	ShownHash   string            `json:"shown,omitzero"`     // of the last text sent, to avoid needless edits
	FullyShown  bool              `json:"whole,omitzero"`     // everything that would run was shown in this chat
	ShowAll     bool              `json:"show_all,omitzero"`  // a user tapped Show all
	MaybeSent   bool              `json:"doubtful,omitzero"`  // it is unknown whether it was sent; another copy replaces it
	Searched    bool              `json:"searched,omitzero"`  // … and its message was searched for
	TwoSteps    bool              `json:"two_steps,omitzero"` // it replaces such a one: its approve buttons follow, see addCopy
	StaleReason string            `json:"stale,omitzero"`     // why it is no longer valid, though the request is pending
	Digest      string            `json:"digest,omitzero"`    // it is a line of that digest
	CardWanted  bool              `json:"opened,omitzero"`    // … and a user asked for the card as well
	SessionID   string            `json:"life"`               // the session that created it
	Prompts     []prompt          `json:"prompts,omitzero"`
	RecalledAt  time.Time         `json:"recalled,omitzero"`
	Reminded    bool              `json:"reminded,omitzero"`
	Told        aftermath         `json:"told,omitzero"` // the last one that was told in a new message

	Letter      ID        `json:"letter,omitzero"` // the ID of a letter, sent or not; "": it is none
	Title       string    `json:"title,omitzero"`
	Secrets     []string  `json:"secrets,omitzero"`  // digests; any of them is valid
	Unconfirmed bool      `json:"maybe,omitzero"`    // it may have arrived
	RetryAt     time.Time `json:"retry_at,omitzero"` // no attempt before this time
	Failure     string    `json:"failure,omitzero"`  // why it will never be sent
}

// prompt is a message that opens a reply. The user's reply to it counts as a reply to the card, with the verb
// before it.
type prompt struct {
	Message ID     `json:"message_id"`
	Verb    string `json:"verb"`
}

// phase is what a message shows.
type phase string

const (
	phaseUnsent  phase = ""
	phasePartial phase = "partial" // the card, shortened: it cannot be approved yet
	phaseAsked   phase = "asked"   // the card with all its buttons
	phaseDecided phase = "decided" // the decision; the action may be running
	phaseUndo    phase = "undo"    // the outcome, and a button that revokes the grant
	phaseOver    phase = "over"    // the outcome; no more changes
)

// Why a copy is no longer valid though its request is pending.
const (
	staleMoved    = "moved"    // the workspace is now asked in another chat
	staleReplaced = "replaced" // the pending was replaced by another one
)

// The verbs of buttons. Those of the menu are its codes; options are o1 to o8.
const (
	verbAll    = "all"
	verbWhy    = "why"
	verbUndo   = "undo"
	verbOpen   = "open"
	verbSay    = "say" // a question is answered in words
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

// add adds a copy with fresh nonces for all the buttons that it may ever have.
func (p *sentRecord) add(sessionID string, to Place, verbs []string) *sentCopy {
	p.LastNumber++
	x := &sentCopy{Number: p.LastNumber, SessionID: sessionID, Chat: to.Chat, Thread: to.Thread, Language: to.Language, Nonces: nonces(verbs)}
	p.Copies = append(p.Copies, x)
	return x
}

// find returns the first such copy, or nil; p may be nil.
func (p *sentRecord) find(is func(x *sentCopy) bool) *sentCopy {
	if p == nil {
		return nil
	}
	for _, x := range p.Copies {
		if is(x) {
			return x
		}
	}
	return nil
}

func (p *sentRecord) byNumber(n int) *sentCopy {
	return p.find(func(x *sentCopy) bool { return x.Number == n })
}

func (p *sentRecord) remove(n int) {
	p.Copies = slices.DeleteFunc(p.Copies, func(x *sentCopy) bool { return x.Number == n })
}

// copyIn returns the current copy in a place, sent or queued, or nil.
func (p *sentRecord) copyIn(to Place) *sentCopy {
	return p.find(func(x *sentCopy) bool { return x.isIn(to) && !x.MaybeSent && x.StaleReason == "" })
}

// updateState derives the state from the copies.
func (p *sentRecord) updateState() {
	p.State = stateSending
	if p.find(func(x *sentCopy) bool { return x.Message != "" || !x.SentAt.IsZero() }) != nil {
		p.State = stateSent
	}
}

func (p *sentRecord) encode() ([]byte, error) {
	p.updateState()
	b, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode sent record: %w", err)
	}
	return append(b, '\n'), nil
}

func parseRecord(b []byte) (*sentRecord, error) {
	p := &sentRecord{}
	if err := json.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("parse sent record: %w", err)
	}
	if p.Version != 1 {
		return nil, fmt.Errorf("parse sent record: unknown version %d", p.Version)
	}
	p.takeFirst()
	for _, x := range p.Copies {
		if x == nil || x.Number < 1 || x.Chat == "" {
			return nil, fmt.Errorf("parse sent record: copy without chat_id")
		}
	}
	return p, nil
}

// clone returns a copy that may be changed.
func (p *sentRecord) clone() *sentRecord {
	if p == nil {
		return nil
	}
	q := *p
	q.Copies = make([]*sentCopy, len(p.Copies))
	for i, x := range p.Copies {
		y := *x
		y.Nonces, y.Prompts, y.Secrets = maps.Clone(x.Nonces), slices.Clone(x.Prompts), slices.Clone(x.Secrets)
		q.Copies[i] = &y
	}
	return &q
}
