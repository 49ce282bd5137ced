package tui

import (
	"time"

	tea "charm.land/bubbletea/v2"
)

// settleTime is how long a card must have been on the screen, unchanged, before a key counts.
const settleTime = 400 * time.Millisecond

// queryTerminal asks the terminal for its primary attributes (DA1), which every terminal answers. It answers what
// it reads in order, so the answer shows that it has processed all that was written before. And the answer comes
// between the keys: a key before it was typed before it.
const queryTerminal = "\x1b[c"

// barrier knows whether the current card has been on the screen for settleTime.
//
// The first query is written with the card's frame or before it: the renderer writes what the model has queued,
// then the frame. The second, sent after the first was answered, is written after that frame: its answer shows that
// the terminal has the card. The third is sent settleTime later. A key that is read after its answer counts.
type barrier struct {
	shown   string // what the barrier is about: all that is on the screen of the card
	step    step
	began   time.Time
	asked   int  // queries, ever
	answers int  // of the terminal, ever
	wanted  int  // the query that ends the step
	silent  bool // the terminal did not answer in time
	closed  bool // the terminal is about to be another program's: nothing is asked, and no key counts
}

type step int

const (
	stepWriting  step = iota // the frame may not be written yet
	stepShowing              // it is written
	stepSettling             // it is on the screen
	stepChecking             // … for settleTime; keys that were typed before that may still come
	stepSettled              // keys count
)

// silence is how long an answer may take. After it answers count as lost, and none of them comes any more.
const silence = 3 * time.Second

type (
	// settleMsg says that settleTime is over.
	settleMsg struct{ began time.Time }
	// silenceMsg says that silence is over.
	silenceMsg struct{ began time.Time }
)

// show begins again if something else is to be shown.
func (b *barrier) show(what string, now time.Time) tea.Cmd {
	if b.closed || what == b.shown {
		return nil
	}
	b.shown = what
	return b.restart(now)
}

func (b *barrier) restart(now time.Time) tea.Cmd {
	b.step, b.began, b.closed = stepWriting, now, false
	b.asked = max(b.asked, b.answers) // those were no answers
	return tea.Batch(b.query(), tea.Tick(silence, func(time.Time) tea.Msg { return silenceMsg{now} }))
}

// lost begins again if the terminal has not answered. An answer to an earlier query could still come, and be taken for
// one to a later query. So the card must then have been on the screen for as long as an answer may take.
func (b *barrier) lost(m silenceMsg, now time.Time) tea.Cmd {
	if b.closed || m.began != b.began || b.answers >= b.wanted {
		return nil
	}
	b.asked, b.answers, b.silent = 0, 0, true
	return b.restart(now)
}

// close is for the time before the terminal is another program's, until restart.
func (b *barrier) close() { b.step, b.closed = stepWriting, true }

// owed reports whether an answer is still on its way. Another program would get it.
func (b *barrier) owed() bool { return b.answers < b.asked }

func (b *barrier) query() tea.Cmd {
	b.asked++
	b.wanted = b.asked
	return tea.Raw(queryTerminal)
}

// answered handles an answer of the terminal.
func (b *barrier) answered(now time.Time) tea.Cmd {
	switch b.answers++; {
	case b.closed:
		return nil
	case b.answers > b.asked: // one was typed, pasted, or for another program, and may have ended a step too early
		return b.restart(now)
	case b.answers < b.wanted:
		return nil
	}
	switch b.step {
	case stepWriting:
		b.step = stepShowing
		return b.query()
	case stepShowing:
		b.step = stepSettling
		began, wait := b.began, settleTime
		if b.silent {
			wait = silence
		}
		return tea.Tick(wait, func(time.Time) tea.Msg { return settleMsg{began} })
	case stepChecking:
		b.step, b.silent = stepSettled, false
	}
	return nil
}

// settled handles the end of settleTime.
func (b *barrier) settled(m settleMsg) tea.Cmd {
	if b.step != stepSettling || m.began != b.began {
		return nil
	}
	b.step = stepChecking
	return b.query()
}

// onScreen reports whether the terminal has what is to be shown.
func (b *barrier) onScreen() bool { return b.step >= stepSettling }

// counts reports whether a key that comes now counts.
func (b *barrier) counts(now time.Time) bool {
	return b.step == stepSettled && now.Sub(b.began) >= settleTime
}
