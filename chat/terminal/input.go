package terminal

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

const (
	// maxLine caps a line of input, in characters. The editor ignores what is typed
	// beyond its own cap, which is the same.
	maxLine = 4096
	// settleTime is how long a card must have been on the screen, unchanged, before a
	// key counts. A person who reads needs longer, so an earlier key meant what was
	// there before.
	settleTime = 400 * time.Millisecond
)

// input is one line of input.
type input struct {
	text string
	card int // the card that was current for every key of the line, as keys counts them
}

// keys passes on the keys that count, one at a time. It never passes on part of a key,
// so that the editor has no state besides its line.
type keys struct {
	now   func() time.Time
	drain func() []byte // reads out what waits to be read; may be nil

	mu        sync.Mutex
	arrived   sync.Cond
	queue     [][]byte
	part      []byte    // the beginning of a key
	card      int       // counts the cards that were drawn
	suspended bool      // no key counts
	cooked    bool      // lines come complete: what counts was typed after settle
	settling  bool      // a card was drawn, and settle was not called yet
	lost      bool      // text was dropped since the last card
	from      time.Time // a key that was read earlier does not count
	typed     bool      // the line has characters
	cut       bool      // the beginning of the line was dropped, so its rest must not count
	ended     int       // the card under which the last line was ended; noLine if its beginning was dropped
	err       error
}

func newKeys(now func() time.Time) *keys {
	k := &keys{now: now}
	k.arrived.L = &k.mu
	return k
}

// noLine is no card.
const noLine = -1

// emptyLine are the keys that empty the editor's line: ^E and ^U.
func emptyLine() [][]byte { return [][]byte{{5}, {21}} }

// draw shows a card. What is read before the end of settleTime is dropped, and so is
// the line that was being typed; lost says whether it had characters. No key is read
// while the card is being written, so a key counts either for the last card or not.
func (k *keys) draw(show func(lost bool)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lost = false
	show(k.drop())
	k.settling = k.cooked
	k.discard()
	k.from = k.now().Add(settleTime)
	k.arrived.Signal()
}

// settle drops what was typed until now: of a line that is read later, it is not known when it was begun. lost says
// whether there was any since the last card.
func (k *keys) settle() (lost bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.discard()
	k.settling = false
	return k.lost
}

// lose notes that a line was dropped. later reports whether settle will say so.
func (k *keys) lose() (later bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lost = k.lost || k.settling
	return k.settling
}

// suspend drops the line that was being typed, and all that is read until resume.
func (k *keys) suspend() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop()
	k.suspended = true
	k.arrived.Signal()
}

// stopped drops the line that was being typed and what waits to be read: it was typed while
// this process did not run.
func (k *keys) stopped() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop()
	k.discard()
	k.arrived.Signal()
}

// drop drops the line that was being typed, and the keys that the editor has not read. It returns false if the line
// was empty.
func (k *keys) drop() (lost bool) {
	lost = k.typed
	k.card++
	k.cut, k.lost = k.cut || lost, k.lost || lost
	for _, key := range append(k.queue, k.part) {
		if len(key) > 0 && key[0] != 0x1b { // an arrow is no text
			k.ignore(key)
		}
	}
	k.queue, k.part, k.typed = emptyLine(), nil, false
	return lost
}

// discard drops what waits to be read.
func (k *keys) discard() {
	if k.drain != nil {
		k.ignore(k.drain())
	}
}

// ignore is for keys that are dropped. The rest of their line must not count by itself:
// of "no, not 1" only the 1 might be left.
func (k *keys) ignore(b []byte) {
	k.lost = k.lost || bytes.ContainsFunc(b, unicode.IsPrint)
	if i := bytes.LastIndexAny(b, "\r\n"); i >= 0 {
		k.cut, b = false, b[i+1:]
	}
	k.cut = k.cut || bytes.ContainsFunc(b, unicode.IsPrint)
}

// resume drops what waits to be read, and lets keys count again.
func (k *keys) resume() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.discard()
	k.suspended, k.cut = false, false // that was typed for another program
}

