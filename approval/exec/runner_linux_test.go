package exec

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/facts"
)

func TestMain(m *testing.M) {
	SuperviseIfAsked()
	if len(os.Args) == 3 && os.Args[1] == "run-daemon" {
		runDaemon(os.Args[2])
		return
	}
	if len(os.Args) == 3 && os.Args[1] == "run-memfd" {
		runMemfd(os.Args[2])
		os.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[1] == "run-threads" {
		runThreads(os.Args[2])
	}
	goleak.VerifyTestMain(m)
}

// acceptAll verifies every receipt.
type acceptAll struct{}

func (acceptAll) Verify(_, _, _, _, _ string) error { return nil }

type refuseAll struct{}

func (refuseAll) Verify(_, _, _, _, _ string) error { return errors.New("not valid") }

func newRunner(t testing.TB) *Runner {
	r := &Runner{Verifier: acceptAll{}, TempDir: t.TempDir()}
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// script is a command that runs text; $1, $2 … are args.
func script(text string, args ...string) approval.Handler {
	text = strings.ReplaceAll(text, "{", "{{")
	return command(append([]string{"/bin/sh", "-c", text, "sh"}, args...)...)
}

func jobOf(h approval.Handler, args string) approval.Job {
	return approval.Job{
		Workspace: "personal", RequestID: "a7f3b2c1d4e5f6a7", Args: []byte(args), Receipt: "note",
		Tool: approval.Tool{Name: "tool", Handler: h, Args: anything(h, args)},
	}
}

// anything declares the arguments of a handler's templates, and those that are given, as
// JSON of any kind.
func anything(h approval.Handler, given string) map[string]approval.Argument {
	args := facts.Arguments(approval.Tool{Handler: h})
	fields, _ := codec.Fields(approval.Raw(given))
	for _, f := range fields {
		args[f.Name] = approval.Argument{}
	}
	for name := range args {
		args[name] = approval.Argument{Type: facts.TypeJSON}
	}
	return args
}

func run(t testing.TB, r *Runner, h approval.Handler, args string) approval.Effect {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	e := r.Run(ctx, jobOf(h, args))
	require.NoError(t, ctx.Err(), "the run took too long")
	require.Equal(t, e.Error == "", e.Result != nil, "a result or an error: %+v", e)
	return e
}

// output is the text that a successful run printed.
func output(t testing.TB, r *Runner, h approval.Handler, args string) string {
	t.Helper()
	e := run(t, r, h, args)
	require.Empty(t, e.Error)
	fields, err := codec.Fields(e.Result)
	require.NoError(t, err)
	require.Len(t, fields, 1)
	require.Equal(t, "output", fields[0].Name)
	text, ok := fields[0].Text()
	require.True(t, ok)
	return text
}

func TestNothingRunsWithoutReceipt(t *testing.T) {
	const argsSHA = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a" // of {}
	for name, tc := range map[string]struct {
		verifier verifier
		args     string
		want     string
	}{
		"no verifier denies":        {nil, `{}`, "Execution refused: no verifier for receipts is configured"},
		"a bad receipt":             {refuseAll{}, `{}`, "Execution refused: verify receipt: not valid"},
		"other bytes, same meaning": {acceptExactly{"note", "personal", "a7f3b2c1d4e5f6a7", "tool", argsSHA}, `{ }`, "Execution refused: verify receipt: differs"},
		"another tool":              {acceptExactly{"note", "personal", "a7f3b2c1d4e5f6a7", "rm", argsSHA}, `{}`, "Execution refused: verify receipt: differs"},
		"another workspace's":       {acceptExactly{"note", "work", "a7f3b2c1d4e5f6a7", "tool", argsSHA}, `{}`, "Execution refused: verify receipt: differs"},
		"another request's":         {acceptExactly{"note", "personal", "b7f3b2c1d4e5f6a7", "tool", argsSHA}, `{}`, "Execution refused: verify receipt: differs"},
		"exactly what was approved": {acceptExactly{"note", "personal", "a7f3b2c1d4e5f6a7", "tool", argsSHA}, `{}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRunner(t)
			r.Verifier = tc.verifier
			for _, h := range []approval.Handler{{}, script(`touch "$1"`, filepath.Join(t.TempDir(), "ran"))} {
				e := run(t, r, h, tc.args)
				require.Equal(t, tc.want, e.Error)
				if tc.want == "" {
					if h.Kind != "" {
						require.FileExists(t, h.Argv[4])
					}
					continue
				}
				if h.Kind != "" {
					require.NoFileExists(t, h.Argv[4])
				}
			}
		})
	}
}

// acceptExactly verifies one receipt for one request.
type acceptExactly [5]string

func (x acceptExactly) Verify(receipt, workspace, requestID, tool, argsSHA256 string) error {
	if x != (acceptExactly{receipt, workspace, requestID, tool, argsSHA256}) {
		return errors.New("differs")
	}
	return nil
}

func TestNoneHasNoEffect(t *testing.T) {
	r := newRunner(t)
	for _, kind := range []string{"", approval.HandlerNone} {
		e := run(t, r, approval.Handler{Kind: kind}, `{}`)
		require.Equal(t, approval.Effect{Result: approval.Raw(`{}`)}, e)
	}
}

func TestUnknownKindIsRefused(t *testing.T) {
	e := run(t, newRunner(t), approval.Handler{Kind: "shell"}, `{}`)
	require.Equal(t, approval.Effect{Error: `Execution refused: unknown handler kind "shell"`, Unstarted: true}, e)
}

func TestCancelledBeforeStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := newRunner(t).Run(ctx, jobOf(command("/bin/true"), `{}`))
	require.Equal(t, approval.Effect{Error: "Execution refused: context canceled", Unstarted: true}, e)
}

func TestNothingRunsAfterClose(t *testing.T) {
	r := newRunner(t)
	require.Equal(t, "hi\n", output(t, r, command("/bin/echo", "hi"), `{}`))
	require.NoError(t, r.Close())
	require.Equal(t, approval.Effect{Error: "Execution failed: the supervisor is closed", Unstarted: true}, run(t, r, command("/bin/true"), `{}`))
}

func BenchmarkTrue(b *testing.B) {
	r := newRunner(b)
	require.NoError(b, r.Supervisor.Start())
	job := jobOf(command("/bin/true"), `{"text":"Meeting at 5"}`)
	b.ResetTimer()
	for b.Loop() {
		if e := r.Run(b.Context(), job); e.Error != "" {
			b.Fatal(e.Error)
		}
	}
}

func BenchmarkTrueParallel(b *testing.B) {
	r := newRunner(b)
	require.NoError(b, r.Supervisor.Start())
	job := jobOf(command("/bin/true"), `{"text":"Meeting at 5"}`)
	b.SetParallelism(32 / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if e := r.Run(b.Context(), job); e.Error != "" {
				b.Error(e.Error)
			}
		}
	})
}

// What runs is what facts.Fill gave the card.
func TestWhatWasShownRuns(t *testing.T) {
	const args = `{"a":"x y\u0021","b":-1.50,"c":"é/../&"}`
	command := jobOf(script(`printf '%s\n' "$0" "$@"`, "{a}", "--b={b}", "<{c}|{a}>"), args)
	shown, why := facts.Fill(command.Tool, command.Args)
	require.Zero(t, why)
	var want strings.Builder
	for _, parts := range shown.Argv[3:] {
		want.WriteString(facts.Join(parts) + "\n")
	}
	require.Equal(t, want.String(), output(t, newRunner(t), command.Tool.Handler, args))

	srv, got := recorder(t, func(http.ResponseWriter, *http.Request) {})
	post := jobOf(request("POST", srv.URL+"/{b}?q={c}", func(h *approval.HTTP) { h.Body = `{"a":{a}}` }), args)
	shown, why = facts.Fill(post.Tool, post.Args)
	require.Zero(t, why)
	require.Empty(t, run(t, newRunner(t), post.Tool.Handler, args).Error)
	require.Equal(t, facts.Join(shown.URL), srv.URL+(*got)[0].uri)
	require.Equal(t, facts.Join(shown.Body), (*got)[0].body)
}

// receipts verifies these receipts.
type receipts []acceptExactly

func (all receipts) Verify(receipt, workspace, requestID, tool, argsSHA256 string) error {
	if !slices.Contains(all, acceptExactly{receipt, workspace, requestID, tool, argsSHA256}) {
		return errors.New("differs")
	}
	return nil
}

// TestStepNeedsTheReceiptOfItsProgram: a step runs with two receipts, its own and that of the program with its plan.
func TestStepNeedsTheReceiptOfItsProgram(t *testing.T) {
	job := jobOf(approval.Handler{}, `{}`)
	own := acceptExactly{job.Receipt, job.Workspace, job.RequestID, job.Tool.Name, approval.Digest(job.Args)}
	of := acceptExactly{"program", job.Workspace, "a7f3b2c1d4e5f6a7", "", "digest"}
	r := newRunner(t)
	r.Verifier = receipts{own, of}
	job.Program = &approval.ProgramReceipt{RequestID: "a7f3b2c1d4e5f6a7", Receipt: "program", SHA256: "digest"}
	require.Empty(t, r.Run(t.Context(), job).Error)
	for name, change := range map[string]func(p *approval.ProgramReceipt){
		"another receipt": func(p *approval.ProgramReceipt) { p.Receipt = "other" },
		"another program": func(p *approval.ProgramReceipt) { p.SHA256 = "other" },
		"another request": func(p *approval.ProgramReceipt) { p.RequestID = "b7f3b2c1d4e5f6a7" },
	} {
		other := *job.Program
		change(&other)
		wrong := job
		wrong.Program = &other
		require.Equal(t, "Execution refused: verify receipt of the program: differs", r.Run(t.Context(), wrong).Error, name)
	}
	r.Verifier = receipts{of}
	require.Contains(t, r.Run(t.Context(), job).Error, "verify receipt: differs")
}
