// Package terminal is the channel for an approver at the daemon's terminal. It
// prints a card for each new pending request and reads replies line by line.
//
// # Output
//
// Do not run it if stdin is not a terminal. It writes to Out, a line or a card at
// a time, with an empty line before a card. Output appears above the line that is
// being typed. Color marks complete lines: the headline of a card bold, warnings
// yellow, the agent's text dim, an outcome green or red. An agent's text is escaped,
// so it cannot set a color.
//
// # Replies
//
// The grammar is that of package chat. A code applies to the current card only: the
// card drawn last. The prompt names it. When that request is settled or changes, there
// is no current card until the next card has been drawn completely. A key counts only
// if the current card had been on the screen, unchanged, for 400 ms when the key was
// read. Earlier keys are dropped, and a new card empties the line. An id that is typed
// must be that of a card that was drawn here, and each decision carries the digest of
// the card.
//
// # Linear mode
//
// For screen readers, and for terminals that cannot place the cursor: lines are added and nothing else, and a line is
// read in the terminal's own mode. A new request is one line; its card is shown when no other needs a decision, or when
// its id is typed. A decision names its request: approve <id>, deny <id>, or an id and a code. When a card is shown, and
// again 400 ms later, all that was typed is dropped, and so is the rest of a line that was begun. An approval that cannot
// be undone is asked for once more.
package terminal

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// viewer lists the pending requests of the given workspaces, oldest first.
type viewer interface {
	Waiting(ctx context.Context, workspaces []string) ([]approval.StoredPending, error)
}

// finder is what the interceptor asks about requests.
type finder interface {
	viewer
	Find(ctx context.Context, workspaces []string, prefix string) ([]approval.Key, error)
}

// Channel is the terminal. Set its fields, then call Run.
type Channel struct {
	In          io.Reader // nil: nothing is read
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
	Wrap    func(string) string // breaks sentences where the terminal ends; nil: none
	// Reveal returns a request to show what its card masks, or a *decide.Refusal. The audit
	// log has it before Reveal returns. nil: nothing is revealed.
	Reveal func(ctx context.Context, k approval.Key) (*approval.StoredPending, error)
	// ProposeRule returns a rule that would allow a request, or a *decide.Refusal. nil: none is
	// proposed.
	ProposeRule func(ctx context.Context, k approval.Key) (chat.Proposal, error)

	Linear bool         // see the package
	Only   approval.Key // shows only this request, and ends once it needs no decision. The zero Key: all
	Served func() bool  // a daemon runs what is approved. nil: this process does

	Log   func(error) // errors that the approver cannot fix; may be nil
	Ended func()      // called once, when In has ended; may be nil

	Interval time.Duration    // interval of updates without a hint; 0: 5 s
	Now      func() time.Time // nil: time.Now

	editor atomic.Pointer[term.Terminal] // while lines are typed at a terminal
}

// Write writes complete lines above the line that is being typed. It is for others
// that write to the same terminal.
func (c *Channel) Write(b []byte) (int, error) {
	if e := c.editor.Load(); e != nil {
		return e.Write(b)
	}
	return c.Out.Write(b)
}

const (
	defaultInterval = 5 * time.Second
	// maxPendingOutcomes bounds the list if records never appear.
	maxPendingOutcomes = 1000
)

// view is the state of the screen.
type view struct {
	*Channel
	workspaces      []string
	style           chat.Style
	messages        *messages
	tty             *tty // nil: In is no terminal
	keys            *keys
	settled         *time.Timer                             // fires when keys begin to count
	shown           map[approval.Key]approval.StoredPending // cards of pending requests, as they were drawn
	pendingOutcomes []approval.Key                          // decided, outcome not shown yet
	decidedHere     map[approval.Key]bool                   // decided here
	current         *approval.StoredPending                 // the card that a code applies to
	pauseLines      map[string]string                       // last pause line of each workspace
	text            strings.Builder                         // not written yet
	revealed        bool                                    // the alternate screen is shown
	listed          map[approval.Key]approval.StoredPending // shown as a line, in linear mode
	asked           *question                               // the last line has to be confirmed
	began           bool                                    // the pending requests were read
	down            bool                                    // no daemon runs
	replying        bool                                    // what is printed replies to a line
	ended           bool                                    // Only needs no decision
	err             error                                   // of Out
}

