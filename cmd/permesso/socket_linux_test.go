package main

import (
	"encoding/json"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc"
)

// withoutLog removes the parts from the audit log, which only users with access to
// the home see.
func withoutLog(out string) string {
	out, _, _ = strings.Cut(out, "timeline:\n")
	return regexp.MustCompile(` · log [0-9]+ [0-9a-f]{4}|,"timeline":\[.*\]`).ReplaceAllString(out, "")
}

// strangerLine is all that a user hears who is no approver.
const strangerLine = `^permesso: nothing here for you: UID \d+ is no approver there: the operator can add it under \[approvers\], and the name to approvers in \[workspaces\.NAME\]\n$`

func TestSocketSameAsFiles(t *testing.T) {
	v := newMultiUserRig(t)
	v.configure(strings.Replace(fmt.Sprintf(multiUserConfig, v.socket, v.ann), `language = "it"`, "", 1))
	v.startServing()
	id := v.submitAndAwait("annes")
	byFile := func(args ...string) string {
		code, out, errs := v.run("", args...)
		require.Zero(t, code, errs)
		return out
	}
	t.Setenv("TZ", "UTC")
	for _, args := range [][]string{
		{"pending", "--workspace", "annes"},
		{"pending", "--workspace", "annes", "--json"},
		{"show", id},
		{"show", id[:6], "--json"},
		{"show", "annes/" + id},
	} {
		code, out, errs := v.runAs(v.ann, args...)
		require.Zero(t, code, errs)
		require.Equal(t, withoutLog(byFile(args...)), withoutLog(out), "%v", args)
	}

	code, out, errs := v.runAs(v.ann, "approve", id[:8], "--note", "quickly")
	require.Zero(t, code, errs)
	require.Contains(t, out, "Approved: say")
	require.NotContains(t, out, "not running")
	v.awaitFile(filepath.Join(v.layout.Responses("annes"), id+".json"))
	_, shown, _ := v.runAs(v.ann, "show", id)
	full := byFile("show", id)
	for _, line := range strings.Split(strings.TrimSpace(shown), "\n") {
		require.Contains(t, full, line, "the socket shows a subset")
	}
	require.Contains(t, shown, "decision: approved by ann via socket")

	// Another program decides with decide --stdin.
	other := v.submitAndAwait("annes")
	cmd := v.commandAs(v.ann, []string{"PERMESSO_SOCKET=" + v.socket}, "decide", "--stdin")
	cmd.Stdin = strings.NewReader(`{"request_id":"` + other + `","workspace":"annes","verdict":"overridden","override":"say less"}`)
	b, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", b)
	require.Contains(t, string(b), "Overridden: say")

	for _, row := range []struct {
		why, says string
		code      int
		args      []string
	}{
		{"decided", "already decided: approved by ann", console.ExitRefused, []string{"deny", id}},
		{"unknown", "no such request", console.ExitRefused, []string{"approve", "ffffffff"}},
		{"too few digits", "at least 4 digits", console.ExitUsage, []string{"approve", "fff"}},
		{"a request without a session", "names no session", console.ExitRefused, []string{"approve", v.submitAndAwait("annes"), "--session"}},
	} {
		code, _, errs := v.runAs(v.ann, row.args...)
		require.Equal(t, row.code, code, errs)
		require.Contains(t, errs, row.says, row.why)
		_, _, byFiles := v.run("", row.args...)
		require.Equal(t, byFiles, errs, row.why)
	}
	code, out, errs = v.runAs(v.ann, "status", "--json")
	require.Zero(t, code, errs)
	require.Contains(t, out, `"running":true`)
	require.Contains(t, out, `"annes"`)
	require.NotContains(t, out, `"bobs"`, "no other approver's workspaces")
	require.NotContains(t, out, `"operators"`)
}

