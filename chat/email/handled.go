package email

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/deliver"
)

// handledEmail is an email that had an effect: a decision, or an answer of ours. One file
// holds both, so that either both are saved or neither.
type handledEmail struct {
	Version   int       `json:"version"`
	Name      string    `json:"name"`   // of the delivery
	Digest    string    `json:"print"`  // digest of the content, the same for every delivery
	Sender    string    `json:"sender"` // proved
	At        time.Time `json:"at"`
	Status    Status    `json:"status"`
	Workspace string    `json:"workspace"`
	ID        string    `json:"id"`
	SHA256    string    `json:"pending_sha256,omitempty"` // of the pending that the card showed
	Answer    *answerTo `json:"answer,omitempty"`
	Untold    string    `json:"untold,omitempty"`   // for the operator: why it was not taken, if it got no answer
	Sentence  string    `json:"sentence,omitempty"` // the same for its sender
	Told      bool      `json:"told,omitempty"`     // a later card has said so
}

// answerTo is our only answer to an email.
type answerTo struct {
	Subject    string   `json:"subject,omitempty"` // without the tag
	InReplyTo  string   `json:"in_reply_to,omitempty"`
	References []string `json:"references,omitempty"`
	MessageID  string   `json:"message_id"`
	Text       string   `json:"text,omitempty"` // removed when it is sent
	Open       bool     `json:"open,omitempty"` // it can be replied to
	State      string   `json:"state,omitempty"`
}

// The states of an answer that needs no further attempt.
const (
	stateSent   = "sent"
	stateFailed = "failed"
)

// handledEmails holds all of them, by file name.
type handledEmails map[string]*handledEmail

const (
	keepHandled       = 30 * 24 * time.Hour // how long a late reply is recognized
	pruneEvery        = time.Hour
	maxHandled        = 2000
	maxAnswersPerHour = 10 // to one sender
)

func fileName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// replyDigest is the digest of a reply's content.
func replyDigest(sender, about, messageID, text string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{sender, about, messageID, text}, "\n")))
	return hex.EncodeToString(sum[:16])
}

func (t *handledEmail) key() approval.Key { return approval.Key{Workspace: t.Workspace, ID: t.ID} }

// loadHandled reads the store. The caller holds the lock, here and below.
func (c *Adapter) loadHandled() error {
	names, err := c.Taken.List()
	if err != nil {
		return err
	}
	all := handledEmails{}
	for _, name := range names {
		b, err := c.Taken.Get(name)
		if err != nil {
			return err
		}
		t := &handledEmail{}
		if err := json.Unmarshal(b, t); err != nil || t.Version != 1 {
			c.Log.Warn().Str("file", name).Msg("record of a handled email unreadable")
			continue
		}
		all[name] = t
	}
	c.handled = all
	return nil
}

// saveHandled makes t durable.
func (c *Adapter) saveHandled(t *handledEmail) error {
	b, err := json.Marshal(t)
	if err != nil {
		return err
	}
	name := fileName(t.Name)
	if err := c.Taken.Put(name, b); err != nil {
		return fmt.Errorf("save record of a handled email: %w", err)
	}
	c.handled[name] = t
	return nil
}

// sendAnswer sends our answer to an email, if there is one to be sent. The lock marks our
// text if a reply quotes it: without it "4 needs text behind it" would be an answer.
func (c *Adapter) sendAnswer(t *handledEmail, after time.Duration) {
	a := t.Answer
	if a == nil || a.State == stateSent || a.State == stateFailed {
		return
	}
	m := deliver.Message{
		Key: t.key(), ID: deliver.ID(a.MessageID), ReplyTo: deliver.ID(a.InReplyTo), References: a.References,
		Title: "Re: " + a.Subject, Lines: []string{lock + " " + a.Text},
	}
	c.in.Answer(deliver.ID(t.Sender), m, t.At, a.Open, after, func(sent bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if a.Text, a.State = "", stateFailed; sent {
			a.State = stateSent
		}
		if err := c.saveHandled(t); err != nil { // after a restart it is sent again, under the same identifier
			c.Log.Error().Err(err).Msg("save state of an answer failed")
		}
	})
}