func (c *Channel) newView() *view {
	v := &view{
		Channel: c, workspaces: c.Workspaces, style: c.Style, messages: catalog(c.Style.Language),
		shown: map[approval.Key]approval.StoredPending{}, decidedHere: map[approval.Key]bool{},
		pauseLines: map[string]string{}, listed: map[approval.Key]approval.StoredPending{},
	}
	v.keys = newKeys(v.now)
	v.settled = time.NewTimer(settleTime)
	v.settled.Stop()
	return v
}

// Run shows cards and reads replies until ctx ends or Out fails. When In ends, Run
// continues to show cards. If In has no read deadline, a read cannot be
// interrupted: its goroutine ends with the next line or with In. A terminal has its
// old mode again when Run returns or panics.
func (c *Channel) Run(ctx context.Context) error {
	v := c.newView()
	signals := make(chan os.Signal, 8)
	lines, stop, err := v.open(signals)
	if err != nil {
		return err
	}
	defer stop()
	defer v.leave()
	interval := c.Interval
	if interval <= 0 {
		interval = defaultInterval
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()

	changes := c.Changes
	v.welcome()
	v.update(ctx)
	for v.flush(); v.err == nil && !v.ended; v.flush() {
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
		case <-v.settled.C:
			v.ready()
		case s := <-signals:
			v.signal(s)
		case l, open := <-lines:
			if !open {
				lines = nil
				v.closeEditor()
				v.print(plain, v.messages.InputClosed)
				v.inputEnded()
				continue
			}
			v.replying = true
			v.line(ctx, l)
			v.flush()
			v.replying = false
			v.update(ctx)
		}
	}
	return v.err
}

func (v *view) welcome() {
	switch {
	case v.In == nil:
		v.print(plain, v.messages.NoInput)
	case v.Only.ID == "":
		v.print(plain, v.messages.Welcome)
	}
}

// open starts to read lines. stop ends that and restores the terminal.
func (v *view) open(signals chan<- os.Signal) (lines <-chan input, stop func(), err error) {
	if v.In == nil {
		return nil, func() {}, nil
	}
	if v.tty, err = openTTY(v.In); err != nil {
		return nil, nil, err
	}
	var source func()
	screen := io.Discard
	if v.tty == nil {
		source = v.keys.readFrom(v.In)
	} else {
		v.tty.cooked = v.Linear
		if err := v.tty.enter(); err != nil {
			return nil, nil, errors.Join(err, v.tty.close())
		}
		source = v.tty.readInto(v.keys)
		if !v.Linear {
			screen = v.Out
		}
		signal.Notify(signals, syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH)
	}
	editor := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{v.keys, screen}, noCard)
	if v.tty != nil && !v.Linear {
		_ = editor.SetSize(v.tty.size())
		v.editor.Store(editor)
	}
	read, done, end := make(chan input), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(end)
		if v.tty != nil {
			defer v.tty.leave() // also if the editor panics
		}
		v.keys.lines(editor, read, done)
	}()
	return read, func() {
		signal.Stop(signals)
		close(done)
		source()
		<-end
		v.closeEditor()
	}, nil
}

// inputEnded tells the owner of the channel.
func (v *view) inputEnded() {
	v.flush()
	if v.Ended != nil {
		v.Ended()
	}
}

// closeEditor ends the line that is being typed and restores the terminal.
func (v *view) closeEditor() {
	if v.editor.Swap(nil) == nil {
		return
	}
	v.tty.leave()
	v.write("\r\x1b[K")
}

