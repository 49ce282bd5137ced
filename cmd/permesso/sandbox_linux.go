package main

import (
	"os/exec"
	"syscall"
)

// endWithParent makes the child end when we are killed. Its thread must outlive
// it: see onOneThread.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
