// Package terminal is the channel for an approver at the daemon's terminal. It
// prints a card for each new pending request and reads replies line by line.
//
// # Output
//
// Do not run it if stdin is not a terminal. It writes to Out, a line or a card at
// a time, with an empty line before a card. It never moves the cursor and prints no
// prompt, because a card may appear while the approver types. Color marks complete
// lines: the headline of a card bold, warnings yellow, the agent's text dim, an
// outcome green or red. An agent's text is escaped, so it cannot set a color.
//
// # Replies
//
// The grammar is that of package chat. A menu code applies to the card shown last.
// A new card may appear while the approver types. So a code that arrives shortly
// after a second card is not acted on, and the approver is asked to repeat it.
package terminal

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// viewer lists the pending requests of the given workspaces, oldest first.
type viewer interface {
	Waiting(ctx context.Context, workspaces []string) ([]approval.StoredPending, error)
}

// Channel is the terminal. Set its fields, then call Run.
type Channel struct {
	In          io.Reader
	Out         io.Writer
	Interceptor *chat.Interceptor
	Viewer      viewer
	Records     chat.Records        // nil: outcomes are not shown
	Changes     <-chan approval.Key // hints that a request changed; may be nil
	Person      approval.Person
	Workspaces  []string // none: nothing is shown, nothing can be decided
	Style       chat.Style
	// Refresh returns the current workspaces and style. It is called before every
	// update. nil: they do not change.
	Refresh func() ([]string, chat.Style)
	Foot    func() string // end of a card, computed when it is shown; may be nil
	Color   bool
	Log     func(error) // errors that the approver cannot fix; may be nil

	Interval time.Duration    // interval of updates without a hint; 0: 5 s
	Now      func() time.Time // nil: time.Now
}

const (
	defaultInterval = 5 * time.Second
	// newCardDelay is how long a new card must be shown before a code applies to
	// it. Before that, the approver may have meant the previous card.
	newCardDelay = 1500 * time.Millisecond
	// maxPendingOutcomes bounds the list if records never appear.
	maxPendingOutcomes = 1000
)

// view is the state of the screen.
type view struct {
	*Channel
	messages        *messages
	shown           map[approval.Key]approval.StoredPending // cards of pending requests
	pendingOutcomes []approval.Key                          // decided, outcome not shown yet
	decidedHere     map[approval.Key]bool                   // decided here
	lastCard        *approval.StoredPending                 // the card that a code applies to
	shownAt         time.Time                               // when lastCard was shown
	pauseLines      map[string]string                       // last pause line of each workspace
	onlyCard        bool                                    // no other card was shown then
	err             error                                   // of Out
}

