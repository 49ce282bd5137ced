package tui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/cardtest"
)

func TestMain(m *testing.M) {
	c := make(chan os.Signal, 1) // starts the goroutine of package signal, outside of the tests' bubbles
	signal.Notify(c, syscall.SIGWINCH)
	signal.Stop(c)
	goleak.VerifyTestMain(m)
}

// part is what travels on the line at once.
type part struct {
	text string
	due  time.Time
	key  *typedKey // nil: an answer of the terminal
}

// typedKey is a key, or a paste, as the person typed it.
type typedKey struct {
	text    string
	at      time.Time // when it was typed
	screens int       // how many screens there had been then
	arrived time.Time // when the program read it
}

// screen is what the terminal showed from a time on.
type screen struct {
	at   time.Time
	rows []string
	note string // what made it
}

func (s screen) String() string { return strings.Join(s.rows, "\n") }

func (s screen) has(text string) bool { return strings.Contains(s.String(), text) }

// terminal is a person's terminal, at the end of a line with a delay. It keeps what it showed, and when. Everything
// runs in a bubble of synctest: time passes only while nothing else is to be done.
type terminal struct {
	t        *testing.T
	emulator *vt.Emulator
	down, up chan part
	delay    func() time.Duration // of a part, in each direction
	rate     int                  // bytes that arrive at once; 0: all. The others follow after a pause.
	ended    chan struct{}        // the program has ended

	running sync.WaitGroup

	drawing          sync.Mutex // held while the emulator changes
	mu               sync.Mutex
	lastDown, lastUp time.Time
	written          bytes.Buffer // all that the program wrote
	screens          []screen
	keys             []*typedKey
	more             chan struct{}
	unread           string
	answers          int // of the terminal, that the program has read
}

func newTerminal(t *testing.T, width, height int) *terminal {
	x := &terminal{
		t: t, emulator: vt.NewEmulator(width, height), down: make(chan part, 1<<12), up: make(chan part, 1<<12),
		delay: func() time.Duration { return 0 }, ended: make(chan struct{}), more: make(chan struct{}, 1),
	}
	x.emulator.RegisterCsiHandler('r', func(p ansi.Params) bool { // a frame for a larger screen: margins end at its last row
		if len(p) > 1 && p[1].Param(0) > x.emulator.Height() {
			p[1] = ansi.Param(x.emulator.Height())
		}
		return false
	})
	x.running.Go(x.show)
	x.running.Go(x.answer)
	return x
}

// Write is the program's output. It never blocks: the renderer holds a mutex.
func (x *terminal) Write(b []byte) (int, error) {
	x.mu.Lock()
	x.written.Write(b)
	x.lastDown = later(x.lastDown, x.delay())
	p := part{text: string(b), due: x.lastDown}
	x.mu.Unlock()
	x.down <- p
	return len(b), nil
}

// later is the time at which a part arrives: never before the one that was sent before it.
func later(last time.Time, delay time.Duration) time.Time {
	due := time.Now().Add(delay)
	if next := last.Add(time.Microsecond); due.Before(next) {
		return next
	}
	return due
}

