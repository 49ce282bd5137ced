package tui

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// The number of runs in make test and in make soak.
const (
	fewRuns  = 500
	manyRuns = 10_000
)

// readTime is how long a card must have been shown before a key. The checker does not take it from the UI.
const readTime = 400 * time.Millisecond

// TestAccident: whatever a person types while requests come, change and vanish, a key decides only about the card that
// the terminal had shown, unchanged, for 400 ms when it was typed. PERMESSO_SEED repeats the runs.
func TestAccident(t *testing.T) {
	runs := fewRuns
	if os.Getenv("PERMESSO_SOAK") != "" {
		runs = manyRuns
	}
	counts := accidents(t, runs)
	for _, v := range []approval.Verdict{approval.Approved, approval.Denied, approval.Overridden, approval.RequestMore, approval.Answered} {
		require.Positive(t, counts[string(v)], "too few decisions to say anything: %s", v)
	}
}

// TestSomeAccidents are those for the race detector, with which TestAccident takes too long.
func TestSomeAccidents(t *testing.T) {
	require.NotEmpty(t, accidents(t, fewRuns/20))
}

// accidents returns the decisions of these runs by verdict. A wrong one fails the test.
func accidents(t *testing.T, runs int) map[string]int {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("PERMESSO_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	workers := runtime.GOMAXPROCS(0)
	t.Logf("PERMESSO_SEED=%d, %d runs", seed, runs)
	var mu sync.Mutex
	counts := map[string]int{}
	var wrong []string
	t.Run("runs", func(t *testing.T) {
		for worker := range workers {
			t.Run(strconv.Itoa(worker), func(t *testing.T) {
				t.Parallel()
				for i := worker; i < runs; i += workers {
					inBubble(t, func(t *testing.T) {
						a := newAccident(t, seed, i)
						a.run()
						found := a.faults()
						mu.Lock()
						defer mu.Unlock()
						for _, d := range a.decisions() {
							counts[string(d.Verdict)]++
						}
						for _, f := range found {
							wrong = append(wrong, fmt.Sprintf("run %d: %s", i, f))
						}
					})
				}
			})
		}
	})
	t.Logf("decisions: %v, %d faults", counts, len(wrong))
	for _, w := range wrong[:min(len(wrong), 5)] {
		t.Error(w)
	}
	require.Empty(t, wrong)
	return counts
}

// version is a request as it was at a time.
type version struct {
	key          approval.Key
	sha          string
	irreversible bool
}

// accident is one run.
type accident struct {
	*rig
	person, agents *rand.Rand
	versions       map[string]version // by the marker that its card shows
	least          time.Duration      // of the line's delay
	last           screen             // what was shown long after the last change; none if the UI was left
}

func newAccident(t *testing.T, seed uint64, i int) *accident {
	random := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed+uint64(i), n)) }
	a := &accident{person: random(0), agents: random(1), versions: map[string]version{}}
	line, gate := random(2), random(3)
	g := newGate()
	if longest := []time.Duration{0, 20 * time.Millisecond, 300 * time.Millisecond}[gate.IntN(3)]; longest > 0 {
		var mu sync.Mutex
		g.took = func() time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return time.Duration(gate.Int64N(int64(longest)))
		}
	}
	size := sizes[line.IntN(len(sizes))]
	a.rig = startRig(t, size[0], size[1], g, func(_ *UI, x *terminal) {
		x.rate = []int{0, 0, 40, 300}[line.IntN(4)]
		least := []time.Duration{0, 0, 30 * time.Millisecond, 150 * time.Millisecond, 450 * time.Millisecond}[line.IntN(5)]
		a.least = least
		x.delay = func() time.Duration { return least + time.Duration(line.Int64N(2*int64(least)+1)) }
	})
	for range 1 + a.agents.IntN(4) {
		a.submit(approval.Key{})
	}
	return a
}

var sizes = [][2]int{{80, 24}, {80, 24}, {40, 20}, {100, 50}, {60, 12}}

