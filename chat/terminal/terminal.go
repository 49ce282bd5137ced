// Package terminal is the channel for whoever sits in front of the gate: it
// prints cards as requests begin to wait, and reads answers line by line.
//
// # Talking to the terminal
//
// It is for a terminal only; where stdin is none, leave it out. Everything it
// says goes to Out, a line or a card at a time, and a card has an empty line
// before it. It never moves the cursor and prints no prompt: cards may come
// while somebody types. Colour, where it is wanted, marks whole lines: the
// headline of a card bold, warnings yellow, the agent's words dim, an outcome
// green or red. Nothing depends on it, and no agent's text can bring any: it
// is escaped before.
//
// # Answers
//
// The grammar is chat's. A menu code answers the card shown last. Because a
// new card may slide in while somebody types, a code that comes within a
// moment of a card that was not alone is not acted on; it asks to be repeated.
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

// Records gives the story of a settled request, or nil where there is none
// yet.
type Records interface {
	Record(ctx context.Context, k approval.Key) (*approval.Record, error)
}

// Channel is the terminal. Fill the fields in, then Run it.
type Channel struct {
	In          io.Reader
	Out         io.Writer
	Interceptor *chat.Interceptor
	Viewer      chat.Viewer
	Records     Records             // nil: outcomes are not told
	Changes     <-chan approval.Key // hints that something changed; may be nil
	Person      approval.Person
	Workspaces  []string // none: nothing is shown, nothing can be decided
	Style       chat.Style
	// Refresh gives the workspaces and the style as they are now, before every
	// look; nil: they stay as they are.
	Refresh func() ([]string, chat.Style)
	Foot    func() string // what a card ends with at the moment it is shown; may be nil
	Color   bool
	Log     func(error) // errors that the person cannot mend; may be nil

	Every time.Duration    // how often to look without a hint; 0: 5 s
	Now   func() time.Time // nil: time.Now
}

const (
	defaultInterval = 5 * time.Second
	// newCardDelay is how long a new card must have been in sight before a code
	// without a name is taken to mean it and not the one before.
	newCardDelay = 1500 * time.Millisecond
	// maxPendingOutcomes bounds the outcomes waited for, should records never come.
	maxPendingOutcomes = 1000
)

// view is what stands on the screen.
type view struct {
	*Channel
	words           *messages
	shown           map[approval.Key]approval.Waiting // cards whose request waits
	pendingOutcomes []approval.Key                    // decided, outcome not told yet
	decidedHere     map[approval.Key]bool             // decided here
	lastCard        *approval.Waiting                 // the card a code means
	shownAt         time.Time                         // when it was shown
	pauseLines      map[string]string                 // what was said of a workspace's pause
	onlyCard        bool                              // no other card waited then
	err             error                             // of Out
}

// Run shows cards and reads answers until ctx ends or Out fails. When In ends
// it goes on showing cards. A read under way on an In that takes no deadline
// cannot be interrupted: its goroutine ends with the next line or with In.
func (c *Channel) Run(ctx context.Context) error {
	own := *c
	v := &view{
		Channel: &own, words: catalog(c.Style.Language),
		shown: map[approval.Key]approval.Waiting{}, decidedHere: map[approval.Key]bool{}, pauseLines: map[string]string{},
	}
	lines, stop := readLines(ctx, c.In)
	defer stop()
	interval := c.Every
	if interval <= 0 {
		interval = defaultInterval
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()

	changes := c.Changes
	v.print(plain, v.words.welcome)
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
			drainHints(changes)
			v.update(ctx)
		case <-tick.C:
			v.update(ctx)
		case l, open := <-lines:
			if !open {
				lines = nil
				v.print(plain, v.words.inputClosed)
				continue
			}
			v.line(ctx, l)
			v.update(ctx)
		}
	}
	return v.err
}

// drain takes the hints that have piled up: one look serves them all.
func drainHints(changes <-chan approval.Key) {
	for {
		select {
		case _, open := <-changes:
			if !open {
				return
			}
		default:
			return
		}
	}
}

// look compares the screen with what waits.
func (v *view) update(ctx context.Context) {
	if v.Refresh != nil {
		v.Workspaces, v.Style = v.Refresh()
		v.words = catalog(v.Style.Language)
	}
	if len(v.Workspaces) == 0 {
		return
	}
	waiting, err := v.Viewer.Waiting(ctx, v.Workspaces)
	if err != nil {
		v.log(ctx, err)
		return
	}
	slices.SortStableFunc(waiting, func(a, b approval.Waiting) int {
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

// pauses tells of a workspace that was paused or resumed since the last look.
func (v *view) pauses() {
	for _, ws := range v.Workspaces {
		line := v.Style.PauseLine(ws, v.now())
		switch line {
		case v.pauseLines[ws]:
			continue
		case "":
			v.print(good, format(v.words.resumed, chat.Escape(ws)))
		default:
			v.print(warn, chat.Escape(ws)+" "+line)
		}
		v.pauseLines[ws] = line
	}
}

// settled tells what became of the cards that wait no longer.
func (v *view) settled(ctx context.Context, waiting map[approval.Key]bool) {
	var gone []approval.Key
	for k := range v.shown {
		if !waiting[k] {
			gone = append(gone, k)
			delete(v.shown, k)
		}
	}
	slices.SortFunc(gone, func(a, b approval.Key) int { return strings.Compare(a.String(), b.String()) })
	var pendingOutcomes []approval.Key
	for i, k := range slices.Concat(v.pendingOutcomes, gone) {
		if !v.outcome(ctx, k) {
			pendingOutcomes = append(pendingOutcomes, k)
			if fresh := i >= len(v.pendingOutcomes); fresh && !v.decidedHere[k] {
				v.print(dim, format(v.words.outcomeFollows, approval.ShortID(k.ID)))
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
		v.print(plain, format(v.words.stillWaiting, strconv.Itoa(len(v.shown))))
		v.lastCard = nil // a code now would mean a card that is far above
	}
}

// outcome tells how k ended and says whether there is nothing more to tell.
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

func (v *view) card(w approval.Waiting) {
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
		v.print(warn, v.words.lineTooLong)
		return
	case text == "":
		return
	case strings.EqualFold(text, "help"):
		v.print(plain, v.words.help)
		return
	}
	m := chat.Message{
		From: v.Person, Via: "terminal", Text: text, Workspaces: v.Workspaces,
		Card: v.lastCard, Implicit: true, Language: v.Style.Language,
	}
	if v.lastCard != nil && !v.onlyCard && v.now().Sub(v.shownAt) < newCardDelay && m.Command().NeedsCard() {
		v.print(warn, format(v.words.newCard, v.lastCard.Pending.ShortID))
		return
	}
	reply := v.Interceptor.Handle(ctx, m)
	v.log(ctx, reply.Err)
	switch {
	case reply.Ignore:
		v.print(warn, v.words.nameRequest)
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

// how a line looks: an SGR parameter.
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
