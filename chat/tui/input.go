package tui

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

const (
	pasteStart = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
	// pasteTime is how soon after a part of a paste its next part comes.
	pasteTime = 20 * time.Millisecond
	// escapeTime is longer than the parts of a sequence are apart.
	escapeTime = 100 * time.Millisecond
	// beatTime is how often the process notes that it runs, and stopTime how long it may miss that.
	beatTime = 500 * time.Millisecond
	stopTime = 2 * time.Second
)

// input is what the terminal sends. It marks as a paste what a terminal, or who writes to it, did not: several
// characters that come at once. And it notices that the process was stopped, by another than Ctrl-Z: what is read then may
// have been typed for another program.
type input struct {
	from    io.Reader
	resumed func() // is called before anything that was typed meanwhile is returned

	closed atomic.Bool // the terminal is about to be another program's: only its answers are read

	state  byte      // of the sequence at the end of what was read
	part   []byte    // of that sequence
	read   time.Time // the last read
	pasted bool      // within a paste
	tail   []byte    // the end of what was pasted, which may begin the sequence after it
	half   []byte    // the beginning of a character
	last   time.Time // the last part of a paste
	beat   atomic.Int64
}

// run notes that the process runs, until done is closed.
func (i *input) run(done <-chan struct{}) {
	t := time.NewTicker(beatTime)
	defer t.Stop()
	for {
		i.beat.Store(time.Now().UnixNano())
		select {
		case <-t.C:
		case <-done:
			return
		}
	}
}

// answerPattern is an answer to queryTerminal.
var answerPattern = regexp.MustCompile(`\x1b\[\?[0-9;]*c`)

// growth is the most by which marks lengthen what is read.
const growth = 16

// Read implements io.Reader.
func (i *input) Read(b []byte) (int, error) {
	part := make([]byte, max(1, len(b)/growth))
	n, err := i.from.Read(part)
	if beat := i.beat.Load(); beat != 0 && time.Since(time.Unix(0, beat)) > stopTime {
		i.resumed()
	}
	marked := i.mark(part[:n])
	if i.closed.Load() {
		marked = bytes.Join(answerPattern.FindAll(marked, -1), nil)
	}
	return copy(b, marked), err
}

// mark marks pastes. A character is a key if no other came with it; arrows and their like may, on a slow line.
func (i *input) mark(p []byte) (marked []byte) {
	now := time.Now()
	if now.Sub(i.read) > escapeTime { // nothing follows any more: it was the key Esc
		i.state, i.part = ansi.NormalState, nil
	}
	i.read = now
	var parts [][]byte
	var typed []bool // which parts are characters
	add := func(part []byte, char bool) {
		if n := len(parts); char && n > 0 && typed[n-1] {
			parts[n-1] = append(parts[n-1], part...)
			return
		}
		parts, typed = append(parts, bytes.Clone(part)), append(typed, char)
	}
	chars, pastes := 0, now.Sub(i.last) < pasteTime
	for p, i.half = cutHalf(append(i.half, p...)); len(p) > 0; {
		if i.pasted {
			n := i.cutPaste(p)
			add(p[:n], false)
			p, pastes = p[n:], true
			continue
		}
		seq, _, n, state := ansi.DecodeSequence(p, i.state, nil)
		i.part, i.state, p = append(i.part, seq...), state, p[n:]
		isChar := state == ansi.NormalState && len(i.part) == len(seq) && isTyped(seq)
		add(seq, isChar)
		if isChar {
			chars++
		}
		if state == ansi.NormalState {
			i.pasted, i.part = string(i.part) == pasteStart, nil
		}
	}
	for n, part := range parts {
		if typed[n] && (chars > 1 || pastes) && len(bytes.Trim(part, " jk")) > 0 { // a held key that only scrolls may come twice
			part = append(append([]byte(pasteStart), part...), pasteEnd...)
			i.last = now
		}
		marked = append(marked, part...)
	}
	return marked
}

// cutHalf cuts the beginning of a character from the end.
func cutHalf(p []byte) (whole, half []byte) {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if at := len(p) - n; utf8.RuneStart(p[at]) {
			if !utf8.FullRune(p[at:]) {
				return p[:at], p[at:]
			}
			break
		}
	}
	return p, nil
}

// isTyped reports whether a key is a character, or ends a line.
func isTyped(seq []byte) bool {
	return seq[0] >= ' ' && seq[0] != 0x7f || seq[0] == '\r' || seq[0] == '\n' || seq[0] == '\t'
}

// cutPaste returns the length of what belongs to a paste, with its end.
func (i *input) cutPaste(p []byte) int {
	all := append(bytes.Clone(i.tail), p...)
	end := bytes.Index(all, []byte(pasteEnd))
	if i.last = i.read; end < 0 {
		i.tail = all[max(0, len(all)-len(pasteEnd)+1):]
		return len(p)
	}
	n := end + len(pasteEnd) - len(i.tail)
	i.tail, i.pasted = nil, false
	return n
}

// fileInput is an input whose terminal the program can set up.
type fileInput struct {
	*os.File
	input *input
}

// Read implements io.Reader.
func (f fileInput) Read(b []byte) (int, error) { return f.input.Read(b) }

// reader is the input as the program takes it.
func (i *input) reader() io.Reader {
	if f, ok := i.from.(*os.File); ok {
		return fileInput{f, i}
	}
	return i
}
