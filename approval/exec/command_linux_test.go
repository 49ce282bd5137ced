package exec

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
)

func TestCommandResults(t *testing.T) {
	deep := func(n int) string { return `{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}` }
	r := newRunner(t)
	for _, tc := range []struct{ why, text, result, err string }{
		{"an object is the result, verbatim", `printf '{ "n":9007199254740993,"e":1e400 }'`, `{ "n":9007199254740993,"e":1e400 }`, ""},
		{"blanks around it are removed", `printf '\n {"a":1}\r\n\n'`, `{"a":1}`, ""},
		{"text", `echo 'ciao "mondo"'`, `{"output":"ciao \"mondo\"\n"}`, ""},
		{"no output", `true`, `{"output":""}`, ""},
		{"an array is not an object", `echo '[1]'`, `{"output":"[1]\n"}`, ""},
		{"two objects are not one", `echo '{}{}'`, `{"output":"{}{}\n"}`, ""},
		{"duplicate names", `echo '{"a":1,"a":2}'`, `{"output":"{\"a\":1,\"a\":2}\n"}`, ""},
		{"incomplete JSON", `printf '{"a":'`, `{"output":"{\"a\":"}`, ""},
		{"maximum depth", `printf '` + deep(32) + `'`, deep(32), ""},
		{"over the maximum depth", `printf '` + deep(33) + `'`, `{"output":"` + strings.ReplaceAll(deep(33), `"`, `\"`) + `"}`, ""},
		{"invalid UTF-8 in an object", `printf '{"a":"\377"}'`, `{"output":"{\"a\":\"` + "\uFFFD" + `\"}"}`, ""},
		{"invalid UTF-8 in text", `printf 'a\377\376b'`, `{"output":"a` + "\uFFFD" + `b"}`, ""},
		{"stderr is not output", `echo oops >&2; echo fine`, `{"output":"fine\n"}`, ""},
		{"a failure with stderr", `echo '{"a":1}'; echo boom >&2; exit 3`, "", "Execution failed: exit status 3: boom"},
		{"a failure without stderr", `exit 255`, "", "Execution failed: exit status 255"},
		{"killed from outside", `kill -KILL $$`, "", "Execution failed: signal: killed"},
	} {
		t.Run(tc.why, func(t *testing.T) {
			e := run(t, r, script(tc.text), `{}`)
			require.Equal(t, tc.err, e.Error)
			require.Equal(t, tc.result, string(e.Result))
		})
	}
}

func TestErrorQuotesTailOfStderr(t *testing.T) {
	e := run(t, newRunner(t), script(`echo start >&2; i=0; while [ $i -lt 3000 ]; do printf 'é' >&2; i=$((i+1)); done; echo end >&2; exit 1`), `{}`)
	message, ok := strings.CutPrefix(e.Error, "Execution failed: exit status 1: ")
	require.True(t, ok)
	require.Regexp(t, `^é+end$`, message)
	require.InDelta(t, tailSize, len(message), 4)
}

func TestArgumentsOnStdinByteForByte(t *testing.T) {
	r := newRunner(t)
	for _, n := range []int{0, 10, 1 << 20} { // more than a pipe holds
		args := `{ "x":"` + strings.Repeat("é", n/2) + `" }`
		h := command("/bin/cat")
		h.MaxOutput = 2 << 20
		e := run(t, r, h, args)
		require.Empty(t, e.Error)
		require.Equal(t, sha256.Sum256([]byte(args)), sha256.Sum256(e.Result), "compare digests, because a diff of a megabyte is unreadable")
	}
}

func TestStdinMayBeIgnored(t *testing.T) {
	require.Equal(t, "hi\n", output(t, newRunner(t), command("/bin/echo", "hi"), `{"x":"`+strings.Repeat("x", 1<<20)+`"}`))
}

func TestStdinHoldsArgumentsWithTemplates(t *testing.T) {
	h := script(`printf '%s|' "$@"; cat`, "{a}", "--b={b}")
	require.Equal(t, `x y|--b=-1|{"a":"x y","b":-1}`, output(t, newRunner(t), h, `{"a":"x y","b":-1}`))
}