// repeats says whether an email was handled before, in this delivery or another. Only a
// decision counts if again is set: the same text may have been refused before.
func (l handledEmails) repeats(digest string, again bool) bool {
	for _, t := range l {
		if t.Digest == digest && (t.Status == Decided || !again) {
			return true
		}
	}
	return false
}

// answersSince counts our answers to a sender since that time. A confirmation ends an
// exchange, so it does not count.
func (l handledEmails) answersSince(sender string, since time.Time) (n int) {
	for _, t := range l {
		if t.Answer != nil && t.Status != Decided && t.Sender == sender && t.At.After(since) {
			n++
		}
	}
	return n
}

// count counts the replies of a card's approver with a result.
func (l handledEmails) count(card deliver.Letter, status Status) (n int) {
	for _, t := range l {
		if t.key() == card.Key && t.Sender == string(card.To) && t.SHA256 == card.SHA256 && t.Status == status {
			n++
		}
	}
	return n
}

// unanswered are the emails of a sender that were neither taken nor answered, oldest first.
func (l handledEmails) unanswered(sender string) (all []*handledEmail) {
	for _, t := range l {
		if t.Sender == sender && t.Untold != "" {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *handledEmail) int { return a.At.Compare(b.At) })
	return all
}

// warnAge is how long the status tells of an email that was neither taken nor answered.
const warnAge = 24 * time.Hour

// warnUnanswered tells the operator of the last email of each sender that was neither
// taken nor answered, until a later one decides. It is no fault of the channel.
func (c *Adapter) warnUnanswered() {
	decisions := map[string]time.Time{} // the last one of each sender
	for _, t := range c.handled {
		at := decisions[t.Sender]
		if t.Status == Decided && t.At.After(at) {
			at = t.At
		}
		decisions[t.Sender] = at
	}
	for sender, decided := range decisions {
		all := c.handled.unanswered(sender)
		if len(all) == 0 {
			continue
		}
		t := all[len(all)-1]
		if !t.At.After(decided) || time.Since(t.At) > warnAge {
			c.in.Note(sender, "", "")
			continue
		}
		what := fmt.Sprintf("an email by %s about %s was not taken, and not answered: %s", chat.Escape(sender), approval.ShortID(t.ID), chat.Escape(t.Untold))
		c.in.Note(sender, c.in.Channel().Name+": "+what, "ask for another reply to the card, or decide on another channel")
	}
}

// untold returns the sentences about such emails for the next card to their sender, and
// marks them as told once the card is sent.
func (c *Adapter) untold(sender string) (sentences []string, told func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.DeleteFunc(c.handled.unanswered(sender), func(t *handledEmail) bool { return t.Told })
	for _, t := range all[max(0, len(all)-3):] {
		sentences = append(sentences, t.Sentence)
	}
	return sentences, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, t := range all {
			t.Told = true
			if err := c.saveHandled(t); err != nil {
				c.Log.Error().Err(err).Msg("save record of a handled email failed")
			}
		}
	}
}

// pruneHandled removes the oldest.
func (c *Adapter) pruneHandled() {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.warnUnanswered()
	l := c.handled
	files := slices.SortedFunc(maps.Keys(l), func(a, b string) int {
		return cmp.Or(l[a].At.Compare(l[b].At), strings.Compare(a, b))
	})
	for i, f := range files {
		if now.Sub(l[f].At) < keepHandled && len(files)-i <= maxHandled {
			break
		}
		if err := c.Taken.Remove(f); err != nil {
			c.Log.Error().Err(err).Msg("remove record of a handled email failed")
			return
		}
		delete(l, f)
	}
}
