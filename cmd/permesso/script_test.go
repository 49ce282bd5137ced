package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/hometest"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/receipt"
)

// TestScripts runs testdata/script with the real program. $PH is the home; $REQ and
// $RES are the folders of workspace default. Commands besides those of testscript:
//
//	exits CODE COMMAND …  runs a command and requires this exit code
//	newid NAME            sets a variable to a new request id
//	await FILE [TEXT]     waits until a file exists and contains TEXT
//	gone FILE             waits until a file is gone
//	field NAME PATH [FILE] sets a variable to a field of JSON (default: stdout)
//	save FILE             writes stdout to a file
//	expand FILE           expands variables in a file
//	approve CODE ID …     runs permesso approve with the digest of ID, or of no request
//	decide CODE JSON      runs permesso decide --stdin and requires this exit code
//	expired FILE          writes an expired receipt of this home
//	settled ID AGE        writes the files of a request that settled AGE ago: 100d, 3h
func TestScripts(t *testing.T) {
	t.Parallel()
	bin := scriptBin(t)
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("..", "..", "testdata", "script"),
		Setup: func(env *testscript.Env) error {
			dir := filepath.Join(env.WorkDir, "home")
			env.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			env.Setenv("HOME", filepath.Join(env.WorkDir, "user"))
			env.Vars = append(env.Vars, raceExitsFast)
			env.Setenv("PH", dir)
			env.Setenv("PERMESSO_HOME", dir)
			env.Setenv("PERMESSO_REQUESTS", filepath.Join(dir, "ipc/default/requests"))
			env.Setenv("PERMESSO_RESPONSES", filepath.Join(dir, "ipc/default/responses"))
			env.Setenv("REQ", filepath.Join(dir, "ipc/default/requests"))
			env.Setenv("RES", filepath.Join(dir, "ipc/default/responses"))
			env.Setenv("PENDING", filepath.Join(dir, "ipc/default/pending_approvals"))
			env.Setenv("UID", strconv.Itoa(os.Getuid()))
			env.Setenv("ME", home.Operator().Name)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exitsCmd, "newid": newIDCmd, "await": awaitCmd, "gone": goneCmd, "field": fieldCmd, "save": saveCmd,
			"expand": expandCmd, "approve": approveCmd, "decide": decideCmd, "expired": expiredCmd,
			"settled": settledCmd,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

func exitsCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND …")
	}
	code := 0
	err := ts.Exec(args[1], args[2:]...)
	var exited *osexec.ExitError
	if errors.As(err, &exited) {
		code = exited.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, not %s", code, args[0])
	}
}

func newIDCmd(ts *testscript.TestScript, _ bool, args []string) {
	var b [16]byte
	_, _ = rand.Read(b[:])
	ts.Setenv(args[0], hex.EncodeToString(b[:]))
}

func poll(ts *testscript.TestScript, what string, ready func() bool) {
	for end := time.Now().Add(testTimeout); !ready(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("timeout waiting for %s", what)
		}
	}
}

func awaitCmd(ts *testscript.TestScript, _ bool, args []string) {
	poll(ts, strings.Join(args, " "), func() bool {
		if _, err := os.Lstat(ts.MkAbs(args[0])); err != nil || len(args) < 2 {
			return err == nil
		}
		b, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && strings.Contains(string(b), args[1])
	})
}

func goneCmd(ts *testscript.TestScript, _ bool, args []string) {
	poll(ts, "removal of "+args[0], func() bool {
		_, err := os.Lstat(ts.MkAbs(args[0]))
		return errors.Is(err, os.ErrNotExist)
	})
}

// fieldCmd takes a path such as 0.request_id.
func fieldCmd(ts *testscript.TestScript, _ bool, args []string) {
	file := "stdout"
	if len(args) == 3 {
		file = args[2]
	}
	var v any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(file)), &v))
	for step := range strings.SplitSeq(args[1], ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[step]
		case []any:
			i, err := strconv.Atoi(step)
			ts.Check(err)
			if i >= len(in) {
				ts.Fatalf("no element %s", step)
			}
			v = in[i]
		}
	}
	if text, ok := v.(string); ok {
		ts.Setenv(args[0], text)
		return
	}
	b, err := json.Marshal(v)
	ts.Check(err)
	ts.Setenv(args[0], string(b))
}

func saveCmd(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(ts.ReadFile("stdout")), 0o600))
}

func expandCmd(ts *testscript.TestScript, _ bool, args []string) {
	text := os.Expand(ts.ReadFile(args[0]), ts.Getenv)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

func approveCmd(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: approve CODE ID …")
	}
	line := withSeen(ipc.Layout{Home: ts.Getenv("PH")}, append([]string{"approve"}, args[1:]...))
	exitsCmd(ts, neg, append([]string{args[0], "permesso"}, line...))
}

func decideCmd(ts *testscript.TestScript, neg bool, args []string) {
	exitsCmd(ts, neg, []string{args[0], "sh", "-c", `printf %s "$0" | permesso decide --stdin`, args[1]})
}

func expiredCmd(ts *testscript.TestScript, _ bool, args []string) {
	signer, err := receipt.LoadOrCreate(ipc.OS(), ipc.Layout{Home: ts.Getenv("PH")}.Keys(), "permesso")
	ts.Check(err)
	digest, issued := approval.Digest([]byte("{}")), time.Now().Add(-time.Hour).UTC()
	old, err := signer.Issue(approval.ReceiptFacts{
		Workspace: "default", RequestID: "00000000000000aa", RequestSHA256: digest, Tool: "free", ActionType: "custom:free",
		ArgsSHA256: digest, DecisionType: "auto_approved", Rule: "rule 1",
		Issued: issued, Expires: issued.Add(5 * time.Minute), Audience: "default",
	})
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(old), 0o600))
}

func settledCmd(ts *testscript.TestScript, _ bool, args []string) {
	age, err := console.ParseDuration(args[1])
	ts.Check(err)
	h := &home.Home{Layout: ipc.Layout{Home: ts.Getenv("PH")}, FS: ipc.OS()}
	h.Store = &ipc.Store{FS: h.FS, Layout: h.Layout}
	ts.Check(hometest.PlantSettled(h, approval.Key{Workspace: "default", ID: args[0]}, time.Now().Add(-age)))
}

// Every command has a script.
func TestEveryCommandHasAScript(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "testdata", "script", "*.txtar"))
	require.NoError(t, err)
	var all strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		all.Write(b)
	}
	a := &app{&console.Console{Env: func(string) string { return "" }}}
	for _, c := range a.root().Commands() {
		if c.Name() != "demo" && c.Runnable() {
			runs := strings.Contains(all.String(), "permesso "+c.Name())
			require.True(t, runs, "no script runs permesso %s", c.Name()) // the text is long
		}
	}
}