func TestTemplatesAreNotPassedToAShell(t *testing.T) {
	const nasty = "$(id) `id` ; rm -rf \"/\" '\n*"
	quoted, err := jsonQuote(nasty)
	require.NoError(t, err)
	h := command("/usr/bin/printf", "%s|", "{a}", "x{a}")
	require.Equal(t, nasty+"|x"+nasty+"|", output(t, newRunner(t), h, `{"a":`+quoted+`}`))
}

func TestRefusedArgumentsDoNotStartACommand(t *testing.T) {
	e := run(t, newRunner(t), command("/bin/echo", "{a}"), `{"a":"-n"}`)
	require.Equal(t, approval.Effect{Error: "Execution refused: argument_unfillable name=a value=\"\\\"-n\\\"\" why=fit_option", Unstarted: true}, e)
}

func TestEnvironmentIsOnlyListedVariables(t *testing.T) {
	t.Setenv("PERMESSO_TEST_LISTED", "yes")
	t.Setenv("PERMESSO_TEST_SECRET", "no")
	r := newRunner(t)
	environ := func(job approval.Job) map[string]string {
		e := r.Run(t.Context(), job)
		require.Empty(t, e.Error)
		fields, err := codec.Fields(e.Result)
		require.NoError(t, err)
		text, _ := fields[0].Text()
		vars := map[string]string{}
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			vars[name] = value
		}
		require.Regexp(t, `^[0-9a-f]{32}$`, vars[envMark])
		delete(vars, envMark)
		return vars
	}
	h := command("env")
	require.Equal(t, map[string]string{
		"PATH": "/usr/local/bin:/usr/bin:/bin", "PERMESSO_REQUEST_ID": "a7f3b2c1d4e5f6a7", "PERMESSO_WORKSPACE": "personal",
	}, environ(jobOf(h, `{}`)))

	h.Env = []string{"PERMESSO_TEST_LISTED", "PERMESSO_TEST_UNSET", "PATH"}
	job := jobOf(h, `{}`)
	job.Key = job.RequestID
	require.Equal(t, map[string]string{
		"PATH": os.Getenv("PATH"), "PERMESSO_REQUEST_ID": "a7f3b2c1d4e5f6a7", "PERMESSO_WORKSPACE": "personal",
		"PERMESSO_TEST_LISTED": "yes", "PERMESSO_IDEMPOTENCY_KEY": "a7f3b2c1d4e5f6a7",
	}, environ(job))
}

func TestNewFolderForEachRun(t *testing.T) {
	r := newRunner(t)
	dir := strings.TrimSpace(output(t, r, script(`pwd; stat -c %a . >&2; ls -A; touch x; mkdir -p locked/in; chmod 0 locked`), `{}`))
	require.Equal(t, r.TempDir, filepath.Dir(dir))
	require.NoDirExists(t, dir)
	again := strings.TrimSpace(output(t, r, script(`pwd`), `{}`))
	require.NotEqual(t, dir, again)
	left, err := os.ReadDir(r.TempDir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestConfiguredFolder(t *testing.T) {
	h := script(`pwd; umask; touch made`)
	h.Dir = t.TempDir()
	require.Equal(t, h.Dir+"\n0077\n", output(t, newRunner(t), h, `{}`))
	info, err := os.Stat(filepath.Join(h.Dir, "made"))
	require.NoError(t, err, "a configured folder is not removed")
	require.Equal(t, os.FileMode(0o600), info.Mode())
}

func TestStartFailureIsNotStarted(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), mode))
		require.NoError(t, os.Chmod(file, mode))
		return file
	}
	r := newRunner(t)
	with := func(h approval.Handler, change func(*approval.Handler)) approval.Handler { change(&h); return h }
	for why, tc := range map[string]struct {
		handler approval.Handler
		want    string
	}{
		"no such file":               {command("/no/such"), "Execution failed: /no/such: no such program"},
		"no such name":               {command("no-such-program"), "Execution failed: no-such-program: no such program in PATH"},
		"not executable":             {command(write("plain", "", 0o600)), "not executable"},
		"a folder":                   {command(dir), "not executable"},
		"no program format":          {command(write("text", "hello", 0o700)), "exec format error"},
		"no interpreter":             {command(write("script", "#!/no/such\n", 0o700)), "no such file"},
		"no working folder":          {with(command("/bin/true"), func(h *approval.Handler) { h.Dir = "/no/such" }), "working folder: stat /no/such"},
		"a file instead of a folder": {with(command("/bin/true"), func(h *approval.Handler) { h.Dir = "/bin/sh" }), "not a folder"},
		"more than one message":      {command("/bin/echo", strings.Repeat("x", maxMessage)), "let the program read its arguments from stdin"},
	} {
		t.Run(why, func(t *testing.T) {
			e := run(t, r, tc.handler, `{}`)
			require.Contains(t, e.Error, tc.want)
			require.True(t, e.Unstarted, "it read nothing")
		})
	}
	require.False(t, run(t, r, command("/bin/false"), `{}`).Unstarted, "it may have read")
	r.TempDir = "/no/such"
	e := run(t, r, command("/bin/true"), `{}`)
	require.Contains(t, e.Error, "make working folder")
}

