//go:build unix

// Package procgroup ends a program together with all that it has started.
package procgroup

import (
	"os/exec"
	"syscall"
)

// Own gives a program, before its start, a process group of its own.
func Own(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// Terminate asks the group to end.
func Terminate(cmd *exec.Cmd) { signal(cmd, syscall.SIGTERM) }

// Kill ends the group, or what is left of it.
func Kill(cmd *exec.Cmd) { signal(cmd, syscall.SIGKILL) }

func signal(cmd *exec.Cmd, s syscall.Signal) {
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, s)
	}
}
