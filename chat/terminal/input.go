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

// input is one line, without its end.
type input struct {
	text    string
	tooLong bool // text is empty then: half an answer is none
}

// readLines reads in on a goroutine of its own and closes the channel at its
// end. stop has the goroutine end: at once where in takes a deadline.
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
				return // a line without its end may be half an answer: it is none
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
			_ = d.SetReadDeadline(time.Unix(1, 0)) // a terminal may refuse; then the next line ends it
		}
	}
	return lines, stop
}

// readLine reads up to a line feed and skips what is over the cap.
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