// submit submits a request, or replaces one.
func (a *accident) submit(k approval.Key) {
	id := k.ID
	if id == "" {
		id = newID(a.agents)
	}
	marker := fmt.Sprintf("m%05dm", len(a.versions))
	var w approval.StoredPending
	how := []approval.Reversibility{approval.Reversible, approval.Partial, approval.Irreversible}[a.agents.IntN(3)]
	switch a.agents.IntN(6) {
	case 0:
		p := kindOf("question")
		p.RequestID, p.ShortID, p.SourceGroup, p.Agent.Title = id, approval.ShortID(id), "home", marker+" last?"
		p.Options = []string{marker + " yes", marker + " no", marker + " maybe"}
		w, how = a.mark(p, marker), approval.Reversible
	case 1:
		var b strings.Builder
		for i := range 3 + a.agents.IntN(60) {
			fmt.Fprintf(&b, "%s %d\n", marker, i)
		}
		w = a.mark(say(id, b.String()+marker+" last", how).Pending, marker)
	default:
		w = a.mark(say(id, marker+" last", how).Pending, marker)
	}
	a.versions[marker] = version{w.Key(), w.SHA256, how == approval.Irreversible}
	a.put(w)
}

// mark puts a marker on each part of a card, so that the checker reads from the screen alone what it shows.
func (a *accident) mark(p *approval.Pending, marker string) approval.StoredPending {
	p.Agent.Rationale = marker
	if p.Type != approval.TypeQuestion {
		p.Ruling.Reasons = []approval.Reason{approval.Because("table_ask", "capability", "channel:out", "level", marker)}
	}
	for i := range p.Offers {
		p.Offers[i].Of = 0
	}
	w := stored(p)
	a.change(func() { a.foots[w.SHA256] = marker })
	return w
}

// run lets a person type while requests come, change and vanish.
func (a *accident) run() {
	const length = 12 * time.Second
	until := time.Now().Add(length)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for time.Now().Before(until) {
			time.Sleep(time.Duration(a.agents.Int64N(int64(1500 * time.Millisecond))))
			a.act()
		}
		a.change(func() { a.broken = nil })
	}()
	for time.Now().Before(until) && !a.isOver() {
		a.type1()
	}
	<-done
	a.rest()
	a.rest()
	if !a.isOver() {
		a.last = a.now()
	}
	a.end()
}

func (a *accident) isOver() bool {
	select {
	case <-a.ended:
		return true
	default:
		return false
	}
}

// act is what an agent, or another approver, does.
func (a *accident) act() {
	waiting, _ := a.Waiting(a.t.Context(), nil)
	pick := func() approval.Key { return waiting[a.agents.IntN(len(waiting))].Key() }
	switch n := a.agents.IntN(10); {
	case len(waiting) == 0 || n < 3:
		a.submit(approval.Key{})
	case n < 6:
		a.submit(pick())
	case n < 7:
		a.vanish(pick())
	case n < 8:
		a.gate.end(pick(), approval.Approved, "bob")
	case n < 9: // another takes its place at once
		k := pick()
		a.vanish(k)
		a.submit(k)
	default:
		a.change(func() {
			if a.broken = nil; a.agents.IntN(2) == 0 {
				a.broken = errors.New("disk full")
			}
		})
	}
}

// pause waits for up to a time.
func (a *accident) pause(longest time.Duration) {
	time.Sleep(time.Duration(a.person.Int64N(int64(longest))))
}

var (
	words = []string{"yes", "approve", "deny", "always", "ok", "a", "y", "d", "please say 1", "what does it do", "add", "sad"}
	keys  = []string{
		"\r", "\r", "\r", "a", "a", "a", "d", "s", "w", "e", "y", "n", "D", "?", "h", "/", "1", "2", "9", "\t", " ", "\x7f", "\x0c", "\x15",
		"\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D", "\x1b[5~", "\x1b[6~", "\x1b[6~", "\x1b[F", "\x1b[F", "\x1b[H", "\x1bOP", "\x1b[1;5C", "\x1b[", "\x1ba", "\x1bd",
		"\x1b[97u", "\x1b[13u", "\x1b]11;rgb:0000/0000/0000\x07",
	}
	pasted = []string{"a", "a\rd\r", "approve\r", "y\ny\n", "1\r2\r", "\x1b[Aa", "d"}
)

