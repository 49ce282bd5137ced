// Command permesso is an approval gate for AI agents: it stands on the host
// between what a sandboxed agent wishes and what is done.
//
// # Exit codes
//
//	0  done; the request was approved and ran, or was answered
//	1  an error of the system: files, configuration, permissions
//	2  the command line cannot be understood
//	3  the request ended without running: denied, expired, cancelled, malformed …
//	4  it was started, and failed or was interrupted
//	5  still waiting when --timeout was over
//	6  the decision was refused: not yours, unknown, already decided, too late
//	7  another permesso serves this home
//	8  doctor found something to be warned of
//	9  doctor found an error
//
// # Log
//
// serve logs to standard error: lines for people on a terminal, otherwise JSON,
// one object a line. These are the keys, the first three in every line:
//
//	level time message ws id tool status by via err
//	home workspaces keys runs path failures per_second left
//
// No argument and no prose of an agent ever stands there.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval/exec"
)

// version is set by the linker.
var version = "dev"

func main() {
	exec.SuperviseIfAsked()
	zerolog.ErrorFieldName = "err" // before anybody logs
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := Main{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Getenv}.Run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
