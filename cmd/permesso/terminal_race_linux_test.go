package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc/client"
)

// Every card of these tests has a marker, so that the checker reads from the screen alone
// which request a card shows.
const terminalConfig = `
[workspaces.home]
autonomy = "supervised"
limits = { pending = 100, ask_per_minute = 10000, per_minute = 10000 }
[workspaces.work]
autonomy = "supervised"
limits = { pending = 100, ask_per_minute = 10000, per_minute = 10000 }
[tools.say]
dangerous_writes = true
public_source = false
secret_data = false
public_sink = false
verb = "say"
summary = "{what}"
handler = { kind = "none" }
[[rules]]
match = { tool = "say" }
outcome = "ask"
`

// recorder keeps what a terminal showed, and when.
type recorder struct {
	mu     sync.Mutex
	text   strings.Builder
	chunks []shownChunk
	more   chan struct{}
	read   int // how much of text cards has read
	found  []shownCard
}

// shownChunk says that the first size bytes were on the screen at a time.
type shownChunk struct {
	at   time.Time
	size int
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text.Write(b)
	r.chunks = append(r.chunks, shownChunk{time.Now(), r.text.Len()})
	select {
	case r.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func (r *recorder) await(t testing.TB, text string) {
	t.Helper()
	r.awaitThat(t, strconv.Quote(text), func() bool { return strings.Contains(r.String(), text) })
}

// awaitThat waits until what is on the screen fulfills a condition, and looks at each change.
func (r *recorder) awaitThat(t testing.TB, what string, ready func() bool) {
	t.Helper()
	limit := time.After(testTimeout)
	for !ready() {
		select {
		case <-r.more:
		case <-limit:
			require.Fail(t, "not on the terminal", "%s in:\n%s", what, r.String())
		}
	}
}

var (
	markerPattern  = regexp.MustCompile(`m\d{5}m`)
	cardEndPattern = regexp.MustCompile(`→ approve [0-9a-f]+  /  deny [0-9a-f]+[^0-9a-f]`)
)

// shownCard is a card as the checker read it from the screen.
type shownCard struct {
	marker string
	at     time.Time // when all of it was on the screen
}

// cards reads the screen. It shares no code with the channel.
func (r *recorder) cards() []shownCard {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := r.text.String()
	for {
		end := cardEndPattern.FindStringIndex(text[r.read:])
		if end == nil {
			return slices.Clone(r.found)
		}
		markers := markerPattern.FindAllString(text[r.read:r.read+end[0]], -1)
		r.read += end[1]
		i := slices.IndexFunc(r.chunks, func(c shownChunk) bool { return c.size >= r.read })
		if len(markers) > 0 {
			r.found = append(r.found, shownCard{markers[len(markers)-1], r.chunks[i].at})
		}
	}
}

// shownAt is the card that was drawn last at a time.
func shownAt(all []shownCard, at time.Time) (c shownCard) {
	for _, x := range all {
		if x.at.Before(at) {
			c = x
		}
	}
	return c
}

// typedLine is a line that a person typed.
type typedLine struct {
	text        string
	first, last time.Time // when the first and the last key were typed
	used        bool      // it gave a decision
}

// terminalRig is a daemon on a pseudo-terminal.
type terminalRig struct {
	*rig
	random   *rand.Rand
	recorder *recorder
	keys     *os.File // the terminal's other side
	tty      *os.File
	env      []string // of the daemon, besides that of the test
	wait     func() error
	viewer   *read.Viewer
	requests map[approval.Key]string // their markers
	lines    []typedLine
	process  *os.Process
}

// newTerminalRig starts a daemon, by another program if wrapper names one.
func newTerminalRig(t *testing.T, seed uint64, wrapper ...string) *terminalRig {
	t.Helper()
	w := prepareTerminalRig(t, seed)
	w.start(wrapper...)
	return w
}

// prepareTerminalRig opens a terminal. start starts the daemon.
func prepareTerminalRig(t *testing.T, seed uint64) *terminalRig {
	t.Helper()
	w := &terminalRig{
		rig: newRig(t, "home", terminalConfig), random: rand.New(rand.NewPCG(seed, 0)),
		recorder: &recorder{more: make(chan struct{}, 1)}, requests: map[approval.Key]string{},
	}
	w.keys, w.tty = openPTY(t)
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(w.recorder, w.keys)
	}()
	t.Cleanup(func() {
		_ = w.keys.Close()
		<-copied
		_ = w.tty.Close()
	})
	return w
}

func (w *terminalRig) start(wrapper ...string) {
	w.t.Helper()
	cmd := w.command("serve")
	if len(wrapper) > 0 {
		cmd.Args = append(wrapper, cmd.Args...)
		cmd.Path, cmd.Err = "/bin/"+wrapper[0], nil
		cmd.Env = append(cmd.Env, "MODE="+filepath.Join(w.dir, "mode"))
	}
	cmd.Env = append(append(cmd.Env, "TERM=xterm", "NO_COLOR="), w.env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = w.tty, w.tty, w.tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	before := strings.Count(w.recorder.String(), "Pending requests appear here")
	require.NoError(w.t, cmd.Start())
	w.process, w.wait = cmd.Process, sync.OnceValue(cmd.Wait)
	w.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Process.Kill()
		_ = w.wait()
	})
	await(w.t, "the daemon", func() bool {
		return strings.Count(w.recorder.String(), "Pending requests appear here") > before
	})
	h, err := home.Load(&console.Console{ConfigFlag: w.config, HomeFlag: w.layout.Home, Env: os.Getenv})
	require.NoError(w.t, err)
	k, err := h.LoadKeys()
	require.NoError(w.t, err)
	w.viewer = h.Viewer(k)
}

