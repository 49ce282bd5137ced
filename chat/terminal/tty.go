package terminal

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// tty is the terminal that keys are read from. Its mode is changed only while this
// process is in the terminal's foreground.
type tty struct {
	fd   int
	wake [2]*os.File // closing the second ends wait
	// cooked keeps the terminal's mode: it passes on complete lines.
	cooked bool

	mu      sync.Mutex
	saved   *term.State // the mode before enter; nil: unchanged
	entered time.Time   // the last enter
}

// openTTY returns nil if in is no terminal.
func openTTY(in io.Reader) (*tty, error) {
	file, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil, nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &tty{fd: int(file.Fd()), wake: [2]*os.File{r, w}}, nil
}

// enter makes the terminal pass on each key at once and without echo. Ctrl-C and
// Ctrl-Z still send signals, and lines of others still begin at the left.
func (t *tty) enter() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entered = time.Now()
	if t.saved != nil || t.cooked || !t.inForeground() {
		return nil
	}
	saved, err := term.MakeRaw(t.fd)
	if err != nil {
		return err
	}
	t.saved = saved
	mode, err := unix.IoctlGetTermios(t.fd, getMode)
	if err != nil {
		return err
	}
	mode.Lflag |= unix.ISIG
	mode.Oflag |= unix.OPOST
	return unix.IoctlSetTermios(t.fd, setMode, mode)
}

// leave restores the mode before enter.
func (t *tty) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.saved == nil {
		return
	}
	if t.inForeground() {
		_ = term.Restore(t.fd, t.saved)
	}
	t.saved = nil
}

// inForeground reports whether this process may change the mode.
func (t *tty) inForeground() bool {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

// size is the size of the window, 80×24 if it is unknown.
func (t *tty) size() (width, height int) {
	width, height, err := term.GetSize(t.fd)
	if err != nil || width <= 0 {
		return 80, 24
	}
	return width, height
}

const (
	pollTime = 500 * time.Millisecond
	// stopTime is how long a poll takes at least if this process was stopped meanwhile.
	stopTime = 4 * pollTime
)

// wait waits until read would not block. It returns an error at the end. It calls stopped
// after this process was stopped: a signal that stops it at once cannot be handled.
func (t *tty) wait(stopped func()) error {
	for {
		fds := []unix.PollFd{{Fd: int32(t.fd), Events: unix.POLLIN}, {Fd: int32(t.wake[0].Fd()), Events: unix.POLLIN}}
		began := time.Now()
		n, err := unix.Poll(fds, int(pollTime/time.Millisecond))
		if t.stoppedSince(began) && fds[1].Revents == 0 {
			stopped()
			continue
		}
		switch {
		case n == 0 && err == nil:
			continue
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case fds[1].Revents != 0:
			return errStopped
		case fds[0].Revents != 0:
			return nil
		}
	}
}

// stoppedSince says whether this process was stopped during a poll that began then. After
// enter that is over: who continues has dropped what was typed, and what comes then counts.
func (t *tty) stoppedSince(began time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(began) >= stopTime && t.entered.Before(began)
}

// read returns what waits, nothing if nothing waits. Only one reads at a time: another would
// wait for a key that the first has read.
func (t *tty) read() ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fds := []unix.PollFd{{Fd: int32(t.fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, 0); n <= 0 {
		if errors.Is(err, unix.EINTR) {
			err = nil
		}
		return nil, err
	}
	b := make([]byte, maxLine)
	n, err := unix.Read(t.fd, b)
	switch {
	case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		return nil, nil
	case err != nil:
		return nil, err
	case n == 0:
		return nil, io.EOF
	}
	return b[:n], nil
}

// drain reads out what waits.
func (t *tty) drain() (all []byte) {
	if t.cooked {
		defer t.passKeys(false)
		t.passKeys(true)
	}
	for {
		b, err := t.read()
		if err != nil || len(b) == 0 {
			return all
		}
		all = append(all, b...)
	}
}

// passKeys makes the terminal pass on each key, also those of a line that was begun, or again complete lines.
func (t *tty) passKeys(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	mode, err := unix.IoctlGetTermios(t.fd, getMode)
	if err != nil || !t.inForeground() {
		return
	}
	if mode.Lflag |= unix.ICANON; on {
		mode.Lflag &^= unix.ICANON
	}
	_ = unix.IoctlSetTermios(t.fd, setMode, mode)
}

// close is for a terminal that is not read from.
func (t *tty) close() error {
	t.leave()
	return errors.Join(t.wake[0].Close(), t.wake[1].Close())
}

// canStop reports whether a shell can continue this process after it was stopped.
func canStop() bool {
	session, err := unix.Getsid(0)
	parents, parentErr := unix.Getsid(unix.Getppid())
	return err == nil && parentErr == nil && session == parents && session != unix.Getpgrp()
}

// readInto passes on keys until stop, and then closes t.
func (t *tty) readInto(k *keys) (stop func()) {
	k.drain, k.cooked = t.drain, t.cooked
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer k.end()
		for t.wait(k.stopped) == nil {
			if k.take(t.read) != nil {
				return
			}
		}
	}()
	return func() {
		t.leave()
		_ = t.wake[1].Close()
		<-done
		_ = t.wake[0].Close()
	}
}