// An edit of run_before counts from the next approval over the socket.
func TestSocketObeysLiveRunBefore(t *testing.T) {
	t.Parallel()
	v := newMultiUserRig(t)
	text := fmt.Sprintf(multiUserConfig, v.socket, v.ann)
	v.configure(`run_before = "10m"` + text)
	d := v.startServing()
	for _, want := range []time.Duration{10 * time.Minute, time.Minute} {
		if want == time.Minute {
			v.configure(`run_before = "1m"` + text)
			d.awaitTimes(logReloaded, 1)
		}
		code, out, errs := v.runAs(v.ann, "approve", v.submitAndAwait("annes"), "--json")
		require.Zero(t, code, errs)
		var made approval.Decision
		require.NoError(t, json.Unmarshal([]byte(out), &made))
		require.Equal(t, want, made.RunBefore.Sub(made.DecidedAt))
	}
}

func TestSocketUsesTheApproversLanguage(t *testing.T) {
	t.Parallel()
	v := newMultiUserRig(t)
	v.startServing()
	code, out, errs := v.runAs(v.ann, "show", v.submitAndAwait("annes"))
	require.Zero(t, code, errs)
	require.Contains(t, out, "🔐 Posso? (say)")
}

func TestSocketUsers(t *testing.T) {
	t.Parallel()
	v := newMultiUserRig(t)
	d := v.startServing()
	annes, bobs, operators := v.submitAndAwait("annes"), v.submitAndAwait("bobs"), v.submitAndAwait("operators")

	_, out, _ := v.runAs(v.ann, "pending", "--json")
	require.Contains(t, out, annes)
	require.NotContains(t, out, bobs)
	require.NotContains(t, out, operators, "ann is an approver, not the operator")
	for _, id := range []string{bobs, operators} {
		for _, args := range [][]string{{"show", id}, {"approve", id}, {"deny", id}} {
			code, out, errs := v.runAs(v.ann, args...)
			require.Equal(t, console.ExitRefused, code)
			require.Empty(t, out)
			require.Equal(t, fmt.Sprintf("permesso: %s: no such request\nhint: permesso pending lists the pending requests\n", id), errs,
				"the same error as for an unknown request")
		}
	}

	v.logNeedsRoot()
	if v.root {
		for who, uid := range map[string]int{"another user": uidStranger, "an agent": uidAgent, "the daemon's user": uidGate} {
			for _, args := range [][]string{{"pending"}, {"show", annes}, {"approve", annes}, {"deny", annes, "no"}, {"status"}} {
				code, out, errs := v.runAs(uid, args...)
				require.Equal(t, console.ExitRefused, code, "%s %v: %s", who, args, errs)
				require.Empty(t, out)
				require.Regexp(t, strangerLine, errs, "%s %v", who, args)
			}
		}
		code, out, errs := v.runAs(uidBob, "approve", bobs)
		require.Zero(t, code, errs)
		require.Contains(t, out, "Approved")
	}
	code, _, errs := v.runAs(v.ann, "approve", annes)
	require.Zero(t, code, errs)
	d.stop()
	log := v.readAudit()
	if v.root {
		for _, uid := range []int{uidStranger, uidAgent, uidGate} {
			require.Regexp(t, `"event":"refused_decider".*"by":"local:`+strconv.Itoa(uid)+`".*"via":"socket"`, log)
		}
	}
	require.NotContains(t, log, `"by":"operator:`)
}

// The UID that runs the test is refused for each reason in the
// configuration.
func TestSocketRefusedByConfiguration(t *testing.T) {
	t.Parallel()
	me := os.Getuid()
	for _, row := range []struct{ why, people string }{
		{"no approver defined", "[workspaces.w]\n"},
		{"an approver of no workspace", fmt.Sprintf("[approvers.me]\nlocal = %d\n[workspaces.w]\n", me)},
		{"an approver, but not the principal", fmt.Sprintf("[approvers.me]\nlocal = %d\n[approvers.her]\nlocal = 4\n[workspaces.w]\napprovers = [\"me\", \"her\"]\nprincipal = \"her\"\n", me)},
		{"no local decisions", fmt.Sprintf("[approvers.me]\nlocal = %d\n[workspaces.w]\napprovers = [\"me\"]\nlocal_decisions = false\n", me)},
	} {
		t.Run(row.why, func(t *testing.T) {
			v := newMultiUserRig(t)
			v.configure(fmt.Sprintf("socket = %q\n", v.socket) + row.people)
			v.startServing()
			code, out, errs := v.runAs(me, "pending")
			require.Equal(t, console.ExitRefused, code)
			require.Empty(t, out)
			require.Regexp(t, strangerLine, errs)
		})
	}
}

