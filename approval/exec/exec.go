// Package exec runs approved actions.
//
// Its only entry point is Runner.Run. Run first verifies the receipt for the
// workspace, the request, the tool and the exact bytes it will use. Without a
// valid receipt nothing runs.
//
// # Commands
//
// A handler's argv is an array and is never passed to a shell. The request's
// arguments are JSON on stdin, byte for byte. Elements of argv may also contain
// placeholders; see Check for the grammar and what it refuses.
//
// A command runs in its own session and process group, with umask 077, with no file
// descriptors but 0, 1 and 2, in the handler's folder or in a new empty one that is
// removed afterwards. Its environment holds the host variables that the handler
// lists, and
//
//	PATH                      unless listed: /usr/local/bin:/usr/bin:/bin
//	PERMESSO_REQUEST_ID       the request's id
//	PERMESSO_WORKSPACE        the workspace it came from
//	PERMESSO_IDEMPOTENCY_KEY  only for idempotent tools: the same on a re-run
//	PERMESSO_RUN              a random mark that identifies the run's processes
//
// The run ends when the command itself ends; remaining processes are killed then.
// If the exit status is 0 and stdout is one strict JSON object, that object is the
// result, verbatim. Any other output becomes {"output": "…"}, where each run of
// invalid UTF-8 becomes one U+FFFD. A non-zero status fails with the last 2 KiB of
// stderr.
//
// # Limits of commands
//
// Each run has limits, from the handler; a request never names them:
//
//	timeout        30 s
//	max_output     256 KiB of stdout
//	max_memory     2 GiB, of all its processes together
//	max_processes  1024 processes and threads at the same time
//	stderr         16 MiB, fixed
//
// A run that is over one of them is killed with all its processes and fails; the error
// names the limit. If the command succeeded before that, the run has succeeded, except
// with too much output.
//
// Where the daemon may make control groups (cgroup v2) with the controllers memory and
// pids, as systemd's Delegate= permits, each run has one of its own and the kernel keeps
// max_memory, without swap, and max_processes. The daemon and the supervisor move to the
// control group permesso-gate beside them, because one with processes cannot have
// children with controllers. Without controllers, each run still has its own control
// group and is killed as a whole. There, and without control groups, runs are counted
// every 20 ms: threads, and memory in RAM, where shared pages count once. Then
//
//   - a run can take more than max_memory for up to 20 ms, and longer on a busy host;
//     an MCP server, while no command runs and after its first 10 s, for up to 500 ms;
//   - swap, page cache and files on a tmpfs do not count;
//   - a process without control group whose run is not known (see below) counts for no
//     run. Together such processes are killed over the largest limits of the runs.
//   - for a daemon that is not root, RLIMIT_NPROC slows down a fork bomb.
//
// The limits protect the host from accidents and from what a request makes a program do.
// A program that is hostile itself and has the daemon's user can lift them, because the
// control groups are that user's; run such a program in a container.
//
// If the host is out of memory, the kernel kills a run before the daemon
// (oom_score_adj 500). Run folders are not limited, nor is what a command sends.
//
// # Requests
//
// A handler of kind http makes one HTTP request. The operator writes method,
// scheme, host, port and headers; the request's arguments may appear only
//
//	in the path    one {field} for each segment, percent-encoded; never empty,
//	               "." or "..", and without "/", "\" and control characters
//	in the query   one {field} for each value, percent-encoded
//	in the body    {field} for complete values of a JSON template, byte for
//	               byte; or body_args: request_data verbatim
//
// so that different arguments always give a different request, to the same host.
//
// It is sent at most once: HTTP/1.1, on a new connection, without a proxy, without
// retries. An idempotent tool sends the header Idempotency-Key, the same on a
// re-run. TLS is 1.2 or later, with the system's authorities or those of ca_file.
//
// Secret headers are read from files at each run: one line each of 8 bytes to
// 8 KiB, which only the owner may read. They are sent over https only, unless
// allow_private names the host. If a server echoes one, it is redacted, also
// percent-encoded, in base64, and in JSON with any escapes. Other forms (a hash,
// compressed data) are not recognized.
//
// The address of the connection must be public: no loopback, RFC 1918, CGNAT, ULA,
// link-local (cloud metadata), multicast, NAT64, 6to4, Teredo or documentation
// address in any notation, unless allow_private names it. If allow_private names a
// host, that host may have loopback, RFC 1918, CGNAT and ULA addresses.
//
// A redirect is followed for GET and HEAD, five times at most, and only to the
// same scheme, host and port, written in the same way. Any other redirect is a
// failure, unless status lists its code.
//
// The result is {"status":…,"body":…}, with "location" if the response has that
// header. A body declared as JSON that is strict JSON is kept verbatim; any other
// is a string, where each run of invalid UTF-8 becomes one U+FFFD. A body longer
// than max_output, or incomplete, is cut and "note" says so. Nothing is
// decompressed. Any other status fails with the first 2 KiB of the body; for 408
// and 5xx the error says that the server may have acted.
//
// Without a response, the error says "nothing was sent" if no connection (TLS
// included) was made. After that it says "outcome unknown", because the daemon
// cannot know how much the server received. If the daemon is killed, the
// connection ends and the outcome is unknown, too.
//
// # MCP servers
//
// A handler of kind mcp calls one tool of a server of the Model Context Protocol, which
// the host runs (argv) or reaches (url). The request's arguments are those of the call;
// only blanks between them may change. A command's server has the environment, the limits
// of memory and processes and the folder of a command, but no variable of a request;
// nothing of it is a template. It starts with the first call, serves all calls, also at the
// same time, and ends with the daemon, even if that is killed, or when its definition
// changes, after its last call. One that ended starts again with the next call, after 100 ms,
// and after each failure in a row twice as long, 30 s at most. A server at a URL is reached
// as by kind http: with its headers, at public addresses, without redirects; a secret header
// is read for every message.
//
// The result is {"content":…,"structuredContent":…} with the server's own bytes. More than
// max_output fails, and the error says that the tool has run. A result with isError fails
// with the first 2 KiB of its text, and a server that asks for input fails, because no one
// can give it. Secret headers, and variables
// whose names are those of credentials (GITHUB_TOKEN), are redacted as in kind http, in
// errors as well. Errors say "nothing was sent" and "outcome unknown" as for requests. After
// timeout the server is told to cancel the call.
//
// A server may answer with a task. Its handle is kept before the daemon waits, at the
// interval that the server names, 100 ms to 30 s. A daemon that stops leaves it. After that,
// and after a crash, Resume asks for it: a task
// that the server still knows is awaited, for timeout, and any other is interrupted. An
// idempotent tool sends its key as dev.permesso/idempotency-key in _meta.
//
// # No process outlives its run
//
// Before Run returns, the process group is dead, and all processes that the
// command started in other groups and sessions. If the daemon dies, even by
// SIGKILL, all of them die at once. One small process for each daemon, the
// supervisor, ensures this: it is the parent of every command and, as a subreaper,
// of every process that a command abandons. It is the same binary started again,
// so main must call SuperviseIfAsked first.
//
// Limits:
//
//   - Without control groups, a process that left its session, lost its parents and
//     cleared its environment has no mark. It is killed when all runs have ended that
//     were running when it was first seen; with one run at a time, that is before Run
//     returns. An MCP server is a run from its start to its end.
//   - Without control groups, a process that changed its user (sudo, a setuid program)
//     cannot be killed unless the daemon is root. Run does not wait for it and logs the
//     number of such processes.
//   - Work passed to another service (systemd-run, at, a container engine's
//     daemon) is not tracked.
//   - If the supervisor is killed, commands die with it, and the daemon kills the
//     other processes by control group or mark. If both are killed at once, only the
//     commands themselves are sure to die at once; the next supervisor in the same
//     control group kills the others, and so does a service manager.
//   - Systems other than Linux have no supervisor: the process group is killed at
//     the end of the run, but not when the daemon is killed, and neither memory nor
//     processes are limited.
package exec

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval"
)

