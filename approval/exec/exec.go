// Package exec runs what was approved, and nothing else.
//
// Its only entrance is Runner.Run, and Run begins by verifying the receipt for
// the workspace, the request, the tool and the very bytes it is about to use.
// What does not verify does not run.
//
// # Commands
//
// A handler's argv is an array and never meets a shell of ours. The request's
// arguments arrive as JSON on stdin, byte for byte. Elements of argv may also
// take them by template; see Check for the grammar and what it refuses.
//
// A command runs in its own session and process group, with umask 077, with
// no file descriptors but 0, 1 and 2, in the handler's folder or in a fresh
// empty one that is removed afterwards. Its environment holds the host
// variables that the handler lists, and
//
//	PATH                      unless listed: /usr/local/bin:/usr/bin:/bin
//	PERMESSO_REQUEST_ID       the request's id
//	PERMESSO_WORKSPACE        the workspace it came from
//	PERMESSO_IDEMPOTENCY_KEY  only for idempotent tools: the same on a re-run
//	PERMESSO_RUN              a random mark, by which we find what it leaves behind
//
// The run is over when the command itself ends; what it left running is killed
// then. Exit status 0 with a single strict JSON object on stdout gives that
// object, verbatim, as the result. Any other output becomes {"output": "…"},
// where each stretch of invalid UTF-8 is one U+FFFD. A non-zero status fails
// with the last 2 KiB of stderr.
//
// # Requests
//
// A handler of kind http makes one HTTP request. The operator writes method,
// scheme, host, port and headers; the request's arguments may stand only
//
//	in the path    one {field} for each segment, percent-encoded; never empty,
//	               "." or "..", and without "/", "\" and control characters
//	in the query   one {field} for each value, percent-encoded
//	in the body    {field} for whole values of a JSON template, as the very
//	               bytes that came; or body_args: request_data as it is
//
// so that other arguments always are another request, to the same host.
//
// It is sent at most once: HTTP/1.1, on a connection of its own, without a
// proxy, never repeated by us. An idempotent tool sends the header
// Idempotency-Key, the same on a re-run. TLS is 1.2 or later, with the system's
// authorities or those of ca_file.
//
// Secret headers are read from files at each run: one line each of 8 bytes to
// 8 KiB, which only the owner may read. They go over https only, unless
// allow_private names the host. Where a server echoes one it is redacted, also
// percent-encoded, in base64, and in JSON however escaped; what a server makes
// of it otherwise (a hash, a compressed form) we do not recognise.
//
// The address that is about to be connected to must be public: no loopback, RFC
// 1918, CGNAT, ULA, link-local (cloud metadata), multicast, NAT64, 6to4, Teredo
// or documentation address, in no notation, unless allow_private names it. A
// host name there allows that host loopback, RFC 1918, CGNAT and ULA addresses.
//
// A redirect is followed for GET and HEAD, five times at most, and only to the
// same scheme, host and port, written in the same way. Any other is an answer
// like others: a failure, unless status lists its code.
//
// The result is {"status":…,"body":…}, with "location" if the answer has that
// header. A body that says it is JSON, and strictly is, is kept verbatim; any
// other is a string, where each stretch of invalid UTF-8 is one U+FFFD. A body
// longer than max_output, or broken off, is cut and "note" says so: the status
// is known by then. Nothing is ever decompressed. Any other status fails with
// the first 2 KiB of the body; 408 and 5xx say that the server may have acted
// all the same.
//
// Without an answer, an error says "nothing was sent" when there was no
// connection, TLS included; after that "outcome unknown", because nobody on
// this side can know how far the request came. When the daemon is killed, the
// connection is gone with it and the outcome is unknown too.
//
// # Nothing outlives its run
//
// Before Run returns, the process group is dead, and so is everything the
// command started in groups and sessions of its own. When the daemon dies, be
// it by SIGKILL, all of that dies at once. One small process for each daemon,
// the supervisor, sees to it: it is the parent of every command and, as a
// subreaper, the parent of every process that a command abandons. It is the
// same binary started again, so main must call SuperviseIfAsked first.
//
// The limits, honestly:
//
//   - A process that left its session, lost its parents and wiped its
//     environment can no longer be told apart by its mark. It is killed as
//     soon as every run is over that was under way when we first saw it; with
//     one run at a time, that is before Run returns.
//   - A process that changed its user (sudo, a setuid program) cannot be
//     killed by us unless the daemon is root. Run does not wait for it and
//     logs how many were left.
//   - Work handed to another service (systemd-run, at, a container engine's
//     daemon) is that service's.
//   - If the supervisor is killed, commands die with it at once, and the daemon
//     hunts the rest by mark. If both are killed in the same instant, only the
//     commands themselves are sure to die; a service manager that kills the
//     whole control group closes that gap.
//   - Systems other than Linux have no supervisor: there the process group is
//     killed at the end of the run, and nothing is when the daemon is killed.
package exec

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval"
)

