package email

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// MaxMail is how large a mail may be, in bytes, to be read: 512 KiB.
const MaxMail = 512 << 10

// maxHeader is how much of the header is read of a larger one.
const maxHeader = 64 << 10

// Box is a way in for mails.
//
// Run hands every mail that comes to take, one after the other, until ctx ends;
// that, or settings that cannot work, is what it returns. It gets over everything
// else, tells Report, and tries again. A mail counts as taken when take returned
// nil, for which take must have made durable what it decided; it is then never
// handed out again, but for this:
//
//   - A mail that take failed on comes again later, with growing pauses, and does
//     not keep the others waiting.
//   - A crash, or a full disk, between take's return and the note of it makes the
//     next Run hand out the same mail once more. Take must recognise it, by
//     Incoming.Name, which is then the same, and by the token in it, which is used.
type Mailbox interface {
	Run(ctx context.Context, take func(ctx context.Context, m Incoming) error) error
}

// State keeps what a Box must remember over restarts, some KiB. Save is durable
// when it returns, and atomic: Load gives what one of the last two Saves wrote,
// or nil before the first.
type State interface {
	Load() ([]byte, error)
	Save(data []byte) error
}

// Incoming is a mail that arrived.
type Incoming struct {
	Name     string // of this delivery: "imap UIDVALIDITY/UID of MAILBOX", "maildir FILENAME"
	Raw      []byte // as it came, with CRLF at the end of each line
	Size     int64  // bytes, all of it
	TooLarge bool   // larger than MaxMail: Raw is the header, and of that no more than 64 KiB
}

// MailboxError says why mails cannot be fetched for the time being.
type MailboxError struct {
	Stage     string // "connect", "log in" …: what could not be done
	Temporary bool   // trying again may help; otherwise a person must mend something
	Hint      string // what to do about it; may be empty
	Err       error  // never holds a password
}

func (e *MailboxError) Error() string { return e.Stage + ": " + e.Err.Error() }

func (e *MailboxError) Unwrap() error { return e.Err }

// hand gives a mail to take. A mail that makes it panic is one that it failed on:
// otherwise the same mail would end the daemon after each start.
func hand(ctx context.Context, take func(context.Context, Incoming) error, m Incoming) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
		if err != nil {
			err = fmt.Errorf("take %s: %w", m.Name, err)
		}
	}()
	return take(ctx, m)
}

// waiting sums up what went wrong with single mails in one look.
type waiting struct {
	n   int
	err error // the last one's; nil where all wait for their next try
}

func (w *waiting) add(err error) {
	w.n++
	if err != nil {
		w.err = err
	}
}

// trouble is nil when no mail waits.
func (w *waiting) trouble() error {
	switch {
	case w.n == 0:
		return nil
	case w.err == nil:
		return fmt.Errorf("mails that could not be taken, and are tried again later: %d", w.n)
	}
	return fmt.Errorf("mails that could not be taken, and are tried again later: %d; %w", w.n, w.err)
}

// retry is when to come back to something that failed n times.
type retry struct {
	n  int
	at time.Time
}

// again is the retry after one more failure at now: the pauses double from first
// to most and vary by a fifth, so that what failed together does not come back
// together.
func (r retry) again(now time.Time, first, most time.Duration) retry {
	pause := most
	if r.n < 16 {
		pause = min(first<<r.n, most)
	}
	pause += time.Duration((rand.Float64() - 0.5) * 0.4 * float64(pause)) //nolint:gosec // no secret
	return retry{n: r.n + 1, at: now.Add(pause)}
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// headerOf is the header of a mail with CRLF line ends, without the empty line: as
// many whole lines as fit into maxHeader bytes.
func headerOf(raw []byte) []byte {
	if end := bytes.Index(raw, []byte("\r\n\r\n")); end >= 0 {
		raw = raw[:end+2]
	}
	if len(raw) <= maxHeader {
		return raw
	}
	raw = raw[:maxHeader]
	return raw[:max(0, bytes.LastIndex(raw, []byte("\n"))+1)]
}

// messageID is the value of the first Message-ID in a header, or "".
func messageID(header []byte) string {
	var value []string
	for line := range bytes.Lines(header) {
		switch {
		case len(value) > 0 && (line[0] == ' ' || line[0] == '\t'):
			value = append(value, string(line))
		case len(value) > 0 || len(bytes.TrimRight(line, "\r\n")) == 0:
			return strings.Join(strings.Fields(strings.Join(value, "")), " ")
		default:
			if name, rest, ok := bytes.Cut(line, []byte(":")); ok && strings.EqualFold(string(bytes.TrimSpace(name)), "message-id") {
				value = append(value, string(rest))
			}
		}
	}
	return strings.Join(strings.Fields(strings.Join(value, "")), " ")
}