// Defaults for what a handler leaves at zero.
const (
	defaultTimeout   = 30 * time.Second
	defaultMaxOutput = 256 << 10

	defaultMaxMemory    = 2 << 30
	defaultMaxProcesses = 1024
)

// How limits of runs are kept, see Supervisor.Limits.
const (
	LimitsKernel  = "kernel"  // by the kernel: no run is ever over them
	LimitsCounted = "counted" // runs are measured, and killed soon after they are over them
)

// verifier checks that receipt permits exactly this: the tool, for the
// arguments with this digest (lower-case hex), as asked in this request.
type verifier interface {
	Verify(receipt, workspace, requestID, tool, argsSHA256 string) error
}

// Runner runs approved jobs. The zero Runner refuses all of them, because it has no
// verifier. It is safe for concurrent use.
type Runner struct {
	Verifier verifier
	// Supervisor is the parent of all commands. Close ends it.
	Supervisor Supervisor
	// MCP connects to MCP servers; nil: their tools do not run.
	MCP MCPDialer
	// After is how it waits before it asks an MCP server for a task; nil: time.After.
	After func(time.Duration) <-chan time.Time
	// TempDir is where new working folders are made; "" is the system's. On a
	// tmpfs a run takes about 0.3 ms less than on a disk.
	TempDir string
	Log     zerolog.Logger

	servers mcpServers

	lifetimeOnce   sync.Once
	lifetimeCtx    context.Context //nolint:containedctx // it ends with the Runner, not with a call
	cancelLifetime context.CancelFunc
	leaving        context.Context //nolint:containedctx // it ends with Leave
	leave          context.CancelFunc
}

