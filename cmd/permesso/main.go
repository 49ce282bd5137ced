// Command permesso is an approval gate for AI agents: it runs an agent's
// request only after a rule or a person has approved it.
//
// # Exit codes
//
//	0  done; the request was approved and ran, or was answered
//	1  system error: files, configuration, permissions
//	2  invalid command line
//	3  the request ended without running: denied, expired, cancelled, malformed …
//	4  the request was started, and failed or was interrupted; cancel: it was started before
//	5  --timeout expired; the request is still pending, or no gate has answered
//	6  the decision was refused: not authorized, unknown, already decided, too late;
//	   or a receipt, proof or log does not verify
//	7  another daemon serves this home
//	8  doctor found warnings
//	9  doctor found errors; hook check: the hook is not proven
//
// # Log
//
// serve logs to standard error: text on a terminal, otherwise JSON, one object a
// line; log_format overrides that. These are the keys, the first three in every line:
//
//	level time message ws id tool status by via err
//	home workspaces unfinished runs path failures per_second left file sha256
//
// Apart from the request's id, the log holds no arguments, text or names from
// an agent. Deceptive characters are written as \u escapes.
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
	zerolog.ErrorFieldName = "err" // before the first log line
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := Main{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Getenv}.Run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
