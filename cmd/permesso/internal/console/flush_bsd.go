//go:build unix && !linux

package console

import (
	"os"

	"golang.org/x/sys/unix"
)

// inputQueue is FREAD of <sys/fcntl.h>.
const inputQueue = 1

// flushInput drops what was typed at a terminal and not read yet, unfinished lines too.
func flushInput(in *os.File) error {
	return unix.IoctlSetPointerInt(int(in.Fd()), unix.TIOCFLUSH, inputQueue)
}