// signal handles a signal about the terminal.
func (v *view) signal(s os.Signal) {
	editor := v.editor.Load()
	switch {
	case s == syscall.SIGTSTP && canStop():
		v.keys.suspend() // what is typed while this process is stopped is read before SIGCONT is
		v.tty.leave()
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) // as SIGTSTP does by default
	case s == syscall.SIGCONT && (editor != nil || v.Linear):
		v.tty.leave() // the shell may have changed the mode
		v.keys.resume()
		if v.err = v.tty.enter(); v.err == nil && v.current != nil {
			v.draw(*v.current)
		}
	case s == syscall.SIGWINCH && editor != nil:
		_ = editor.SetSize(v.tty.size())
	}
}

// noCard is the prompt while there is no current card, and waiting while keys do not
// count yet.
const (
	noCard  = "> "
	waiting = "… "
)

// prompt names the card that a code applies to. ready means that keys count.
func (v *view) prompt(ready bool) {
	editor := v.editor.Load()
	if editor == nil {
		return
	}
	switch {
	case v.current == nil:
		editor.SetPrompt(noCard)
	case ready:
		editor.SetPrompt(chat.Escape(v.current.Pending.ShortID) + noCard)
	default:
		editor.SetPrompt(waiting)
	}
	v.write("")
}

// update compares the screen with the pending requests.
func (v *view) update(ctx context.Context) {
	if v.Refresh != nil {
		v.workspaces, v.style = v.Refresh()
		v.messages = catalog(v.style.Language)
	}
	if len(v.workspaces) == 0 {
		return
	}
	waiting, err := v.Viewer.Waiting(ctx, v.workspaces)
	if err != nil {
		v.log(ctx, err)
		return
	}
	slices.SortStableFunc(waiting, func(a, b approval.StoredPending) int {
		return a.Pending.Timestamp.Compare(b.Pending.Timestamp)
	})
	waiting = v.only(waiting)
	v.served()
	v.pauses()
	v.settle(ctx, waiting)
	v.show(waiting)
}

// drawNext draws a card that still waits, if there is no current one.
func (v *view) drawNext(waiting []approval.StoredPending) {
	if v.current != nil {
		return
	}
	for _, w := range waiting {
		if !v.decidedHere[w.Key()] {
			v.draw(w)
			return
		}
	}
}

// drawn reports whether the card of w was drawn here, for the same bytes.
func (v *view) drawn(w approval.StoredPending) bool {
	old, ok := v.shown[w.Key()]
	return ok && old.SHA256 == w.SHA256
}

// draw makes w the current card.
func (v *view) draw(w approval.StoredPending) {
	v.flush()
	v.shown[w.Key()], v.current = w, &w
	delete(v.listed, w.Key())
	v.card(w)
	if v.Linear {
		v.ask(w.Pending)
	}
	v.keys.draw(func(lost bool) {
		if lost && !v.Linear { // which says so when keys count
			v.print(dim, v.messages.LineDropped)
		}
		v.prompt(false)
		v.flush()
	})
	v.settled.Reset(settleTime)
}

// dropCurrent removes the current card: no code applies until the next one is drawn.
func (v *view) dropCurrent() {
	v.current = nil
	if !v.Linear { // there the time of a question may run
		v.settled.Stop()
	}
	v.prompt(false)
}