func TestPathSkipsRelativeEntries(t *testing.T) {
	h := command("tool")
	h.Dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(h.Dir, "tool"), []byte("#!/bin/sh\n"), 0o700))
	h.Env = []string{"PATH"}
	t.Setenv("PATH", ".::bin")
	t.Chdir(h.Dir) // the daemon may have the same working folder
	require.Equal(t, "Execution failed: tool: no such program in PATH", run(t, newRunner(t), h, `{}`).Error)
}

func TestTimeout(t *testing.T) {
	h := script(`sleep 1000 & sleep 1000`)
	h.Timeout = 50 * time.Millisecond
	start := time.Now()
	e := run(t, newRunner(t), h, `{}`)
	require.Equal(t, approval.Effect{Error: "Execution failed: timed out after 50ms"}, e)
	require.Less(t, time.Since(start), 5*time.Second)
}

func TestCancel(t *testing.T) {
	pids := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	effect := make(chan approval.Effect, 1)
	r := newRunner(t)
	go func() { effect <- r.Run(ctx, jobOf(script(`sleep 1000 & echo $! >"$1/child"; wait`, pids), `{}`)) }()
	child := awaitPID(t, filepath.Join(pids, "child"))
	cancel()
	require.Equal(t, approval.Effect{Error: "Execution failed: cancelled"}, <-effect)
	require.False(t, alive(child))
}

func TestOutputCap(t *testing.T) {
	r := newRunner(t)
	h := script(`head -c 1000 /dev/zero | tr '\0' x`)
	h.MaxOutput = 1000
	require.Len(t, output(t, r, h, `{}`), 1000)

	h.MaxOutput = 999
	require.Equal(t, approval.Effect{Error: "Execution failed: output larger than 999 bytes (max_output)"}, run(t, r, h, `{}`))

	h = script(`yes`) // never ends by itself
	require.Equal(t, "Execution failed: output larger than 262144 bytes (max_output)", run(t, r, h, `{}`).Error)
}

func TestConcurrentRuns(t *testing.T) {
	r := newRunner(t)
	before := openFiles(t)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			args := fmt.Sprintf(`{"i":%d,"pad":"%s"}`, i, strings.Repeat("x", 1000*i))
			e := r.Run(t.Context(), jobOf(script(`sleep 0.05; echo "$1" >&2; cat; [ "$1" != 13 ]`, "{i}"), args))
			if i == 13 {
				require.Equal(t, "Execution failed: exit status 1: 13", e.Error)
				return
			}
			require.Empty(t, e.Error)
			require.Equal(t, args, string(e.Result))
		})
	}
	wg.Wait()
	require.LessOrEqual(t, openFiles(t), before+3, "the supervisor's socket may be new")
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}