// type1 types something.
func (a *accident) type1() {
	one := func(list []string) string { return list[a.person.IntN(len(list))] }
	switch n := a.person.IntN(100); {
	case n < 40: // a person who reads
		a.decide()
	case n < 65:
		a.press(one(keys))
		a.pause(time.Second)
	case n < 70:
		for _, c := range one(words) {
			a.press(string(c))
			if a.person.IntN(2) == 0 {
				a.pause(200 * time.Millisecond)
			}
		}
	case n < 73:
		a.paste(one(pasted))
	case n < 75: // at a terminal that does not mark pastes
		a.press(one(pasted[1:5]))
	case n < 80:
		a.write(one(pasted))
	case n < 83:
		size := sizes[a.person.IntN(len(sizes))]
		a.resize(size[0], size[1])
	case n < 85: // back, and to the end
		time.Sleep(200 * time.Millisecond) // the reader of keys waits for ever if the UI ends while it has more than one
		a.press("q")
		a.pause(time.Second)
	case n < 87:
		a.press("\x1b")
		a.pause(time.Second)
	default:
		a.pause(1200 * time.Millisecond)
	}
}

// decide opens a request, reads it and decides.
func (a *accident) decide() {
	next := "\r"
	if !a.now().has("q quit") {
		next = "n"
	}
	for _, key := range []string{next, "\x1b[F", []string{"a", "a", "d", "1", "s", "w", "D", "e", "e", "?"}[a.person.IntN(10)]} {
		if a.person.IntN(3) == 0 {
			a.hammer(key)
		}
		a.press(key)
		time.Sleep(time.Duration(a.person.IntN(4)) * a.least)
		a.pause(1500 * time.Millisecond)
	}
	switch a.person.IntN(4) {
	case 0:
		a.write("approve")
	case 1: // Enter alone
	default:
		a.press("\t")
		a.write("no xyz")
	}
	for range 1 + a.person.IntN(2) {
		time.Sleep(time.Duration(a.person.IntN(4)) * a.least)
		a.pause(1500 * time.Millisecond)
		a.press("\r")
	}
	a.hammer("\r")
}

// hammer presses a key again and again, as a person does who waits for an effect.
func (a *accident) hammer(key string) {
	for range a.person.IntN(30) {
		a.press(key)
		a.pause(150 * time.Millisecond)
	}
}

// shownCard is what the checker reads of a screen. It shares no code with the UI.
type shownCard struct {
	marker string // "": no card, or more than one
	dialog bool
	rows   []placed // of the card, and the sentence of the dialog
	last   bool     // the end of the card is on the screen
}

// placed is a row at its place.
type placed struct {
	y    int
	text string
}

func (c shownCard) is(d shownCard) bool {
	return c.marker == d.marker && c.dialog == d.dialog && slices.Equal(c.rows, d.rows)
}

// longestEscape is how long the reader of keys waits for the rest of a sequence. Keys behind it wait, too.
const longestEscape = 100 * time.Millisecond

// longestBlink is how long a part of a row may be missing: the renderer draws a row with a wide character again.
const longestBlink = 100 * time.Millisecond

// isBlink says that a screen differs from one with a card only by missing ends of rows.
func (c shownCard) isBlink(s screen) bool {
	return !slices.ContainsFunc(c.rows, func(r placed) bool { return r.y >= len(s.rows) || !strings.HasPrefix(r.text, s.rows[r.y]) })
}

var (
	markerPattern = regexp.MustCompile(`m\d{5}m`)
	labelRow      = "  " + catalog("en").Text + ":"
)

func isBody(row string) bool { return strings.HasPrefix(row, begins) || strings.HasPrefix(row, goesOn) }