func (w *terminalRig) files(ws string) client.Files {
	return client.Files{Requests: w.layout.Requests(ws), Responses: w.layout.Responses(ws)}
}

// submit submits a request, with an id that begins as a given one, if any.
func (w *terminalRig) submit(ws, begins string) approval.Key {
	id := client.NewID()
	id = begins + id[len(begins):]
	k, marker := approval.Key{Workspace: ws, ID: id}, fmt.Sprintf("m%05dm", len(w.requests))
	w.requests[k] = marker
	body := fmt.Sprintf(`{"request_id":%q,"tool_name":"say","request_data":{"what":%q}}`, id, marker)
	awaitFile(w.t, w.layout.Requests(ws))
	require.NoError(w.t, w.files(ws).Submit(id, []byte(body)))
	return k
}

func (w *terminalRig) awaitShown(k approval.Key) {
	w.t.Helper()
	await(w.t, "card of "+w.requests[k], func() bool {
		all := w.recorder.cards()
		return len(all) > 0 && shownAt(all, time.Now()).marker == w.requests[k]
	})
}

// pause sleeps: in these tests real time is what is tested.
func (w *terminalRig) pause(longest time.Duration) { time.Sleep(w.upTo(longest)) }

func (w *terminalRig) upTo(longest time.Duration) time.Duration {
	return time.Duration(w.random.Int64N(int64(longest)))
}

// line is what a person types about a card: n makes the text unique.
func (w *terminalRig) line(k approval.Key) string {
	n := len(w.lines)
	short := approval.ShortID(k.ID)
	return []string{
		"1", "1", "3", fmt.Sprintf("4: k%05dk", n), fmt.Sprintf("3 k%05dk", n), fmt.Sprintf("5 k%05dk", n),
		"approve " + short, fmt.Sprintf("deny %s k%05dk", short, n),
	}[w.random.IntN(8)]
}

// typeParts types a line in one or two parts with a pause between them.
func (w *terminalRig) typeParts(line string) {
	l := typedLine{text: line, first: time.Now()}
	if cut := w.random.IntN(len(line) + 1); cut > 0 && w.random.IntN(2) == 0 {
		w.press(line[:cut])
		w.pause(700 * time.Millisecond)
		line = line[cut:]
	}
	l.last = time.Now()
	w.press(line + "\r")
	w.lines = append(w.lines, l)
}

func (w *terminalRig) press(keys string) {
	_, err := io.WriteString(w.keys, keys)
	require.NoError(w.t, err)
}

// race lets a person read a card and type, while its request is cancelled and another is
// submitted, perhaps in another workspace or with an id that begins in the same way.
func (w *terminalRig) race() {
	ws := []string{"home", "work"}
	w.random.Shuffle(2, func(i, j int) { ws[i], ws[j] = ws[j], ws[i] })
	x := w.submit(ws[0], "")
	w.awaitShown(x)
	w.pause(700 * time.Millisecond)
	begins := ""
	if w.random.IntN(3) == 0 {
		begins = x.ID[:8]
	}
	swapped := make(chan struct{})
	delay, late := w.upTo(300*time.Millisecond), w.random.IntN(2) == 0
	go func() {
		defer close(swapped)
		time.Sleep(delay)
		if !late {
			_ = w.files(x.Workspace).CancelByID(x.ID)
		}
	}()
	w.pause(300 * time.Millisecond)
	across := typedLine{first: time.Now()} // begun for x, ended after y has appeared
	if w.random.IntN(2) == 0 {
		across.text = w.line(x)
		w.press(across.text[:1])
	}
	y := w.submit(ws[w.random.IntN(2)], begins)
	<-swapped
	if across.text != "" {
		time.Sleep(700 * time.Millisecond)
		across.last = time.Now()
		w.press(across.text[1:] + "\r")
		w.lines = append(w.lines, across)
	}
	for range 1 + w.random.IntN(2) {
		w.pause(900 * time.Millisecond)
		w.typeParts(w.line([]approval.Key{x, y}[w.random.IntN(2)]))
	}
	w.end(x)
	w.end(y)
}

