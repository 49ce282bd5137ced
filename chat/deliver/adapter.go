package deliver

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// Adapter carries messages to a service and events back. Its methods may be called concurrently, and only after
// Open. One that is opened again starts afresh.
type Adapter interface {
	// Open prepares a run. It passes the events to the inbox that an earlier run received and did not finish. It
	// does not wait for the network. ctx is the run's.
	Open(ctx context.Context, in *Inbox) (Traits, error)
	// Listen passes events to the inbox until ctx ends. It returns nil then, and an error if no event can be
	// received before the operator has fixed something; transient failures it retries itself.
	Listen(ctx context.Context) error
	// Send sends a message and returns its ID, unique in its chat. It waits until the service's rate limits
	// allow the message. Errors are of type *Error; any other one means that the message may have been sent.
	Send(ctx context.Context, to Address, m Message) (ID, error)
	// Edit replaces a message. It is not called unless Traits.Edits is set. It is no error if the message
	// already looks so.
	Edit(ctx context.Context, to Address, id ID, m Message) error
}

// Traits say what a service can do.
type Traits struct {
	Service string // its name, for reports
	MaxText int    // the length of a message in UTF-16 code units; 0: no limit
	Buttons bool   // messages can have buttons
	Edits   bool   // messages can be edited
	// Delay is how long the service's limits delay a message to a chat. An edit leaves room for new messages. nil: no
	// limits.
	Delay func(chat ID, edit bool) time.Duration
	// Disarm removes the buttons of a message and returns its text, "" if it is not the bot's. It is set if the IDs of a chat's messages are ascending numbers: see search. nil: such a message stays as it is.
	Disarm func(ctx context.Context, to Address, id ID) (text string, err error)
	Named  bool // texts may begin with "@" and the bot's name, which the adapter passes to Inbox.SetName
	// Letters composes the messages if they are letters; nil: they are not. See the package's section about them.
	Letters  Composer
	Outcomes bool // letters only: an approver who was asked and did not decide here gets each outcome
	OneWay   bool // letters only: no person can reply, so no record is kept for late replies
}

// Composer composes letters.
type Composer interface {
	// NewID returns the ID of a new letter about a request. The letter is sent under this ID: more than once if it
	// is unknown whether it arrived.
	NewID(requestID string) ID
	// NewSecret returns what a reply to a letter must carry, and its digest. Only the digest is stored.
	NewSecret() (secret, digest string)
	// Title returns a request in one line. It names the letters about it.
	Title(p *approval.Pending, style chat.Style) string
	// Card returns the card of a request.
	Card(p *approval.Pending, style chat.Style, secret string) (Message, error)
	// Outcome returns the lines about a settled request.
	Outcome(rec *approval.Record, style chat.Style) []string
}

// Address is where a message goes.
type Address struct {
	Chat   ID
	Thread ID // in a chat with threads; "": none
}

// Message is a message to be sent: a card or some lines. Both may hold text from agents, which must not format
// itself, be tappable, or look like another part of the message.
type Message struct {
	Card     *chat.Card // nil: Lines
	Lines    []string
	Buttons  [][]Button // rows
	File     *File      // an attachment; Lines are its caption
	ReplyTo  ID         // the message that it replies to; "": none
	Silent   bool       // no notification sound
	Prompt   string     // it opens a reply, with this in the empty field; "": it does not
	More     string     // of a card: how to say more than the buttons do, for a line above the codes
	Complete bool       // it shows everything that would run

	// For letters only.
	Key        approval.Key // of the request
	ID         ID           // the letter's; "": the adapter derives it from ReplyTo
	Title      string
	Secret     string    // what a reply must carry; "": it takes no reply
	Page       string    // Lines as HTML; "": there is no such part
	References []string  // the IDs of the thread, for an answer
	Until      time.Time // the request's deadline; zero: it is settled
}

// Button is a button: its text, and the data of a tap on it, at most 64 bytes of ASCII.
type Button struct{ Text, Data string }

// File is a text file.
type File struct{ Name, Text string }

// Text returns the message's text without its formats.
func (m Message) Text() string {
	if m.Card != nil {
		return m.Card.String()
	}
	return strings.Join(m.Lines, "\n")
}

// Class says how to react to a failure.
type Class int

const (
	// Unknown means that the message may have been sent.
	Unknown Class = iota
	// Temporary means that nothing was sent, and that a retry helps.
	Temporary
	// Unreachable means that this chat cannot be reached until a user or the operator fixes it.
	Unreachable
	// BadCredentials means that no call can succeed until the operator fixes it.
	BadCredentials
	// Rejected means that the service will never accept this message.
	Rejected
	// Gone means that the message to edit was deleted or cannot be edited any more.
	Gone
)

