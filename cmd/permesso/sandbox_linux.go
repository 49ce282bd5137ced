package main

import (
	"os/exec"
	"syscall"
)

// endWithParent has the child end when we are killed and cannot see to it. Its
// thread must outlive it: onOneThread.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}
