package mailbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/chat"
)

// InboxQueue is a Mailbox: a store into which another process puts emails, one a
// file. It is for mail servers that deliver to a program. Taken emails are removed.
type InboxQueue struct {
	Store   chat.StateStore
	Changes <-chan struct{}  // hints that an email arrived; nil: none
	Every   time.Duration    // scan interval without a hint; 0: 2 s
	Report  func(error)      // gets the result of each scan, nil if all is well; may be nil
	Now     func() time.Time // nil: time.Now
}

var _ Mailbox = (*InboxQueue)(nil)

// headerOnly is the suffix of an email of which only the header was kept.
const headerOnly = ".header"

// Put saves an email durably under a name that must be new. Of an email that is too
// large only the header is kept. It is not refused: the mail server would then send a
// bounce to its sender, who may be forged.
func (d *InboxQueue) Put(name string, mail io.Reader) error {
	raw, err := io.ReadAll(io.LimitReader(mail, MaxMail+1))
	if err != nil {
		return fmt.Errorf("read the email: %w", err)
	}
	if len(raw) == 0 {
		return ErrNoMail
	}
	raw = withoutEnvelope(raw)
	if len(raw) > MaxMail {
		name, raw = name+headerOnly, headerOf(withCRLF(raw))
	}
	return d.Store.Put(name, raw)
}

// ErrNoMail is the error for an empty delivery.
var ErrNoMail = errors.New("the delivery is empty")

// withoutEnvelope removes the line that some servers put before an email that they
// pass to a program: "From ann@human.test Sat Nov 21 …".
func withoutEnvelope(raw []byte) []byte {
	if !bytes.HasPrefix(raw, []byte("From ")) {
		return raw
	}
	_, rest, _ := bytes.Cut(raw, []byte("\n"))
	return rest
}

// Run implements Mailbox.
func (d *InboxQueue) Run(ctx context.Context, take func(context.Context, Incoming) error) error {
	retries := map[string]Retry{}
	return poll(ctx, d.Changes, func() time.Duration { return cmp.Or(d.Every, 2*time.Second) }, reporter(d.Report), func() error { return d.takeDue(ctx, take, retries) })
}

func (d *InboxQueue) takeDue(ctx context.Context, take func(context.Context, Incoming) error, retries map[string]Retry) error {
	names, err := d.Store.List()
	if err != nil {
		return &Error{Stage: "list delivered emails", Temporary: true, Err: err}
	}
	now := nowFunc(d.Now)()
	var trouble error
	for _, name := range names {
		if ctx.Err() != nil {
			return nil
		}
		if retries[name].At.After(now) {
			continue
		}
		if err := d.takeOne(ctx, take, name); err != nil {
			trouble = err
			retries[name] = retries[name].Next(now, time.Second, maxEmailDelay)
			continue
		}
		delete(retries, name)
	}
	return trouble
}

func (d *InboxQueue) takeOne(ctx context.Context, take func(context.Context, Incoming) error, name string) error {
	raw, err := d.Store.Get(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	in := Incoming{Name: "drop " + name, Raw: withCRLF(raw), TooLarge: strings.HasSuffix(name, headerOnly)}
	if err := callTake(ctx, take, in); err != nil {
		return err
	}
	return d.Store.Remove(name)
}

// MailboxState is a State in a store, under a name.
type MailboxState struct {
	Store chat.StateStore
	Name  string
}

var _ State = MailboxState{}

// Load implements State.
func (s MailboxState) Load() ([]byte, error) {
	b, err := s.Store.Get(s.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// Save implements State.
func (s MailboxState) Save(data []byte) error { return s.Store.Put(s.Name, data) }