// Run shows cards and reads replies until ctx ends or Out fails. When In ends, Run
// continues to show cards. If In has no read deadline, a read cannot be
// interrupted: its goroutine ends with the next line or with In.
func (c *Channel) Run(ctx context.Context) error {
	own := *c
	v := &view{
		Channel: &own, messages: catalog(c.Style.Language),
		shown: map[approval.Key]approval.StoredPending{}, decidedHere: map[approval.Key]bool{}, pauseLines: map[string]string{},
	}
	lines, stop := readLines(ctx, c.In)
	defer stop()
	interval := c.Interval
	if interval <= 0 {
		interval = defaultInterval
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()

	changes := c.Changes
	v.print(plain, v.messages.Welcome)
	v.update(ctx)
	for v.err == nil {
		select {
		case <-ctx.Done():
			return nil
		case _, open := <-changes:
			if !open {
				changes = nil
				continue
			}
			chat.DrainHints(changes)
			v.update(ctx)
		case <-tick.C:
			v.update(ctx)
		case l, open := <-lines:
			if !open {
				lines = nil
				v.print(plain, v.messages.InputClosed)
				continue
			}
			v.line(ctx, l)
			v.update(ctx)
		}
	}
	return v.err
}

// update compares the screen with the pending requests.
func (v *view) update(ctx context.Context) {
	if v.Refresh != nil {
		v.Workspaces, v.Style = v.Refresh()
		v.messages = catalog(v.Style.Language)
	}
	if len(v.Workspaces) == 0 {
		return
	}
	waiting, err := v.Viewer.Waiting(ctx, v.Workspaces)
	if err != nil {
		v.log(ctx, err)
		return
	}
	slices.SortStableFunc(waiting, func(a, b approval.StoredPending) int {
		return a.Pending.Timestamp.Compare(b.Pending.Timestamp)
	})
	v.pauses()
	now := make(map[approval.Key]bool, len(waiting))
	for _, w := range waiting {
		now[w.Key()] = true
	}
	v.settled(ctx, now)
	for _, w := range waiting {
		if _, old := v.shown[w.Key()]; !old {
			v.card(w)
		}
	}
}

// pauses reports workspaces that were paused or resumed since the last update.
func (v *view) pauses() {
	for _, ws := range v.Workspaces {
		line := v.Style.PauseLine(ws, v.now())
		switch line {
		case v.pauseLines[ws]:
			continue
		case "":
			v.print(good, chat.Format(v.messages.Resumed, "workspace", chat.Escape(ws)))
		default:
			v.print(warn, chat.Escape(ws)+" "+line)
		}
		v.pauseLines[ws] = line
	}
}

// settled reports the outcomes of requests that are no longer pending.
func (v *view) settled(ctx context.Context, waiting map[approval.Key]bool) {
	var gone []approval.Key
	shortIDs := map[approval.Key]string{}
	for k, w := range v.shown {
		if !waiting[k] {
			gone = append(gone, k)
			shortIDs[k] = w.Pending.ShortID
			delete(v.shown, k)
		}
	}
	slices.SortFunc(gone, func(a, b approval.Key) int { return strings.Compare(a.String(), b.String()) })
	var pendingOutcomes []approval.Key
	for i, k := range slices.Concat(v.pendingOutcomes, gone) {
		if !v.outcome(ctx, k) {
			pendingOutcomes = append(pendingOutcomes, k)
			if fresh := i >= len(v.pendingOutcomes); fresh && !v.decidedHere[k] {
				v.print(dim, chat.Format(v.messages.OutcomeFollows, "id", shortIDs[k]))
			}
			continue
		}
		delete(v.decidedHere, k)
	}
	if len(pendingOutcomes) > maxPendingOutcomes {
		pendingOutcomes = pendingOutcomes[len(pendingOutcomes)-maxPendingOutcomes:]
	}
	v.pendingOutcomes = pendingOutcomes
	if len(gone) > 0 && v.lastCard != nil && !waiting[v.lastCard.Key()] && len(v.shown) > 0 {
		v.print(plain, chat.Format(v.messages.StillWaiting, "n", strconv.Itoa(len(v.shown))))
		v.lastCard = nil // that card is far above: a code must not apply to it
	}
}

// outcome shows how k was settled. It returns false if the record is missing.
func (v *view) outcome(ctx context.Context, k approval.Key) bool {
	if v.Records == nil {
		return true
	}
	rec, err := v.Records.Record(ctx, k)
	if err != nil || rec == nil {
		return false
	}
	attr := bad
	switch rec.Status {
	case approval.StatusApproved, approval.StatusAutoApproved, approval.StatusAnswered:
		attr = good
	}
	v.print(attr, v.Style.Outcome(rec))
	return true
}

func (v *view) card(w approval.StoredPending) {
	v.onlyCard = len(v.shown) == 0
	v.shown[w.Key()], v.lastCard, v.shownAt = w, &w, v.now()
	style := v.Style
	if v.Foot != nil {
		style.Foot = v.Foot()
	}
	c := style.Card(w.Pending)
	v.print(plain, "")
	v.print(bold, c.Head)
	for _, f := range c.Facts {
		attr := plain
		if strings.HasPrefix(f, "⚠") {
			attr = warn
		}
		v.print(attr, f)
	}
	for _, k := range c.Evidence {
		v.print(plain, k.Text)
	}
	v.print(plain, "")
	v.print(plain, c.Payload...)
	v.print(plain, c.Changes...)
	v.print(dim, c.Prose...)
	v.print(plain, c.Menu...)
	v.print(bold, c.Foot)
}

// line acts on one line of input.
func (v *view) line(ctx context.Context, l input) {
	text := strings.Trim(l.text, " \t\r\n")
	switch {
	case l.tooLong:
		v.print(warn, v.messages.LineTooLong)
		return
	case text == "":
		return
	case strings.EqualFold(text, "help"):
		v.print(plain, v.messages.Help)
		return
	}
	m := chat.Message{
		From: v.Person, Via: "terminal", Text: text, Workspaces: v.Workspaces,
		Card: v.lastCard, Implicit: true, Language: v.Style.Language,
	}
	if v.lastCard != nil && !v.onlyCard && v.now().Sub(v.shownAt) < newCardDelay && m.Command().NeedsCard() {
		v.print(warn, chat.Format(v.messages.NewCard, "id", v.lastCard.Pending.ShortID))
		return
	}
	reply := v.Interceptor.Handle(ctx, m)
	v.log(ctx, reply.Err)
	switch {
	case reply.Ignore:
		v.print(warn, v.messages.NameRequest)
	case reply.Acted:
		v.print(good, reply.Text)
		v.decidedHere[reply.Key] = true
	default:
		v.print(plain, reply.Text)
	}
}

func (v *view) now() time.Time {
	if v.Now != nil {
		return v.Now()
	}
	return time.Now()
}

func (v *view) log(ctx context.Context, err error) {
	if err != nil && v.Log != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
		v.Log(err)
	}
}

// attribute is an SGR parameter for a line.
type attribute int

const (
	plain attribute = 0
	bold  attribute = 1
	dim   attribute = 2
	bad   attribute = 31
	good  attribute = 32
	warn  attribute = 33
)

func (v *view) print(h attribute, lines ...string) {
	for _, l := range lines {
		if v.Color && h != plain && l != "" {
			l = "\x1b[" + strconv.Itoa(int(h)) + "m" + l + "\x1b[0m"
		}
		if v.err == nil {
			_, v.err = io.WriteString(v.Out, l+"\n")
		}
	}
}
