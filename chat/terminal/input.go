package terminal

import (
	"bufio"
	"context"
	"errors"
	"io"
	"time"
)

// maxLine caps a line of input, in bytes.
const maxLine = 64 << 10

// input is one line of input.
type input struct {
	text    string
	tooLong bool // then text is empty: part of a reply must not decide
}

// readLines reads in on its own goroutine and closes the channel at the end of in.
// stop ends the goroutine, at once if in takes a read deadline.
func readLines(ctx context.Context, in io.Reader) (<-chan input, func()) {
	ctx, cancel := context.WithCancel(ctx)
	lines := make(chan input)
	if in == nil {
		close(lines)
		return lines, cancel
	}
	go func() {
		defer close(lines)
		r := bufio.NewReaderSize(in, 4096)
		for {
			l, err := readLine(r)
			if err != nil {
				return // a line without a line feed may be incomplete
			}
			select {
			case lines <- l:
			case <-ctx.Done():
				return
			}
		}
	}()
	stop := func() {
		cancel()
		if d, ok := in.(interface{ SetReadDeadline(time.Time) error }); ok {
			_ = d.SetReadDeadline(time.Unix(1, 0)) // a terminal may refuse; then the next line ends the goroutine
		}
	}
	return lines, stop
}

// readLine reads up to a line feed. It drops a line over the cap.
func readLine(r *bufio.Reader) (input, error) {
	var l input
	var b []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(b)+len(part) > maxLine {
			l.tooLong, b = true, nil
		}
		if !l.tooLong {
			b = append(b, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		l.text = string(b)
		return l, err
	}
}