// take reads keys. The time of a key is that of the read.
func (k *keys) take(read func() ([]byte, error)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	b, err := read()
	if k.suspended || k.settling || k.now().Before(k.from) {
		k.ignore(b)
		return err
	}
	k.part = append(k.part, b...)
	for len(k.part) > 0 {
		key, size := cutKey(k.part)
		if size == 0 {
			break
		}
		if k.part = k.part[size:]; key != nil {
			k.queue = append(k.queue, key)
		}
	}
	k.arrived.Signal()
	return err
}

// end ends the input after the keys that were read.
func (k *keys) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = io.EOF
	k.arrived.Signal()
}

// Read gives the editor the next key.
func (k *keys) Read(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.queue) == 0 {
		if k.err != nil {
			return 0, k.err
		}
		k.arrived.Wait()
	}
	key := k.queue[0]
	k.queue = k.queue[1:]
	switch {
	case key[0] == '\r' || key[0] == '\n':
		k.typed, k.ended = false, k.card
		if k.cut {
			k.cut, k.ended = false, noLine
		}
	case key[0] >= ' ' && key[0] != 0x7f:
		k.typed = true
	}
	return copy(b, key), nil
}

// current reports whether a line belongs to the card that is on the screen now.
func (k *keys) current(l input) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return l.card == k.card
}

// lines sends the lines that the editor reads, until the input ends.
func (k *keys) lines(editor *term.Terminal, to chan<- input, done <-chan struct{}) {
	defer close(to)
	for {
		text, err := editor.ReadLine()
		if err != nil {
			return // a line without an end may be incomplete
		}
		k.mu.Lock()
		l := input{text, k.ended}
		k.mu.Unlock()
		select {
		case to <- l:
		case <-done:
			return
		}
	}
}

// readFrom reads keys from a reader that is no terminal. stop ends that, at once if in
// takes a read deadline.
func (k *keys) readFrom(in io.Reader) (stop func()) {
	go func() {
		defer k.end()
		b := make([]byte, maxLine)
		for {
			n, err := in.Read(b)
			if k.take(func() ([]byte, error) { return b[:n], err }) != nil {
				return
			}
		}
	}()
	return func() {
		k.end()
		if d, ok := in.(interface{ SetReadDeadline(time.Time) error }); ok {
			_ = d.SetReadDeadline(time.Unix(1, 0)) // it may refuse; then the next read ends the goroutine
		}
	}
}

// sequences are the keys that send more than one character and that the editor knows.
var sequences = []string{
	"\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D", "\x1b[H", "\x1b[F", "\x1b[3~", "\x1b[1;3C", "\x1b[1;3D",
}

// controls are the control characters that the editor gets. It does not get ^L, which
// would clear the card from the screen, and ^C is a signal.
const controls = "\x01\x02\x04\x05\x06\x08\n\x0b\r\x0e\x10\x14\x15\x17\x7f"

// cutKey returns the first key of b and its size, 0 if it is incomplete. key is nil
// for a key that the editor does not get.
func cutKey(b []byte) (key []byte, size int) {
	if b[0] == 0x1b {
		return cutSequence(b)
	}
	if b[0] < ' ' || b[0] == 0x7f {
		switch {
		case b[0] == '\t':
			return []byte(" "), 1
		case slices.Contains([]byte(controls), b[0]):
			return slices.Clone(b[:1]), 1
		}
		return nil, 1
	}
	if !utf8.FullRune(b) {
		return nil, 0
	}
	r, size := utf8.DecodeRune(b)
	if r == utf8.RuneError || !unicode.IsPrint(r) {
		return []byte("?"), size // visible: what was typed is not what it seems
	}
	return slices.Clone(b[:size]), size
}

// maxSequence is above the length of any terminal's sequence.
const maxSequence = 32

// cutSequence is cutKey for an escape sequence.
func cutSequence(b []byte) (key []byte, size int) {
	if len(b) < 2 {
		return nil, 0
	}
	if b[1] != '[' && b[1] != 'O' {
		return nil, 2
	}
	for i := 2; i < len(b); i++ {
		if b[i] < 0x40 || b[i] > 0x7e {
			continue
		}
		if s := "\x1b[" + string(b[2:i+1]); slices.Contains(sequences, s) {
			return []byte(s), i + 1
		}
		return nil, i + 1
	}
	if len(b) > maxSequence {
		return nil, len(b)
	}
	return nil, 0
}

var errStopped = errors.New("stopped")