// Six commands decide at once, half through the socket and half through the files.
func TestSocketFirstAnswerWins(t *testing.T) {
	t.Parallel()
	v := newMultiUserRig(t)
	v.startServing()
	for range 5 {
		id := v.submitAndAwait("annes")
		var mu sync.Mutex
		var wg sync.WaitGroup
		won := map[string]int{}
		for i := range 6 {
			wg.Go(func() {
				verb := []string{"approve", "deny"}[i%2]
				code, errs := 0, ""
				if i < 3 {
					code, _, errs = v.runAs(v.ann, verb, id)
				} else {
					cmd := v.command(verb, id)
					b, _ := cmd.CombinedOutput()
					code, errs = cmd.ProcessState.ExitCode(), string(b)
				}
				mu.Lock()
				defer mu.Unlock()
				if code == 0 {
					won[verb]++
					return
				}
				if code != console.ExitRefused || !strings.Contains(errs, "already decided") && !strings.Contains(errs, "too late") {
					t.Errorf("exit code %d: %s", code, errs)
				}
			})
		}
		wg.Wait()
		require.Equal(t, 1, won["approve"]+won["deny"], "%v", won)
		v.awaitFile(filepath.Join(v.layout.Responses("annes"), id+".json"))
		b, err := os.ReadFile(filepath.Join(v.layout.Responses("annes"), id+".json"))
		require.NoError(t, err)
		r, err := approval.ParseResponse(b)
		require.NoError(t, err)
		require.Equal(t, map[approval.Status]string{approval.StatusApproved: "approve", approval.StatusDenied: "deny"}[r.Status], onlyKey(won))
	}
}

func onlyKey(m map[string]int) string {
	for k := range m {
		return k
	}
	return ""
}

