//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package terminal

import "golang.org/x/sys/unix"

// The requests that get and set a terminal's mode.
const (
	getMode = unix.TIOCGETA
	setMode = unix.TIOCSETA
)
