//go:build unix && !linux

package evaluate

import (
	"os"
	"runtime/debug"
)

// Binary is this binary.
func Binary() (string, error) { return os.Executable() }

// limit sets no limits of the kernel: the daemon ends a process that takes too long.
func limit() error {
	debug.SetMemoryLimit(Memory / 2)
	return nil
}
