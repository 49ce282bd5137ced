package email

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/chat"
)

// Drop is a drawer that another process lays mails in, one a file: a Box for who
// has a mail server that hands mails to a program. What was taken is removed.
type InboxQueue struct {
	Drawer  chat.StateStore
	Changes <-chan struct{}  // hints that something came; nil: none
	Every   time.Duration    // how often to look without a hint; 0: 2 s
	Report  func(error)      // told what is wrong after each look, or nil; may be nil
	Now     func() time.Time // nil: time.Now

	pause time.Duration // the shortest before trying a mail again; 0: 1 s
}

var _ Mailbox = (*InboxQueue)(nil)

// headerOnly ends the name of a mail that was too large to be kept whole.
const headerOnly = ".header"

// Put lays a mail in the drawer, durably, under a name that no other one has. Of
// one that is too large only the header is kept: nobody will read it, but to
// refuse it would send the sender a bounce, whoever that is.
func (d *InboxQueue) Put(name string, mail io.Reader) error {
	raw, err := io.ReadAll(io.LimitReader(mail, MaxMail+1))
	if err != nil {
		return fmt.Errorf("read the mail: %w", err)
	}
	if len(raw) == 0 {
		return ErrNoMail
	}
	raw = withoutEnvelope(raw)
	if len(raw) > MaxMail {
		name, raw = name+headerOnly, headerOf(withCRLF(raw))
	}
	return d.Drawer.Put(name, raw)
}

// ErrNoMail is a delivery of nothing at all.
var ErrNoMail = errors.New("there is no mail in it")

// withoutEnvelope takes the line off that some servers put before a mail which
// they hand to a program: "From ann@human.test Sat Nov 21 …".
func withoutEnvelope(raw []byte) []byte {
	if !bytes.HasPrefix(raw, []byte("From ")) {
		return raw
	}
	_, rest, _ := bytes.Cut(raw, []byte("\n"))
	return rest
}

// Run is Box's.
func (d *InboxQueue) Run(ctx context.Context, take func(context.Context, Incoming) error) error {
	retries := map[string]retry{}
	return lookOn(ctx, d.Changes, d.every, d.Report, func() error { return d.look(ctx, take, retries) })
}

func (d *InboxQueue) every() time.Duration {
	if d.Every > 0 {
		return d.Every
	}
	return 2 * time.Second
}

func (d *InboxQueue) now() time.Time {
	if d.Now != nil {
		return d.Now()
	}
	return time.Now()
}

func (d *InboxQueue) look(ctx context.Context, take func(context.Context, Incoming) error, retries map[string]retry) error {
	names, err := d.Drawer.List()
	if err != nil {
		return &MailboxError{Stage: "look for delivered mails", Temporary: true, Err: err}
	}
	first := d.pause
	if first <= 0 {
		first = time.Second
	}
	var trouble error
	for _, name := range names {
		if ctx.Err() != nil {
			return nil
		}
		if retries[name].at.After(d.now()) {
			continue
		}
		if err := d.one(ctx, take, name); err != nil {
			trouble = err
			retries[name] = retries[name].again(d.now(), first, mailPause)
			continue
		}
		delete(retries, name)
	}
	return trouble
}

func (d *InboxQueue) one(ctx context.Context, take func(context.Context, Incoming) error, name string) error {
	raw, err := d.Drawer.Get(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	in := Incoming{Name: "drop " + name, Raw: withCRLF(raw), Size: int64(len(raw)), TooLarge: strings.HasSuffix(name, headerOnly)}
	if err := hand(ctx, take, in); err != nil {
		return err
	}
	return d.Drawer.Remove(name)
}

// MailboxState is a State that lies in a drawer under a name.
type MailboxState struct {
	Drawer chat.StateStore
	Name   string
}

var _ State = MailboxState{}

// Load implements State.
func (s MailboxState) Load() ([]byte, error) {
	b, err := s.Drawer.Get(s.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// Save implements State.
func (s MailboxState) Save(data []byte) error { return s.Drawer.Put(s.Name, data) }
