//go:build unix

// Package evaluate is the process that evaluates one program, within limits: the binary itself, started with Arg. It
// imports little, so that the process begins before the many packages of the binary are initialized, which takes longer
// than most programs.
package evaluate

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/permesso-dev/permesso/approval/program"
)

// Arg as the only argument starts the binary as this process.
const Arg = "__permesso-evaluate"

// The limits of an evaluation.
const (
	Time   = 2 * time.Second // without the time of the calls
	Memory = 256 << 20       // resident, with the binary's own
	stack  = 64 << 20
)

func init() {
	if len(os.Args) != 2 || os.Args[1] != Arg {
		return
	}
	debug.SetMaxStack(stack)
	err := limit()
	if err == nil {
		err = program.Serve(os.Stdin, os.Stdout)
	}
	if err != nil && !errors.Is(err, io.EOF) { // the daemon is gone
		fmt.Fprintln(os.Stderr, "permesso: evaluate:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
