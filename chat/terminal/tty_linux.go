package terminal

import "golang.org/x/sys/unix"

// The requests that get and set a terminal's mode.
const (
	getMode = unix.TCGETS
	setMode = unix.TCSETS
)
