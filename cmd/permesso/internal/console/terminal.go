package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// AnswerDelay is how long a text must have been on the screen before an answer to it
// counts: an answer that was typed earlier was meant for something else.
const AnswerDelay = 400 * time.Millisecond

// Terminal returns standard input and output if a person sits at both.
func (a *Console) Terminal() (in, out *os.File, ok bool) {
	in, _ = a.In.(*os.File)
	out, _ = a.Out.(*os.File)
	return in, out, in != nil && out != nil && IsTerminal(in) && IsTerminal(out)
}

// Confirm prints a text, then the question with " [y/N] ", and reports whether the answer
// is y or yes. What was typed before the text had been on the screen for AnswerDelay is
// dropped.
func (a *Console) Confirm(ctx context.Context, text, question string) (yes bool, err error) {
	in, out, ok := a.Terminal()
	if !ok {
		return false, errors.New("no terminal to ask at")
	}
	if _, err := fmt.Fprintln(out, WrapText(text, Width(out))); err != nil {
		return false, err
	}
	if err := sleep(ctx, AnswerDelay); err != nil {
		return false, ErrNoAnswer
	}
	if err := flushInput(in); err != nil {
		return false, fmt.Errorf("drop what was typed before: %w", err)
	}
	if _, err := fmt.Fprint(out, WrapText(question+" [y/N] ", Width(out))); err != nil {
		return false, err
	}
	line, err := readLine(ctx, in)
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		_, _ = fmt.Fprintln(out)
		return false, ErrNoAnswer
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return err == nil, err
	}
	return false, err
}

// ErrNoAnswer says that the input ended at a question, or that the program was interrupted there.
var ErrNoAnswer = errors.New("nothing was decided: no answer")

// readLine reads one line, or returns the error of an ended context. A line without a
// line feed is an error: it may be incomplete.
func readLine(ctx context.Context, in io.Reader) (line string, err error) {
	return await(ctx, func() (string, error) { return bufio.NewReader(in).ReadString('\n') })
}

// await runs a read that cannot be interrupted. If ctx ends first, the read is left behind.
func await[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := read()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		return *new(T), ctx.Err()
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

const (
	enterAltScreen = "\x1b[?1049h\x1b[2J\x1b[H"
	leaveAltScreen = "\x1b[2J\x1b[?1049l"
)

// ShowOnce shows a text on the terminal's alternate screen, which keeps no history, page
// by page. A key shows the next page, or ends it after the last; q, Escape and Ctrl-C end
// it at once. The first screen is restored however it ends.
func ShowOnce(ctx context.Context, in, out *os.File, text string) (err error) {
	fd := int(in.Fd())
	state, err := term.MakeRaw(fd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, term.Restore(fd, state)) }()
	defer func() {
		_, leaving := io.WriteString(out, leaveAltScreen)
		err = errors.Join(err, leaving)
	}()
	width, height, err := term.GetSize(int(out.Fd()))
	if err != nil || width <= 0 || height <= 1 {
		width, height = 80, 24
	}
	for _, page := range pages(text, width, height-1) {
		if _, err := io.WriteString(out, enterAltScreen+page+"— any key —"); err != nil {
			return err
		}
		key, err := readKey(ctx, in)
		if err != nil || strings.ContainsRune("q\x1b\x03", rune(key)) {
			return err
		}
	}
	return nil
}

func readKey(ctx context.Context, in io.Reader) (byte, error) {
	return await(ctx, func() (byte, error) {
		b := make([]byte, 1)
		_, err := io.ReadFull(in, b)
		return b[0], err
	})
}

// pages splits a text into pages of so many lines of the screen. A character counts as two
// columns if it may be wide, so a page is never longer than the screen.
func pages(text string, width, height int) (list []string) {
	var page strings.Builder
	used := 0
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		for _, row := range rows(line, width) {
			if used == height {
				list = append(list, page.String())
				page.Reset()
				used = 0
			}
			page.WriteString(row + "\r\n")
			used++
		}
	}
	return append(list, page.String())
}

// rows breaks a line where the screen ends.
func rows(line string, width int) (list []string) {
	start, columns := 0, 0
	for i, c := range line {
		wide := 1
		switch {
		case c == '\t':
			wide = 8
		case c >= 0x1100:
			wide = 2
		}
		if columns+wide > width && i > start {
			list = append(list, line[start:i])
			start, columns = i, 0
		}
		columns += wide
	}
	return append(list, line[start:])
}