// A malformed or incomplete request gets an error, and later requests work.
func TestSocketMalformedRequests(t *testing.T) {
	t.Parallel()
	v := newMultiUserRig(t)
	v.startServing()
	id := v.submitAndAwait("annes")
	send := v.rawSender()
	post := func(path, body string) string {
		return fmt.Sprintf("POST /v1/local/%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	}
	decide := func(body string) string { return post("requests/annes/"+id+"/decision", body) }
	for _, row := range []struct{ why, sent, says string }{
		{"garbage", "\x00\xff\x01garbage\n", "400 Bad Request"},
		{"an unknown key", decide(`{"verdict":"approved","root":true}`), "422 Unprocessable Entity"},
		{"a doubled key", decide(`{"verdict":"denied","verdict":"approved"}`), "duplicate key"},
		{"too deeply nested", decide(strings.Repeat("[", 5000)), "HTTP/1.1 4"},
		{"an unknown operation", post("shutdown", "{}"), "unknown path"},
		{"no operation", post("", "{}"), "unknown path"},
		{"a workspace with a path", post("requests/..%2fannes/"+id+"/decision", `{"verdict":"approved"}`), "nothing here for you"},
		{"an id with a path", post("requests/annes/..%2f..%2fkeys%2fmac/decision", `{"verdict":"approved"}`), "nothing here for you"},
		{"no verdict", decide(`{}`), "not possible here"},
		{"a forged author", decide(`{"verdict":"approved","by":"bob"}`), "422 Unprocessable Entity"},
		{"a request", "POST /v1/approvals HTTP/1.1\r\nHost: x\r\nConnection: close\r\nPermesso-Workspace: annes\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", "only the operator"},
		{"a cancellation", "DELETE /v1/local/requests/annes/" + id + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "nothing here for you"},
		{"too long", decide(`{"note":"` + strings.Repeat("x", 1<<20) + `"}`), "too large"},
		{"a long header", "GET /" + strings.Repeat("x", 1<<20) + " HTTP/1.1\r\n\r\n", "431"},
		{"half a request", "GET /v1/local/status HTTP/1.1\r\nHost: x", ""},
	} {
		require.Contains(t, send(row.sent), row.says, row.why)
	}
	_, err := os.Stat(filepath.Join(v.layout.Decisions("annes"), id+".json"))
	require.ErrorIs(t, err, os.ErrNotExist, "nothing was decided")

	code, _, errs := v.runAs(v.ann, "approve", id)
	require.Zero(t, code, errs)
}

// A user who opens as many connections as possible does not block other users.
func TestSocketConnectionLimit(t *testing.T) {
	t.Parallel()
	v := newMultiUserRig(t)
	v.startServing()
	if !v.root {
		v.logNeedsRoot()
		return
	}
	bobs := v.submitAndAwait("bobs")
	for _, uid := range []int{v.ann, uidStranger} {
		cmd := v.selfCommand(uid, "hold")
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		b := make([]byte, 64)
		n, err := out.Read(b)
		require.NoError(t, err)
		require.Contains(t, string(b[:n]), "holding 12")
		code, shown, errs := v.runAs(uidBob, "show", bobs)
		require.Zero(t, code, errs)
		require.Contains(t, shown, bobs[:8])
		if uid == v.ann {
			code, _, errs = v.runAs(v.ann, "pending")
			require.Equal(t, console.ExitError, code)
			require.Contains(t, errs, "too many connections")
		}
		require.NoError(t, in.Close())
		require.NoError(t, cmd.Wait())
	}
	code, _, errs := v.runAs(uidBob, "approve", bobs)
	require.Zero(t, code, errs)
}

func TestSocketRestart(t *testing.T) {
	t.Parallel()
	v := newMultiUserRig(t)
	first := v.startServing()
	id := v.submitAndAwait("annes")
	first.kill()
	info, err := os.Lstat(v.socket)
	require.NoError(t, err, "a killed daemon leaves its socket")
	require.NotZero(t, info.Mode()&os.ModeSocket)
	code, _, errs := v.runAs(v.ann, "pending")
	require.Equal(t, console.ExitError, code)
	require.Regexp(t, `^permesso: no daemon listens on .*\nhint: start the daemon`, errs)

	second := v.startServing()
	info, err = os.Lstat(v.socket)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o666), info.Mode().Perm())
	code, _, errs = v.runAs(v.ann, "approve", id)
	require.Zero(t, code, errs)

	// A daemon of another home with the same socket exits with an error.
	other := *v
	other.rig = &rig{t: t, dir: v.dir, config: v.config, layout: ipc.Layout{Home: filepath.Join(v.dir, "var", "other")}}
	third := other.start()
	require.Error(t, third.awaitExit())
	require.Equal(t, console.ExitLocked, third.cmd.ProcessState.ExitCode())
	require.Contains(t, third.logged(), "another daemon listens on")
	code, _, errs = v.runAs(v.ann, "status")
	require.Zero(t, code, errs)

	second.stop()
	_, err = os.Lstat(v.socket)
	require.ErrorIs(t, err, os.ErrNotExist, "a daemon that stops removes its socket")
}

func TestSocketFileInTheWay(t *testing.T) {
	t.Parallel()
	v := newMultiUserRig(t)
	require.NoError(t, os.WriteFile(v.socket, []byte("mine"), 0o644))
	d := v.start()
	require.Error(t, d.awaitExit())
	require.Contains(t, d.logged(), "exists and is not a socket")
	b, err := os.ReadFile(v.socket)
	require.NoError(t, err)
	require.Equal(t, "mine", string(b))

	require.NoError(t, os.Remove(v.socket))
	require.NoError(t, os.Chmod(filepath.Dir(v.socket), 0o777))
	d = v.start()
	require.Error(t, d.awaitExit())
	require.Contains(t, d.logged(), "other users may write to")
}

// The daemon's user cannot be an approver: every tool runs as that user.
func TestSocketGateCannotApprove(t *testing.T) {
	v := newMultiUserRig(t)
	if !v.root {
		v.logNeedsRoot()
		return
	}
	v.configure(fmt.Sprintf("socket = %q\n[approvers.x]\nlocal = %d\n[workspaces.w]\napprovers = [\"x\"]\n", v.socket, uidGate))
	d := v.start()
	require.Error(t, d.awaitExit())
	require.Contains(t, d.logged(), "local is the UID of the daemon and all tools, which cannot be an approver")
}

