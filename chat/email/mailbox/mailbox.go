package mailbox

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
)

// MaxMail is the maximum size of an email that is read, in bytes: 512 KiB.
const MaxMail = 512 << 10

// maxHeader is how much of the header is read of a larger email.
const maxHeader = 64 << 10

// Mailbox is a source of incoming emails.
//
// Run passes every new email to take, one at a time, until ctx ends or the settings
// turn out to be unusable. It reports every other error and tries again. An email is
// taken when take returns nil. By then take must have saved its decision durably. An
// email that was taken is not passed on again, with two exceptions:
//
//   - If take fails, the email is passed on again later, with growing delays. It does
//     not block the others.
//   - If the process crashes or the disk is full before the state is saved, the next
//     Run passes the same email on again. take must recognize it by Incoming.Name,
//     which is then the same, and by the used token in it.
type Mailbox interface {
	Run(ctx context.Context, take func(ctx context.Context, m Incoming) error) error
}

// State keeps what a Mailbox must remember across restarts, some KiB. Save is durable
// when it returns, and atomic: Load returns what one of the last two Saves wrote, or
// nil before the first.
type State interface {
	Load() ([]byte, error)
	Save(data []byte) error
}

// position is what a source remembers.
type position[T any] struct {
	store   State
	what    string // for errors: "mailbox", "maildir"
	state   T
	dirty   bool  // state has changes that are not saved
	unsaved error // why the last save failed
	size    int   // of the last save, in bytes
	savedAt time.Time
}

// A large state is saved at most once in that time while emails are taken.
const (
	largeState   = 64 << 10
	saveInterval = time.Second
)

// load reads the state, and says whether there is one. An unreadable state is an error, not a
// first start: a first start would skip emails.
func (p *position[T]) load() (bool, error) {
	if p.store == nil {
		return false, fmt.Errorf("%s: no store for the state is configured", p.what)
	}
	data, err := p.store.Load()
	if err != nil {
		return false, fmt.Errorf("load the %s's state: %w", p.what, err)
	}
	if len(data) == 0 {
		return false, nil
	}
	var of struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &of); err != nil {
		return false, fmt.Errorf("read the %s's state: %w", p.what, err)
	}
	if of.Version != 1 {
		return false, fmt.Errorf("read the %s's state: version %d is unknown", p.what, of.Version)
	}
	if err := json.Unmarshal(data, &p.state, json.RejectUnknownMembers(true)); err != nil {
		return false, fmt.Errorf("read the %s's state: %w", p.what, err)
	}
	return true, nil
}

// save writes the state if it changed. A failed save does not stop the source: replies
// that are here must count. The next change or scan saves again.
func (p *position[T]) save() {
	if p.size < largeState || time.Since(p.savedAt) >= saveInterval {
		p.flush()
	}
}

// flush is save without a limit.
func (p *position[T]) flush() {
	if !p.dirty {
		return
	}
	data, err := json.Marshal(&p.state)
	if err == nil {
		err = p.store.Save(data)
	}
	p.dirty, p.unsaved, p.size, p.savedAt = err != nil, nil, len(data), time.Now()
	if err != nil {
		p.unsaved = fmt.Errorf("save the %s's state: %w", p.what, err)
	}
}

// While more emails than manyNew wait, those that are likely answers come first, and new ones
// are looked for after every lookInterval of them.
const (
	manyNew      = 50
	lookInterval = 50
)

// Incoming is an email that arrived.
type Incoming struct {
	Name     string // of this delivery: "imap UIDVALIDITY/UID of MAILBOX", "maildir FILENAME"
	Raw      []byte // as received, with CRLF at the end of each line
	TooLarge bool   // larger than MaxMail: Raw is the header only, at most 64 KiB
}

// callTake calls take. It turns a panic into an error: otherwise one email would end the
// daemon after each start.
func callTake(ctx context.Context, take func(context.Context, Incoming) error, m Incoming) (err error) {
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

// failedEmails collects the failures of single emails in one scan.
type failedEmails struct {
	n   int
	err error // the last one; nil if all wait for their next attempt
}

func (w *failedEmails) add(err error) {
	w.n++
	if err != nil {
		w.err = err
	}
}

// summary is nil if no email waits.
func (w *failedEmails) summary() error {
	switch {
	case w.n == 0:
		return nil
	case w.err == nil:
		return fmt.Errorf("emails that failed and will be retried: %d", w.n)
	}
	return fmt.Errorf("emails that failed and will be retried: %d; %w", w.n, w.err)
}

// Retry is the time of the next attempt after n failures.
type Retry struct {
	N  int
	At time.Time
}

// Next is the retry after one more failure at now. The delay doubles from first to
// most. It varies by a fifth, so that attempts spread.
func (r Retry) Next(now time.Time, first, most time.Duration) Retry {
	pause := most
	if r.N < 16 {
		pause = min(first<<r.N, most)
	}
	pause += time.Duration((rand.Float64() - 0.5) * 0.4 * float64(pause)) //nolint:gosec // no secret
	return Retry{N: r.N + 1, At: now.Add(pause)}
}

// nowFunc is now, or the system's clock without one.
func nowFunc(now func() time.Time) func() time.Time {
	if now == nil {
		return time.Now
	}
	return now
}

// reporter is report, or a function that does nothing without one.
func reporter(report func(error)) func(error) {
	if report == nil {
		return func(error) {}
	}
	return report
}

// headerOf is the header of an email with CRLF line ends, without the empty line: as
// many complete lines as fit into maxHeader bytes.
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
	header, _, _ = bytes.Cut(bytes.ReplaceAll(append([]byte("\n"), header...), []byte("\r\n"), []byte("\n")), []byte("\n\n"))
	found := messageIDField().FindSubmatch(header)
	if found == nil {
		return ""
	}
	return strings.Join(strings.Fields(string(found[1])), " ")
}

var messageIDField = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\nmessage-id[ \t]*:(.*(?:\n[ \t].*)*)`)
})
