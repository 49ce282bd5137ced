//go:build !unix

package procgroup

import "os/exec"

// Own does nothing: there are no groups.
func Own(*exec.Cmd) {}

// Terminate does nothing.
func Terminate(*exec.Cmd) {}

// Kill ends the program alone.
func Kill(cmd *exec.Cmd) {
	if cmd.Process != nil {
		_ = cmd.Process.Kill()
	}
}
