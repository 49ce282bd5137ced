package console

import (
	"os"

	"golang.org/x/sys/unix"
)

// flushInput drops what was typed at a terminal and not read yet, unfinished lines too.
func flushInput(in *os.File) error {
	return unix.IoctlSetInt(int(in.Fd()), unix.TCFLSH, unix.TCIFLUSH)
}
