package email

import (
	"errors"
	"io/fs"

	"github.com/permesso-dev/permesso/chat"
)

// Rehearsal is a test card: a mail that looks like a card and is about nothing.
// The drawer tells a channel that runs meanwhile which token is one, so that it
// lays the answer there instead of answering it.
type Rehearsal struct {
	Drawer chat.Drawer
	Token  string
}

const answerSuffix = ".eml"

// Begin lets answers with the token be known as those to a test.
func (r *Rehearsal) Begin() error { return r.Drawer.Put(TokenDigest(r.Token), []byte("waits\n")) }

// Heard is the answer that a channel has laid down, nil where none came yet.
func (r *Rehearsal) Heard() ([]byte, error) {
	b, err := r.Drawer.Get(TokenDigest(r.Token) + answerSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// End forgets it.
func (r *Rehearsal) End() error {
	return errors.Join(r.Drawer.Remove(TokenDigest(r.Token)), r.Drawer.Remove(TokenDigest(r.Token)+answerSuffix))
}

// rehearsed lays a mail down that answers a test, and says whether it does.
func (c *Channel) rehearsed(m *Mail, raw []byte) bool {
	if c.Tests == nil {
		return false
	}
	for _, ref := range m.Refs(c.Addressing) {
		if ref.Token == "" {
			continue
		}
		digest := TokenDigest(ref.Token)
		if _, err := c.Tests.Get(digest); err != nil {
			continue
		}
		if err := c.Tests.Put(digest+answerSuffix, raw); err != nil {
			c.Log.Warn().Err(err).Msg("email: the answer to a test cannot be laid down")
		}
		return true
	}
	return false
}