// cardOn reads a screen.
func cardOn(s screen) (c shownCard) {
	if !s.has("q back") && !s.has("Esc cancel") || s.has("q quit") {
		return c
	}
	first := slices.IndexFunc(s.rows, func(row string) bool { return isBody(row) && strings.TrimSpace(row) != "" })
	if first < 1 {
		return c
	}
	y, lastMarked := first, 0
	for ; y < len(s.rows) && isBody(s.rows[y]); y++ {
		c.rows = append(c.rows, placed{y, s.rows[y]})
		if markerPattern.MatchString(s.rows[y]) {
			lastMarked = len(c.rows)
		}
	}
	if y == len(s.rows) || s.rows[y] != "" && s.rows[y] != catalog("en").Wait { // a reply may follow the card
		c.rows = c.rows[:lastMarked]
	}
	if i := slices.IndexFunc(s.rows, func(row string) bool { return strings.HasPrefix(row, "────") }); i >= 0 {
		c.dialog = true
		for y := i; y < len(s.rows) && s.rows[y] != "" && !strings.HasPrefix(s.rows[y], labelRow); y++ {
			c.rows = append(c.rows, placed{y, s.rows[y]})
		}
	}
	var text strings.Builder
	for _, r := range c.rows {
		text.WriteString(strings.TrimPrefix(strings.TrimPrefix(r.text, begins), goesOn) + " ")
	}
	if all := slices.Compact(markerPattern.FindAllString(text.String(), -1)); len(all) == 1 {
		c.marker = all[0]
		c.last = strings.Contains(text.String(), "autonomy "+all[0])
	}
	return c
}

// causes are the keys that can give a decision.
func causes(d asked, irreversible bool) []string {
	switch {
	case d.Verdict == approval.Approved && !irreversible && d.Scope == approval.Once && d.Note == "":
		return []string{"a", "\x1b[97u"}
	case d.Verdict == approval.Denied && d.Feedback == "":
		return []string{"d", "\r", "\x1b[13u"}
	case d.Verdict == approval.Answered:
		return []string{"1", "2", "3", "\r", "\x1b[13u"}
	}
	return []string{"\r", "\x1b[13u"}
}

// heldUntil is until when the reader of keys may hold a key back: behind an escape, as long as keys come in quick succession.
func (a *accident) heldUntil(i int) time.Time {
	quick := func(i int) bool {
		return i > 0 && i < len(a.keys) && !a.keys[i].arrived.IsZero() && a.keys[i].arrived.Sub(a.keys[i-1].arrived) < longestEscape
	}
	held := i
	for quick(held) && !strings.HasPrefix(a.keys[held-1].text, escape) {
		held--
	}
	if !quick(held) {
		return a.keys[i].arrived
	}
	for quick(i + 1) {
		i++
	}
	return a.keys[i].arrived.Add(longestEscape)
}

// faults are the decisions that no key gave about the card that was on the screen, and a card that was not kept up
// to date.
func (a *accident) faults() (found []string) {
	for _, d := range a.decisions() {
		var tried []string
		ok := false
		for i, k := range a.keys {
			if k.arrived.IsZero() || d.at.Before(k.arrived) || d.at.After(a.heldUntil(i).Add(time.Millisecond)) {
				continue
			}
			why := a.whyWrong(d, k)
			ok = ok || why == ""
			tried = append(tried, why)
		}
		if !ok {
			found = append(found, fmt.Sprintf("%s %s at %s: %q", d.Verdict, d.Key.ID, d.at.Format(time.StampMicro), tried))
		}
	}
	return append(found, a.stale()...)
}