// Error is a failure of Send or Edit.
type Error struct {
	Class      Class
	RetryAfter time.Duration // the service asks for this delay; 0: none. If Unreachable: when to try again
	Hint       string        // what the operator can do
	// Service says that the service failed, and not this message: no other one is tried until the next attempt.
	Service bool
	Err     error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ClassOf returns the class of an error of Send or Edit, Unknown for an error of another type.
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return Unknown
}

// never reports whether a retry cannot help.
func never(err error) bool {
	return err != nil && (ClassOf(err) == Rejected || ClassOf(err) == Gone)
}

// serviceFailed reports whether the service failed, and not the message.
func serviceFailed(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Service
}

func gone(err error) bool { return err != nil && ClassOf(err) == Gone }

func hintFor(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Hint
	}
	return ""
}

// Event is something that a user did: exactly one of Tap, Said and Reach is set.
type Event struct {
	ID    string // names it in the log, and in the state if it is Replayed; letters, digits, "-"
	Tap   *Tap
	Said  *Said
	Reach *Reach
	// Replayed marks an event of an earlier run. Its attempts are counted on disk, because it may be what ended
	// that process.
	Replayed bool
	// Done is called once: with true when the event's effect is durable, or with false if the next run has to
	// handle it. nil: the service does not deliver events again.
	Done func(handled bool)
}

// Tap is a tap on a button.
type Tap struct {
	By      ID      // the user: an immutable ID that the service vouches for
	At      Address // where the message is; without a chat, the tap is refused
	Message ID
	Data    string // the button's
	// Answer shows the user a text: in passing or, if alert is set, until it is closed. An empty text only ends
	// the wait.
	Answer func(ctx context.Context, text string, alert bool) error
}

// Said is a text that a user sent.
type Said struct {
	By      ID   // the sender: an immutable ID that the service vouches for; "": the text decides nothing and gets no answer
	Direct  bool // a person wrote it, here and now: it was not forwarded, edited, or sent on behalf of another
	At      Address
	Message ID
	Text    string
	Other   bool // it has no text, but something else that a user can send: a picture, a voice message
	Group   bool // several people read this chat: a text must address the bot
	ReplyTo ID   // the message that it replies to; "": none
	// Buttons are the data of that message's buttons, if the service repeats them and the message is the bot's.
	Buttons []string
}

// Reach says that the bot was removed from a chat, that it was added again or written to, or that the chat has a new
// ID.
type Reach struct {
	Chat  ID
	Moved ID     // the new ID; "": it has none
	Err   *Error // nil: the chat is reachable
}

// Inbox is what an adapter gets for one run.
type Inbox struct{ s *session }

// Channel returns the channel that runs.
func (in *Inbox) Channel() *Channel { return in.s.Channel }

// Receive handles an event, in the background: in order with others about the same request.
func (in *Inbox) Receive(e Event) { in.s.dispatcher.receive(e) }

// SetName sets the bot's name, which texts may begin with. The service is reachable now.
func (in *Inbox) SetName(name string) {
	in.s.setName(name)
	in.s.warnings.publishAgain()
}

// Moved takes over the new ID of a chat.
func (in *Inbox) Moved(from, to ID) { in.s.chatMoved(from, to) }

// Warn reports a problem to the operator until Clear is called with its name.
func (in *Inbox) Warn(name, what, hint string) { in.s.warnings.set(name, what, hint) }

// Clear ends a report.
func (in *Inbox) Clear(name string) { in.s.warnings.clear(name) }

// Note tells the operator of something that is no fault of the channel; "" ends that.
func (in *Inbox) Note(name, what, hint string) {
	if what == "" {
		in.s.notes.clear(name)
		return
	}
	in.s.notes.set(name, what, hint)
}

// Failing logs a transient failure, and reports it once it has lasted. Clear ends it.
func (in *Inbox) Failing(name string, err error) { in.s.reportFailure(name, err) }

// RetryDelay is the delay before a call is tried again that has failed tries+1 times.
func (in *Inbox) RetryDelay(tries int, err error) time.Duration {
	return in.s.outbox.retryDelay(tries, err)
}

// RetryUnit is the first retry delay.
func (in *Inbox) RetryUnit() time.Duration { return in.s.outbox.retryUnit }

// Log logs an error.
func (in *Inbox) Log(err error) { in.s.log(err) }