// pauses reports workspaces that were paused or resumed since the last update.
func (v *view) pauses() {
	for _, ws := range v.workspaces {
		line := v.style.PauseLine(ws, v.now())
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

// settle reports the outcomes of requests that are no longer pending, or not as they
// were drawn.
func (v *view) settle(ctx context.Context, waiting []approval.StoredPending) {
	now := make(map[approval.Key]string, len(waiting))
	for _, w := range waiting {
		now[w.Key()] = w.SHA256
	}
	var gone []approval.Key
	shortIDs := map[approval.Key]string{}
	for _, known := range []map[approval.Key]approval.StoredPending{v.shown, v.listed} {
		for k, w := range known {
			if now[k] != w.SHA256 {
				gone = append(gone, k)
				shortIDs[k] = w.Pending.ShortID
				delete(known, k)
			}
		}
	}
	stillWaiting := false
	if v.current != nil && now[v.current.Key()] != v.current.SHA256 {
		v.dropCurrent()
		stillWaiting = len(v.shown) > 0
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
	if stillWaiting {
		v.print(plain, chat.Format(v.messages.StillWaiting, "n", strconv.Itoa(len(v.shown))))
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
	v.print(attr, v.style.Outcome(rec))
	return true
}

// card prints a card.
func (v *view) card(w approval.StoredPending) {
	style := v.style
	if v.Foot != nil {
		style.Foot = v.Foot()
	}
	c := style.Card(w.Pending)
	v.print(plain, "")
	v.print(bold, c.Question)
	v.some(plain, c.Object)
	v.sentences(plain, c.Meta)
	v.sentences(warn, c.Warnings...)
	for _, k := range c.Evidence {
		v.print(plain, k.Text)
	}
	for _, l := range c.Runs {
		v.print(colors[l.Kind], l.Text)
	}
	v.print(plain, c.Changes...)
	v.sentences(dim, c.Prose...)
	v.sentences(warn, c.Blocked)
	if w.Pending.Type == approval.TypeQuestion && !v.Linear {
		c.Menu[len(c.Menu)-1] = v.messages.Answer // there is no message to reply to
	}
	v.sentences(plain, c.Menu...)
	v.some(bold, c.Typed)
	v.sentences(dim, c.Foot)
	if v.Linear { // there is no other place to read them
		v.sentences(dim, c.Why...)
	}
}

// sentences prints the lines that are not empty, wrapped. What would run is never wrapped: a line break would look
// as if it were a part of it.
func (v *view) sentences(attr attribute, lines ...string) {
	for _, l := range lines {
		if v.Wrap != nil {
			l = v.Wrap(l)
		}
		v.some(attr, strings.Split(l, "\n")...)
	}
}

// colors are those of the lines of what would run.
var colors = map[chat.LineKind]attribute{
	chat.LineStrong: bold, chat.LineWarn: warn, chat.LineAdded: good, chat.LineRemoved: bad, chat.LineSame: dim,
}

// some prints the lines that are not empty.
func (v *view) some(attr attribute, lines ...string) {
	for _, l := range lines {
		if l != "" {
			v.print(attr, l)
		}
	}
}

// line acts on one line of input.
func (v *view) line(ctx context.Context, l input) {
	text := strings.Trim(l.text, " \t\r\n")
	switch {
	case v.revealed:
		v.hide()
		return
	case text == "":
		return
	case !v.keys.current(l):
		v.lineDropped()
		return
	case utf8.RuneCountInString(l.text) >= maxLine:
		v.print(warn, v.messages.LineTooLong)
		return
	case v.Linear && (strings.EqualFold(text, "q") || strings.EqualFold(text, "quit")):
		v.inputEnded()
		return
	case strings.EqualFold(text, "help"):
		v.print(plain, v.help())
		return
	case strings.EqualFold(text, "reveal") && v.Reveal != nil && v.current != nil:
		v.reveal(ctx)
		return
	case strings.EqualFold(text, "rule") && v.ProposeRule != nil && v.current != nil:
		v.proposeRule(ctx)
		return
	}
	m := chat.Message{
		From: v.Person, Via: "terminal", Text: text, Workspaces: v.workspaces,
		Card: v.current, Implicit: true, Language: v.style.Language,
	}
	if v.Linear {
		m.Card = nil
		v.linearLine(ctx, m)
		return
	}
	if v.drawFirst(ctx, m.Command()) {
		return
	}
	v.handle(ctx, m)
}

func (v *view) help() string {
	if v.Linear {
		return v.messages.LinearHelp
	}
	return v.messages.Help
}

// drawFirst draws the card that a command names, if that was not drawn here yet: the
// person must read it and repeat the command.
func (v *view) drawFirst(ctx context.Context, c chat.Command) bool {
	if c.Kind != chat.Approve && c.Kind != chat.Deny || len(v.workspaces) == 0 {
		return false
	}
	all, err := v.Viewer.Waiting(ctx, v.workspaces)
	if err != nil {
		return false // the interceptor says so
	}
	fit := approval.Named(all, c.ID)
	if len(fit) != 1 || v.drawn(fit[0]) {
		return false
	}
	v.settle(ctx, all)
	v.draw(fit[0])
	v.print(warn, chat.Format(v.messages.Repeat, "id", chat.Escape(fit[0].Pending.ShortID)))
	return true
}

// handle lets the interceptor act on a message.
func (v *view) handle(ctx context.Context, m chat.Message) {
	ic := *v.Interceptor
	ic.Local = v.style.Local
	if f, ok := ic.Viewer, ic.Viewer != nil && m.Command().Kind != chat.Pending; ok {
		ic.Viewer = drawnOnly{f, v}
	}
	reply := ic.Handle(ctx, m)
	v.log(ctx, reply.Err)
	switch {
	case reply.Ignore && v.Linear && isCode(m.Text):
		v.print(warn, v.messages.NameCode)
	case reply.Ignore && m.Card == nil && isCode(m.Text):
		v.print(warn, v.messages.NoCard)
	case reply.Ignore:
		v.print(warn, v.messages.NameRequest)
	case reply.Acted:
		v.print(good, reply.Text)
		v.decidedHere[reply.Key] = true
		if v.current != nil && v.current.Key() == reply.Key {
			v.dropCurrent()
		}
	default:
		v.print(plain, reply.Text)
	}
}

// isCode reports whether a text would be a code if there were a card.
func isCode(text string) bool {
	c := chat.Message{Text: text, Card: &approval.StoredPending{Pending: &approval.Pending{}}}.Command()
	return c.Kind == chat.Menu || strings.HasPrefix(text, "?")
}

// drawnOnly leaves out the pending requests whose card was not drawn here, for the same
// bytes.
type drawnOnly struct {
	finder
	view *view
}

// Waiting leaves out what was not drawn.
func (d drawnOnly) Waiting(ctx context.Context, workspaces []string) ([]approval.StoredPending, error) {
	all, err := d.finder.Waiting(ctx, workspaces)
	return slices.DeleteFunc(all, func(w approval.StoredPending) bool { return !d.view.drawn(w) }), err
}

// Find leaves out the pending requests: Waiting lists those that count.
func (d drawnOnly) Find(ctx context.Context, workspaces []string, prefix string) ([]approval.Key, error) {
	found, err := d.finder.Find(ctx, workspaces, prefix)
	if err != nil {
		return nil, err
	}
	all, err := d.finder.Waiting(ctx, workspaces)
	return slices.DeleteFunc(found, func(k approval.Key) bool {
		return slices.ContainsFunc(all, func(w approval.StoredPending) bool { return w.Key() == k })
	}), err
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

// print adds lines to what flush writes.
func (v *view) print(h attribute, lines ...string) {
	for _, l := range lines {
		if v.Color && h != plain && l != "" {
			l = "\x1b[" + strconv.Itoa(int(h)) + "m" + l + "\x1b[0m"
		}
		v.text.WriteString(l + "\n")
	}
}

// flush writes what was printed, at once: a card is never torn. Nothing is written on the
// alternate screen, which keeps no history.
func (v *view) flush() {
	text := v.text.String()
	if text == "" {
		return
	}
	v.leave()
	if v.Linear && !v.replying && text[0] != '\n' {
		text = "\n" + text // a line may have been begun
	}
	v.write(text)
	v.text.Reset()
}

// write writes above the line that is being typed, and draws that line again.
func (v *view) write(text string) {
	if v.err == nil {
		_, v.err = v.Write([]byte(text))
	}
}