// end cancels what waits and waits for the record.
func (w *terminalRig) end(k approval.Key) {
	w.pause(100 * time.Millisecond)
	require.NoError(w.t, w.files(k.Workspace).CancelByID(k.ID))
	await(w.t, "record of "+k.String(), func() bool {
		rec, err := w.viewer.Record(w.t.Context(), k)
		return err == nil && rec != nil
	})
}

// settleTolerance is the part of the 400 ms that the checker requires: it sees the
// screen and the keys from outside, on a busy machine.
const settleTolerance = 250 * time.Millisecond

// verdicts counts the decisions that a person at the terminal made, and lists those about
// another card than the one that was on the screen.
func (w *terminalRig) verdicts() (decided int, wrong []string) {
	all := w.recorder.cards()
	for k, marker := range w.requests {
		st, err := w.viewer.Story(w.t.Context(), k)
		require.NoError(w.t, err)
		d := st.Decision
		if d == nil || d.Via != "terminal" {
			continue
		}
		decided++
		if why := w.whyWrong(all, marker, approval.ShortID(k.ID), d); why != "" {
			wrong = append(wrong, why)
		}
	}
	return decided, wrong
}

// whyWrong looks for a line that gives this decision about the card that it was typed
// for. "" if there is one: a line gives one decision at most. How long the daemon took does
// not matter, for a busy machine takes seconds.
func (w *terminalRig) whyWrong(all []shownCard, marker, short string, d *approval.Decision) string {
	var tried []string
	for i, l := range w.lines {
		if l.used || !decides(l.text, d) || l.last.After(d.DecidedAt) {
			continue
		}
		first, last := shownAt(all, l.first), shownAt(all, l.last)
		named := strings.Contains(l.text, short)
		switch {
		case named && !shownBefore(all, marker, l.first.Add(-settleTolerance)):
			tried = append(tried, fmt.Sprintf("%q names a card that was not shown", l.text))
		case !named && (first.marker != marker || last.marker != marker):
			tried = append(tried, fmt.Sprintf("%q was typed for %s and ended for %s", l.text, first.marker, last.marker))
		case !named && l.first.Sub(first.at) < settleTolerance:
			tried = append(tried, fmt.Sprintf("%q was typed %s after the card appeared", l.text, l.first.Sub(first.at)))
		default:
			w.lines[i].used = true
			return ""
		}
	}
	return fmt.Sprintf("%s %s, code %q, text %q, at %s: %q", marker, d.Verdict, d.Code, d.Note+d.Feedback+d.Override,
		d.DecidedAt.Format(time.StampMilli), tried)
}

func shownBefore(all []shownCard, marker string, at time.Time) bool {
	for _, c := range all {
		if c.marker == marker && c.at.Before(at) {
			return true
		}
	}
	return false
}

// decides reports whether a line can give a decision.
func decides(line string, d *approval.Decision) bool {
	word, text, _ := strings.Cut(line, " ")
	switch word {
	case "approve":
		return d.Verdict == approval.Approved && d.Code == "" && strings.HasPrefix(d.RequestID, text)
	case "deny":
		_, reason, _ := strings.Cut(text, " ")
		return d.Verdict == approval.Denied && d.Code == "" && d.Feedback == reason
	}
	return strings.TrimSuffix(word, ":") == d.Code && (text == d.Note || text == d.Feedback || text == d.Override)
}

// TestTerminalRaces: no decision at the terminal is about another card than the one on
// the screen, whatever agents do while a person types.
func TestTerminalRaces(t *testing.T) {
	t.Parallel()
	races, rigs := 15, 5
	if os.Getenv("PERMESSO_SOAK") != "" {
		races, rigs = 300, 20
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var mu sync.Mutex
	var decided int
	var wrong []string
	t.Run("races", func(t *testing.T) {
		for i := range rigs {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				w := newTerminalRig(t, seed+uint64(i))
				for range races / rigs {
					w.race()
				}
				n, bad := w.verdicts()
				mu.Lock()
				defer mu.Unlock()
				decided, wrong = decided+n, append(wrong, bad...)
			})
		}
	})
	t.Logf("%d decisions in %d races, %d about another card", decided, races, len(wrong))
	require.Empty(t, wrong)
	require.Greater(t, decided, races/5, "too few decisions to say anything")
}