func TestSocketIsUsedWithoutFileAccess(t *testing.T) {
	t.Parallel()
	v := newMultiUserRig(t)
	v.startServing()
	id := v.submitAndAwait("annes")
	cmd := v.command("approve", id) // the home is readable
	cmd.Env = append(cmd.Env, "PERMESSO_SOCKET="+v.socket)
	b, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", b)
	v.awaitFile(filepath.Join(v.layout.Responses("annes"), id+".json"))
	_, out, _ := v.run("", "show", id)
	require.Contains(t, out, "via cli")

	code, _, errs := v.runAs(v.ann, "pending", "--home", filepath.Join(v.dir, "typo"))
	require.Equal(t, console.ExitError, code)
	require.Contains(t, errs, "no daemon for this user in", "a named home is not replaced by the socket")
	if v.root {
		code, _, errs = v.runAs(v.ann, "pending", "--home", v.layout.Home)
		require.Zero(t, code, errs, "a named home that is not readable")
	}
	cmd = v.commandAs(v.ann, []string{"PERMESSO_SOCKET=" + filepath.Join(v.dir, "none")}, "pending")
	b, err = cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(b), "no daemon listens on "+filepath.Join(v.dir, "none"), "a named socket is not replaced by a home")
}

// An agent in a sandbox of its user has the user's UID. If it can reach the socket,
// the daemon must not accept it as that user.
func TestSocketFromWithinASandbox(t *testing.T) {
	t.Parallel()
	v := newMultiUserRig(t)
	v.configure(strings.Replace(fmt.Sprintf(multiUserConfig, v.socket, v.ann), `language = "it"`, "", 1))
	d := v.startServing()
	require.NotContains(t, d.logged(), "are hidden (hidepid)")
	id := v.submitAndAwait("annes")
	for _, row := range []struct {
		why  string
		wrap []string
	}{
		{"a user namespace", []string{"unshare", "--user", "--map-root-user"}},
		{"a sandbox that shows the whole host", []string{"bwrap", "--bind", "/", "/", "--dev", "/dev", "--unshare-user", "--unshare-pid", "--die-with-parent"}},
	} {
		t.Run(row.why, func(t *testing.T) {
			for _, args := range [][]string{{"approve", id}, {"pending"}, {"show", id}} {
				cmd := v.commandAs(v.ann, []string{"PERMESSO_SOCKET=" + v.socket})
				path, err := osexec.LookPath(row.wrap[0])
				require.NoError(t, err)
				cmd.Path = path
				cmd.Args = append(append(row.wrap, v.bin), withSeen(v.layout, args)...)
				b, err := cmd.CombinedOutput()
				require.Error(t, err)
				require.Regexp(t, strangerLine, string(b))
			}
		})
	}
	code, _, errs := v.runAs(v.ann, "approve", id)
	require.Zero(t, code, errs)
}

// The daemon must be able to read what root writes in its home.
func TestRootActsAsTheOwnerOfTheHome(t *testing.T) {
	t.Parallel()
	v := newMultiUserRig(t)
	d := v.startServing()
	if !v.root {
		v.logNeedsRoot()
		return
	}
	code, out, errs := v.run("", "workspace", "add", "fresh", "--approver", "ann")
	require.Zero(t, code, errs)
	require.Contains(t, out, "added")
	for _, dir := range []string{v.layout.Workspace("fresh"), v.layout.Pendings("fresh"), v.layout.Records("fresh")} {
		info, err := os.Stat(dir)
		require.NoError(t, err)
		require.Equal(t, uint32(uidGate), info.Sys().(*syscall.Stat_t).Uid, dir)
	}
	info, err := os.Stat(v.config)
	require.NoError(t, err)
	require.Zero(t, info.Sys().(*syscall.Stat_t).Uid, "the configuration stays root's")
	id := v.submitAndAwait("operators")
	code, _, errs = v.run("", "deny", id, "no")
	require.Zero(t, code, errs)
	v.awaitFile(filepath.Join(v.layout.Responses("operators"), id+".json"))
	_, out, _ = v.run("", "show", id)
	require.Contains(t, out, "denied by operator:root via cli")
	d.stop()
	v.startServing()
	id = v.submitAndAwait("fresh")
	code, _, errs = v.runAs(v.ann, "approve", id)
	require.Zero(t, code, errs)
}