// show feeds the emulator with what has arrived.
func (x *terminal) show() {
	for p := range x.down {
		time.Sleep(time.Until(p.due))
		for rest := strings.ReplaceAll(p.text, "\n", "\r\n"); rest != ""; { // as a terminal line does
			n := len(rest)
			if x.rate > 0 && n > x.rate {
				n = x.rate
			}
			x.draw("output", func() { _, _ = x.emulator.Write([]byte(rest[:n])) })
			if rest = rest[n:]; rest != "" {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
	_ = x.emulator.InputPipe().(io.Closer).Close()
}

// answer sends the emulator's answers to the program.
func (x *terminal) answer() {
	b := make([]byte, 4096)
	for {
		n, err := x.emulator.Read(b)
		if err != nil {
			return
		}
		x.send(string(b[:n]), nil)
	}
}

// draw changes the screen, and keeps what it shows.
func (x *terminal) draw(why string, change func()) {
	x.drawing.Lock()
	defer x.drawing.Unlock()
	change()
	rows := make([]string, x.emulator.Height())
	for y := range rows {
		rows[y] = x.row(y)
	}
	x.mu.Lock()
	if n := len(x.screens); n == 0 || !slices.Equal(x.screens[n-1].rows, rows) {
		x.screens = append(x.screens, screen{time.Now(), rows, why})
	}
	x.mu.Unlock()
	select {
	case x.more <- struct{}{}:
	default:
	}
}

// output is all that the program wrote.
func (x *terminal) output() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.written.String()
}

// cells are copies of the cells of the screen; nil: the second half of a wide character.
func (x *terminal) cells() (rows [][]*uv.Cell) {
	x.drawing.Lock()
	defer x.drawing.Unlock()
	for y := range x.emulator.Height() {
		row := make([]*uv.Cell, x.emulator.Width())
		for i := range row {
			if c := x.emulator.CellAt(i, y); c != nil {
				row[i] = c.Clone()
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// row reads a row of cells, without the blanks at its end.
func (x *terminal) row(y int) string {
	var b strings.Builder
	for i := 0; i < x.emulator.Width(); {
		c := x.emulator.CellAt(i, y)
		if c == nil || c.Width == 0 {
			b.WriteByte(' ')
			i++
			continue
		}
		b.WriteString(c.Content)
		i += c.Width
	}
	return strings.TrimRight(b.String(), " ")
}

func (x *terminal) send(text string, key *typedKey) {
	x.mu.Lock()
	x.lastUp = later(x.lastUp, x.delay())
	p := part{text, x.lastUp, key}
	x.mu.Unlock()
	x.up <- p
}

// Read is the program's input. Each part comes alone, when the one before it has had its effect.
func (x *terminal) Read(b []byte) (int, error) {
	if x.unread == "" {
		p, open := <-x.up
		if !open {
			return 0, io.EOF
		}
		time.Sleep(max(time.Until(p.due), time.Microsecond))
		select {
		case <-x.ended:
			return 0, io.EOF
		default:
		}
		if p.key != nil {
			x.mu.Lock()
			p.key.arrived = time.Now()
			x.mu.Unlock()
		}
		if strings.HasPrefix(p.text, "\x1b[?") && strings.HasSuffix(p.text, "c") {
			x.mu.Lock()
			x.answers += strings.Count(p.text, "c")
			x.mu.Unlock()
		}
		x.unread = p.text
	}
	n := copy(b, x.unread)
	x.unread = x.unread[n:]
	return n, nil
}

// answersRead is the number of answers that the program has read.
func (x *terminal) answersRead() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.answers
}

// press types keys. Each text is one key, or its sequence.
func (x *terminal) press(keys ...string) {
	for _, text := range keys {
		k := &typedKey{text: text, at: time.Now()}
		x.mu.Lock()
		k.screens = len(x.screens)
		x.keys = append(x.keys, k)
		x.mu.Unlock()
		x.send(text, k)
	}
}

// write types a text, key by key.
func (x *terminal) write(text string) { x.press(strings.Split(text, "")...) }

// paste pastes a text in brackets.
func (x *terminal) paste(text string) { x.press("\x1b[200~" + text + "\x1b[201~") }

// resize gives the terminal another size, and tells the program. It does so twice, for an unfinished key may take the
// first one: other terminals tell the size beside the keys.
func (x *terminal) resize(width, height int) {
	x.draw("resize", func() { x.emulator.Resize(width, height) })
	for range 2 {
		x.send(fmt.Sprintf("\x1b[8;%d;%dt", height, width), nil)
	}
}

// now is what the screen shows.
func (x *terminal) now() screen {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.screens) == 0 {
		return screen{}
	}
	return x.screens[len(x.screens)-1]
}

// await waits until the screen fulfills a condition.
func (x *terminal) await(what string, ready func(s screen) bool) screen {
	x.t.Helper()
	limit := time.After(time.Minute)
	for {
		if s := x.now(); ready(s) {
			return s
		}
		select {
		case <-x.more:
		case <-limit:
			require.FailNow(x.t, "not on the terminal", "%s in:\n%s", what, x.now())
		}
	}
}

func (x *terminal) awaitText(text string) screen {
	x.t.Helper()
	return x.await(text, func(s screen) bool { return s.has(text) })
}

func (x *terminal) awaitGone(text string) screen {
	x.t.Helper()
	return x.await("no "+text, func(s screen) bool { return !s.has(text) })
}

// settle waits until nothing changes any more and keys count.
func (x *terminal) rest() screen {
	time.Sleep(2 * time.Second)
	synctest.Wait()
	return x.now()
}

// asked is a decision that the UI asked for.
type asked struct {
	decide.Input
	at time.Time
}

// gate is what the UI reads, and the Decider.
type gate struct {
	mu      sync.Mutex
	at      int64
	changed chan struct{}
	waiting []approval.StoredPending
	stories map[approval.Key]read.Story
	foots   map[string]string // the ends of the cards, by digest
	asked   []asked
	took    func() time.Duration // how long a read or a decision takes; nil: no time
	broken  error
	stopped bool // no daemon
}

func newGate(waiting ...approval.StoredPending) *gate {
	g := &gate{at: 1, changed: make(chan struct{}), stories: map[approval.Key]read.Story{}, foots: map[string]string{}}
	for _, w := range waiting {
		g.put(w)
	}
	return g
}

// change changes what waits.
func (g *gate) change(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
	g.at++
	close(g.changed)
	g.changed = make(chan struct{})
}

// put adds a request, or replaces the one with its key.
func (g *gate) put(w approval.StoredPending) {
	g.change(func() {
		g.stories[w.Key()] = read.Story{Pending: w.Pending, SHA256: w.SHA256}
		if i := g.index(w.Key()); i >= 0 {
			g.waiting[i] = w
			return
		}
		g.waiting = append(g.waiting, w)
	})
}

func (g *gate) index(k approval.Key) int {
	return slices.IndexFunc(g.waiting, func(w approval.StoredPending) bool { return w.Key() == k })
}

// vanish ends a request, as an agent does that cancels it.
func (g *gate) vanish(k approval.Key) { g.end(k, approval.Cancelled, "agent") }

// end settles a request by another's decision.
func (g *gate) end(k approval.Key, v approval.Verdict, by string) {
	g.change(func() { g.settle(k, &approval.Decision{Verdict: v, DecidedBy: by, Via: "cli", DecidedAt: time.Now()}) })
}

func (g *gate) settle(k approval.Key, d *approval.Decision) {
	if i := g.index(k); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
		st := g.stories[k]
		st.Decision = d
		g.stories[k] = st
	}
}

func (g *gate) wait() {
	if g.took != nil {
		time.Sleep(g.took())
	}
}

func (g *gate) Follow(ctx context.Context, after int64) (State, error) {
	for {
		g.mu.Lock()
		s, changed, broken := State{slices.Clone(g.waiting), g.at, !g.stopped}, g.changed, g.broken
		g.mu.Unlock()
		if s.At > after || broken != nil {
			return s, broken
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return State{}, ctx.Err()
		}
	}
}

func (g *gate) Story(_ context.Context, k approval.Key) (read.Story, string, error) {
	g.mu.Lock()
	st := g.stories[k]
	foot := "log 1042 " + cmp.Or(g.foots[st.SHA256], "9f3c")
	g.mu.Unlock()
	g.wait()
	return st, foot, nil
}

func (g *gate) Waiting(context.Context, []string) ([]approval.StoredPending, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.waiting), nil
}

func (g *gate) Find(context.Context, []string, string) ([]approval.Key, error) { return nil, nil }

// Decide implements chat.Decider: it refuses what the gate refuses.
func (g *gate) Decide(_ context.Context, in decide.Input) (*approval.Decision, error) {
	g.mu.Lock()
	g.asked = append(g.asked, asked{in, time.Now()})
	g.mu.Unlock()
	g.wait()
	var d *approval.Decision
	err := &decide.Refusal{Reason: decide.ErrDecided}
	g.change(func() {
		i := g.index(in.Key)
		switch {
		case i < 0:
		case g.waiting[i].SHA256 != in.PendingSHA256:
			err.Reason = decide.ErrChanged
		default:
			d = &approval.Decision{Verdict: in.Verdict, Scope: in.Scope, DecidedBy: in.By.Name, DecidedAt: time.Now(), RunBefore: time.Now().Add(time.Hour)}
			g.settle(in.Key, d)
		}
	})
	if d == nil {
		return nil, err
	}
	return d, nil
}

// decisions are those that the UI asked for.
func (g *gate) decisions() []asked {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.asked)
}

// rig is a running UI, its terminal and its gate.
type rig struct {
	*terminal
	*gate
	ui     *UI
	stop   context.CancelFunc
	err    error // of the UI
	closed bool
}

// startRig runs the UI. change may change it before.
func startRig(t *testing.T, width, height int, g *gate, change func(*UI, *terminal)) *rig {
	t.Helper()
	x := newTerminal(t, width, height)
	style := func() chat.Style { return chat.Style{Zone: time.UTC, Local: true} }
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &rig{x, g, &UI{
		In: x, Out: x, Env: []string{"TERM=xterm-256color", "SSH_TTY=1", "CLICOLOR_FORCE=1"}, Color: true, Requests: g, Style: style,
		Interceptor: &chat.Interceptor{Decider: g, Viewer: g, Zone: time.UTC, Local: true},
		Person:      approval.Person{Name: "ann"}, Workspaces: func() []string { return []string{"home", "personal"} },
	}, stop, nil, false}
	if change != nil {
		change(r.ui, x)
	}
	go func() {
		r.err = r.ui.Run(ctx)
		close(x.ended)
	}()
	x.resize(width, height)
	t.Cleanup(r.end)
	return r
}

// end ends the UI, when all that was typed has arrived.
func (r *rig) end() {
	if r.closed {
		return
	}
	r.closed = true
	select {
	case <-r.ended:
	case <-time.After(5 * time.Second):
	}
	r.stop()
	<-r.ended
	close(r.down)
	r.running.Wait()
	close(r.up)
	time.Sleep(5 * time.Second) // the last timers and readers end
	if r.err != nil && !errors.Is(r.err, context.Canceled) {
		if !errors.Is(r.err, ErrInterrupted) {
			require.NoError(r.t, r.err)
		}
	}
}

// hasEnded waits until the UI has ended by itself.
func (r *rig) hasEnded() bool {
	select {
	case <-r.ended:
		return true
	case <-time.After(time.Minute):
		return false
	}
}

// inBubble runs a test with a UI.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// say is a request of a tool that says a text.
func say(id, text string, how approval.Reversibility) approval.StoredPending {
	tool := approval.Tool{
		Name: "say", Capability: "channel:out", Reversibility: how, Verb: map[string]string{"en": "say"}, Summary: "{what}",
		Args: map[string]approval.Argument{"what": {Type: "text"}}, Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/opt/say"}},
	}
	data := approval.Raw(`{"what":` + quoteJSON(text) + `}`)
	runs, why := facts.Fill(tool, data)
	if !why.IsZero() {
		panic(why.String())
	}
	p := kindOf("post")
	p.RequestID, p.ShortID, p.SourceGroup, p.ClientID = id, approval.ShortID(id), "home", "ws:home"
	p.ToolName, p.ActionType, p.Target, p.Reversibility = tool.Name, "custom:say", "", how
	p.Capability, p.RequestData, p.Verb, p.Runs = tool.Capability, data, tool.Verb, runs
	p.Summary, p.SummaryParts = facts.ExpandQuoted(tool.Summary, data), facts.Parts(tool.Summary)
	p.Facts = facts.Of(tool, &approval.Request{RequestID: id, RequestData: data}, nil, time.Time{})
	return stored(p)
}

// stored gives a request a time and a digest.
func stored(p *approval.Pending) approval.StoredPending {
	p.Timestamp = time.Now()
	p.ExpiresAt = p.Timestamp.Add(time.Hour)
	b, err := p.Encode()
	if err != nil {
		panic(err)
	}
	return approval.StoredPending{Pending: p, SHA256: approval.Digest(b)}
}

// kindOf is a request of a kind.
func kindOf(name string) *approval.Pending {
	all := cardtest.Kinds()
	i := slices.IndexFunc(all, func(k cardtest.Kind) bool { return k.Name == name })
	return all[i].Pending
}

// newID is an id that a seed repeats.
func newID(r *rand.Rand) string { return fmt.Sprintf("%016x", r.Uint64()) }

func quoteJSON(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// loadItems makes a page of a request.
func loadItems(w approval.StoredPending) func(context.Context) ([]Item, error) {
	return func(context.Context) ([]Item, error) {
		text := chat.Style{Zone: time.UTC, Local: true}.Line(w.Pending)
		return []Item{{Text: text, ID: "1", Question: "Revoke " + text + "?"}, {Text: "second", ID: "2"}}, nil
	}
}