var errNoVerifier = errors.New("no verifier for receipts is configured")

// Run verifies the job's receipt and runs its tool's handler. When it returns, all
// processes of a command have ended and all connections of a request are closed; an MCP
// server goes on.
// Cancelling ctx ends the run.
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
	switch job.Tool.Handler.Kind {
	case approval.HandlerHTTP:
		return r.http(ctx, job)
	case approval.HandlerMCP:
		return r.mcp(ctx, job)
	}
	return r.command(ctx, job)
}

// Close ends the supervisor, all running commands and all MCP servers, and cancels running requests.
func (r *Runner) Close() error {
	r.lifetime()
	r.cancelLifetime()
	r.closeServers()
	return r.Supervisor.Close()
}

func (r *Runner) verify(job approval.Job) error {
	if r.Verifier == nil {
		return errNoVerifier
	}
	err := r.Verifier.Verify(job.Receipt, job.Workspace, job.RequestID, job.Tool.Name, approval.Digest(job.Args))
	if err != nil {
		return fmt.Errorf("verify receipt: %w", err)
	}
	if p := job.Program; p != nil {
		if err := r.Verifier.Verify(p.Receipt, job.Workspace, p.RequestID, "", p.SHA256); err != nil {
			return fmt.Errorf("verify receipt of the program: %w", err)
		}
	}
	return nil
}

// lifetime returns a context that ends when the Runner is closed.
func (r *Runner) lifetime() context.Context {
	r.lifetimeOnce.Do(func() {
		r.lifetimeCtx, r.cancelLifetime = context.WithCancel(context.Background())
		r.leaving, r.leave = context.WithCancel(context.Background())
	})
	return r.lifetimeCtx
}

// refused is the effect of a job that did not start.
func refused(err error) approval.Effect {
	return approval.Effect{Error: "Execution refused: " + err.Error(), Unstarted: true}
}

// unstarted is the effect of a job that failed before anything started or was sent.
func unstarted(format string, args ...any) approval.Effect {
	e := failed(format, args...)
	e.Unstarted = true
	return e
}

// failed is the effect of a job that failed.
func failed(format string, args ...any) approval.Effect {
	return approval.Effect{Error: "Execution failed: " + fmt.Sprintf(format, args...)}
}
