package sandbox

import (
	"os/exec"
	"syscall"
)

// EndWithParent makes the child end when we are killed. Its thread must outlive
// it: see onOneThread.
func EndWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