// whyWrong says why a key cannot have given a decision.
func (a *accident) whyWrong(d asked, k *typedKey) string {
	i := k.screens - 1
	if i < 0 {
		return "typed before anything was shown"
	}
	for j := i - 1; j >= 0 && k.at.Sub(a.screens[j+1].at) <= longestBlink; j-- { // typed while a row was drawn again
		if e := cardOn(a.screens[j]); e.marker != "" && e.isBlink(a.screens[i]) {
			i = j
		}
	}
	c := cardOn(a.screens[i])
	v, known := a.versions[c.marker]
	switch {
	case !known || v.key != d.Key || v.sha != d.PendingSHA256:
		return fmt.Sprintf("%q was typed for %q:\n%s\n", k.text, c.marker, a.screens[i])
	case !slices.Contains(causes(d, v.irreversible), k.text):
		return fmt.Sprintf("%q does not give it", k.text)
	case c.dialog == (k.text == "a" || k.text == "d" || k.text >= "1" && k.text <= "9" || k.text == "\x1b[97u"):
		return fmt.Sprintf("%q was typed on the wrong part: dialog %t", k.text, c.dialog)
	}
	since, same, read := a.screens[i].at, true, c.last
	for j := i - 1; j >= 0; j-- {
		e := cardOn(a.screens[j])
		read = read || e.marker == c.marker && e.last
		switch {
		case same && e.is(c):
			since = a.screens[j].at
		case !c.isBlink(a.screens[j]) || a.screens[j+1].at.Sub(a.screens[j].at) > longestBlink:
			same = false
		}
	}
	switch shown := k.at.Sub(since); {
	case shown < readTime:
		return fmt.Sprintf("%q was typed %s after the card was shown:\n%s\n", k.text, shown, a.screens[i])
	case d.Verdict == approval.Approved && !read:
		return fmt.Sprintf("%q was typed before the end was shown", k.text)
	}
	return ""
}

// stale says that the screen, long after the last change, shows a request that is not what waits.
func (a *accident) stale() []string {
	v, known := a.versions[cardOn(a.last).marker]
	if !known || !a.last.has(catalog("en").Keys.Deny) {
		return nil
	}
	if i := a.index(v.key); i < 0 || a.waiting[i].SHA256 != v.sha {
		return []string{"an old card is shown:\n" + a.last.String()}
	}
	return nil
}

// A request may be replaced by one with the same text: it is another request.
func TestSameTextOtherRequest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		first := say("1111111111111111", "hello", approval.Irreversible)
		r := startRig(t, 80, 24, newGate(first), nil)
		r.awaitText("1 pending request")
		r.press("\r")
		r.rest()
		r.press("a")
		r.rest()
		second := first
		p := *first.Pending
		p.ClientID = "ws:other"
		second.Pending = &p
		second = stored(&p)
		require.NotEqual(t, first.SHA256, second.SHA256)
		r.put(second)
		r.awaitText("The request has changed")
		r.press("d")
		time.Sleep(300 * time.Millisecond)
		r.press("d")
		time.Sleep(50 * time.Millisecond)
		require.Empty(t, r.decisions(), "another request")
		r.rest()
		r.press("d")
		r.rest()
		require.Equal(t, second.SHA256, r.decisions()[0].PendingSHA256)
	})
}

// An answer to no query delays decisions, and does not end them.
func TestAnswerToNoQuery(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := startRig(t, 80, 24, newGate(say("1111111111111111", "hello", approval.Reversible)), nil)
		r.awaitText("1 pending request")
		r.press("\r")
		r.rest()
		r.press("\x1b[?62;22c", "a")
		time.Sleep(300 * time.Millisecond)
		r.press("a")
		r.awaitText(chat.Format(catalog("en").Wait))
		require.Empty(t, r.decisions())
		r.rest()
		r.press("a")
		r.rest()
		require.Len(t, r.decisions(), 1)
	})
}

// A key that was typed early may arrive late, on a line that was quick before.
func TestKeyOnLineThatGotSlow(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := startRig(t, 80, 24, newGate(say("1111111111111111", "hello", approval.Reversible)), nil)
		r.awaitText("1 pending request")
		r.press("\r")
		r.awaitText("a approve")
		time.Sleep(200 * time.Millisecond)
		r.terminal.mu.Lock()
		r.delay = func() time.Duration { return 900 * time.Millisecond }
		r.terminal.mu.Unlock()
		r.press("a")
		r.rest()
		r.rest()
		require.Empty(t, r.decisions(), "typed 200 ms after the card was shown")
		r.press("a")
		r.rest()
		require.Len(t, r.decisions(), 1)
	})
}