// Defaults for what a handler leaves at zero.
const (
	DefaultTimeout   = 30 * time.Second
	DefaultMaxOutput = 256 << 10
)

// Verifier checks that receipt permits exactly this: the tool, for the
// arguments with this digest (lower-case hex), as asked in this request.
type Verifier interface {
	Verify(receipt, workspace, requestID, tool, argsSHA256 string) error
}

// Runner carries out approved jobs. The zero Runner refuses all of them,
// because it has no Verifier. It is safe for concurrent use.
type Runner struct {
	Verifier Verifier
	// Supervisor is the parent of all commands. When nil, the Runner makes its
	// own on first use, and Close ends that one.
	Supervisor *Supervisor
	// TempDir is where fresh working folders are made; "" is the system's. On a
	// tmpfs a run costs some 0.3 ms less than on a disk.
	TempDir string
	Log     zerolog.Logger

	once sync.Once
	own  *Supervisor

	born  sync.Once
	alive context.Context //nolint:containedctx // it ends with the Runner, not with a call
	end   context.CancelFunc
}

var errNoVerifier = errors.New("there is no verifier for receipts")

// Run verifies the job's receipt and does what its tool's handler says. It
// returns when nothing of the command is left running, and every connection of
// a request is closed. Cancelling ctx ends it.
func (r *Runner) Run(ctx context.Context, job approval.Job) approval.Effect {
	if err := r.verify(job); err != nil {
		return refused(err)
	}
	if err := Check(job.Tool.Handler); err != nil {
		return refused(err)
	}
	if !job.Tool.Runs() {
		return approval.Effect{Result: approval.Raw(`{}`)}
	}
	if err := ctx.Err(); err != nil {
		return refused(err)
	}
	if job.Tool.Handler.Kind == approval.HandlerHTTP {
		return r.http(ctx, job)
	}
	return r.command(ctx, job)
}

// Close ends the supervisor that the Runner made for itself, and with it
// whatever is still running. Requests under way are broken off.
func (r *Runner) Close() error {
	r.lifetime()
	r.end()
	if s := r.Supervisor; s != nil {
		return nil // its owner's to close
	}
	return r.supervisor().Close()
}

func (r *Runner) verify(job approval.Job) error {
	if r.Verifier == nil {
		return errNoVerifier
	}
	sum := sha256.Sum256(job.Args)
	err := r.Verifier.Verify(job.Receipt, job.Workspace, job.RequestID, job.Tool.Name, hex.EncodeToString(sum[:]))
	if err != nil {
		return fmt.Errorf("verify receipt: %w", err)
	}
	return nil
}

func (r *Runner) supervisor() *Supervisor {
	if r.Supervisor != nil {
		return r.Supervisor
	}
	r.once.Do(func() { r.own = &Supervisor{Log: r.Log} })
	return r.own
}

// lifetime is over when the Runner is closed.
func (r *Runner) lifetime() context.Context {
	r.born.Do(func() { r.alive, r.end = context.WithCancel(context.Background()) })
	return r.alive
}

// refused is the effect of what never began.
func refused(err error) approval.Effect {
	return approval.Effect{Error: "Execution refused: " + err.Error()}
}

// failed is the effect of what was to begin, and may have.
func failed(started bool, format string, args ...any) approval.Effect {
	return approval.Effect{Error: "Execution failed: " + fmt.Sprintf(format, args...), Started: started}
}
