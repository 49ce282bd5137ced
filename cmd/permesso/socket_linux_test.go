package main

import (
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

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc"
)

// A uid that is refused again and again fills no disk, and silences no other.
func TestRefusalsAreNotedSeldom(t *testing.T) {
	var s rateLimited
	noted := map[string]int{}
	for i := range 100_000 {
		for _, uid := range []string{"1", strconv.Itoa(i)} {
			if s.allow(uid) {
				noted[uid]++
			}
		}
	}
	require.Equal(t, 10, noted["1"]) // and no more for a minute
	require.Equal(t, 1, noted["2"])
	require.LessOrEqual(t, len(s.uid), maxUIDs+1)
	require.Less(t, len(noted), maxUIDs+20, "beyond so many they share")
}

// withoutLog takes out what only those see who may read the gate's own files:
// what the audit log says.
func withoutLog(out string) string {
	out, _, _ = strings.Cut(out, "timeline:\n")
	return regexp.MustCompile(` · log [0-9]+ [0-9a-f]{4}|,"timeline":\[.*\]`).ReplaceAllString(out, "")
}

func TestSocketSameAsFiles(t *testing.T) {
	v := newVillage(t)
	v.configure(strings.Replace(fmt.Sprintf(villageConfig, v.socket, v.ann), `language = "it"`, "", 1))
	v.serving()
	id := v.asks("annes")
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
		code, out, errs := v.says(v.ann, args...)
		require.Zero(t, code, errs)
		require.Equal(t, withoutLog(byFile(args...)), withoutLog(out), "%v", args)
	}

	code, out, errs := v.says(v.ann, "approve", id[:8], "--note", "quickly")
	require.Zero(t, code, errs)
	require.Contains(t, out, "Approved: say")
	require.NotContains(t, out, "not running")
	v.awaitFile(filepath.Join(v.layout.Responses("annes"), id+".json"))
	_, shown, _ := v.says(v.ann, "show", id)
	full := byFile("show", id)
	for _, line := range strings.Split(strings.TrimSpace(shown), "\n") {
		require.Contains(t, full, line, "there is less to see through the socket, and nothing else")
	}
	require.Contains(t, shown, "decision: approved by ann via socket")

	// Another program decides as people do.
	other := v.asks("annes")
	cmd := v.as(v.ann, []string{"PERMESSO_SOCKET=" + v.socket}, "decide", "--stdin")
	cmd.Stdin = strings.NewReader(`{"request_id":"` + other + `","workspace":"annes","verdict":"overridden","override":"say less"}`)
	b, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", b)
	require.Contains(t, string(b), "Overridden: say")

	for _, row := range []struct {
		why, says string
		code      int
		args      []string
	}{
		{"decided", "already decided: approved by ann", exitRefused, []string{"deny", id}},
		{"unknown", "no such request", exitRefused, []string{"approve", "ffffffff"}},
		{"too few digits", "at least 4 digits", exitUsage, []string{"approve", "fff"}},
		{"a session that there is none of", "names no session", exitRefused, []string{"approve", v.asks("annes"), "--session"}},
	} {
		code, _, errs := v.says(v.ann, row.args...)
		require.Equal(t, row.code, code, errs)
		require.Contains(t, errs, row.says, row.why)
		_, _, byFiles := v.run("", row.args...)
		require.Equal(t, byFiles, errs, row.why)
	}
	code, out, errs = v.says(v.ann, "status", "--json")
	require.Zero(t, code, errs)
	require.Contains(t, out, `"running":true`)
	require.Contains(t, out, `"annes"`)
	require.NotContains(t, out, `"bobs"`, "nothing of other people's workspaces")
	require.NotContains(t, out, `"operators"`)
}

func TestSocketSpeaksThePersonsLanguage(t *testing.T) {
	v := newVillage(t)
	v.serving()
	code, out, errs := v.says(v.ann, "show", v.asks("annes"))
	require.Zero(t, code, errs)
	require.Contains(t, out, "Serve un'approvazione")
}

func TestSocketPeople(t *testing.T) {
	v := newVillage(t)
	d := v.serving()
	annes, bobs, operators := v.asks("annes"), v.asks("bobs"), v.asks("operators")

	_, out, _ := v.says(v.ann, "pending", "--json")
	require.Contains(t, out, annes)
	require.NotContains(t, out, bobs)
	require.NotContains(t, out, operators, "ann is an approver, not the operator")
	for _, id := range []string{bobs, operators} {
		for _, args := range [][]string{{"show", id}, {"approve", id}, {"deny", id}} {
			code, out, errs := v.says(v.ann, args...)
			require.Equal(t, exitRefused, code)
			require.Empty(t, out)
			require.Equal(t, fmt.Sprintf("permesso: %s: no such request\nhint: permesso pending lists the pending requests\n", id), errs,
				"the same as where there is none")
		}
	}

	v.needsRoot()
	if v.root {
		for who, uid := range map[string]int{"a stranger": uidStranger, "an agent": uidAgent, "the gate's own user": uidGate} {
			for _, args := range [][]string{{"pending"}, {"show", annes}, {"approve", annes}, {"deny", annes, "no"}, {"status"}} {
				code, out, errs := v.says(uid, args...)
				require.Equal(t, exitRefused, code, "%s %v: %s", who, args, errs)
				require.Empty(t, out)
				require.Equal(t, "permesso: nothing here for you\n", errs, "%s %v", who, args)
			}
		}
		code, out, errs := v.says(uidBob, "approve", bobs)
		require.Zero(t, code, errs)
		require.Contains(t, out, "Approved")
	}
	code, _, errs := v.says(v.ann, "approve", annes)
	require.Zero(t, code, errs)
	d.stop()
	log := v.audited()
	if v.root {
		for _, uid := range []int{uidStranger, uidAgent, uidGate} {
			require.Regexp(t, `"event":"refused_decider".*"by":"local:`+strconv.Itoa(uid)+`".*"via":"socket"`, log)
		}
	}
	require.NotContains(t, log, `"by":"operator:`)
}

// Those who are refused in every way that the configuration knows, by the own
// uid of whoever runs the test.
func TestSocketRefusedByConfiguration(t *testing.T) {
	me := os.Getuid()
	for _, row := range []struct{ why, people string }{
		{"nobody is named", "[workspaces.w]\n"},
		{"named, and listed nowhere", fmt.Sprintf("[approvers.me]\nlocal = %d\n[workspaces.w]\n", me)},
		{"listed, and not the principal", fmt.Sprintf("[approvers.me]\nlocal = %d\n[approvers.her]\nlocal = 4\n[workspaces.w]\napprovers = [\"me\", \"her\"]\nprincipal = \"her\"\n", me)},
		{"no local decisions", fmt.Sprintf("[approvers.me]\nlocal = %d\n[workspaces.w]\napprovers = [\"me\"]\nlocal_decisions = false\n", me)},
	} {
		t.Run(row.why, func(t *testing.T) {
			v := newVillage(t)
			v.configure(fmt.Sprintf("socket = %q\n", v.socket) + row.people)
			v.serving()
			code, out, errs := v.says(me, "pending")
			require.Equal(t, exitRefused, code)
			require.Empty(t, out)
			require.Equal(t, "permesso: nothing here for you\n", errs)
		})
	}
}

// A crowd answers, half of it through the socket and half through the files.
func TestSocketFirstAnswerWins(t *testing.T) {
	v := newVillage(t)
	v.serving()
	for range 5 {
		id := v.asks("annes")
		var mu sync.Mutex
		var wg sync.WaitGroup
		won := map[string]int{}
		for i := range 6 {
			wg.Go(func() {
				verb := []string{"approve", "deny"}[i%2]
				code, errs := 0, ""
				if i < 3 {
					code, _, errs = v.says(v.ann, verb, id)
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
				if code != exitRefused || !strings.Contains(errs, "already decided") && !strings.Contains(errs, "too late") {
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
		require.Equal(t, map[approval.Status]string{approval.StatusApproved: "approve", approval.StatusDenied: "deny"}[r.Status], only(won))
	}
}

func only(m map[string]int) string {
	for k := range m {
		return k
	}
	return ""
}

// Whoever is rude, slow or greedy harms nobody but themselves.
func TestSocketRudeClients(t *testing.T) {
	v := newVillage(t)
	v.serving()
	id := v.asks("annes")
	rude := v.rude()
	for _, row := range []struct{ why, sent, says string }{
		{"garbage", "\x00\xff\x01garbage\n", "not a request"},
		{"an unknown key", `{"op":"status","root":true}` + "\n", "not a request"},
		{"a doubled key", `{"op":"status","op":"decide"}` + "\n", "not a request"},
		{"deep", strings.Repeat("[", 5000) + "\n", "not a request"},
		{"an unknown wish", `{"op":"shutdown"}` + "\n", "can be asked for"},
		{"no wish", "{}\n", "can be asked for"},
		{"a name that leads out", `{"op":"decide","workspace":"../annes","id":"` + id + `","verdict":"approved"}` + "\n", "nothing here for you"},
		{"an id that leads out", `{"op":"decide","workspace":"annes","id":"../../keys/mac","verdict":"approved"}` + "\n", "nothing here for you"},
		{"no verdict", `{"op":"decide","workspace":"annes","id":"` + id + `"}` + "\n", "not possible here"},
		{"somebody else's name", `{"op":"decide","workspace":"annes","id":"` + id + `","verdict":"approved","by":"bob"}` + "\n", "not a request"},
		{"huge", `{"op":"` + strings.Repeat("x", 1<<20) + `"}` + "\n", "too long"},
		{"half a line", `{"op":"status"}`, ""},
	} {
		require.Contains(t, rude(row.sent), row.says, row.why)
	}
	_, err := os.Stat(filepath.Join(v.layout.Decisions("annes"), id+".json"))
	require.ErrorIs(t, err, os.ErrNotExist, "nothing was decided")

	code, _, errs := v.says(v.ann, "approve", id)
	require.Zero(t, code, errs)
}

// One who takes all the connections they can leaves everybody else's alone.
func TestSocketGreedyClient(t *testing.T) {
	v := newVillage(t)
	v.serving()
	if !v.root {
		v.needsRoot()
		return
	}
	bobs := v.asks("bobs")
	for _, uid := range []int{v.ann, uidStranger} {
		cmd := v.self(uid, "hold")
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		b := make([]byte, 64)
		n, err := out.Read(b)
		require.NoError(t, err)
		require.Contains(t, string(b[:n]), "holding 12")
		code, shown, errs := v.says(uidBob, "show", bobs)
		require.Zero(t, code, errs)
		require.Contains(t, shown, bobs[:8])
		if uid == v.ann {
			code, _, errs = v.says(v.ann, "pending")
			require.Equal(t, exitError, code)
			require.Contains(t, errs, "too many connections")
		}
		require.NoError(t, in.Close())
		require.NoError(t, cmd.Wait())
	}
	code, _, errs := v.says(uidBob, "approve", bobs)
	require.Zero(t, code, errs)
}

func TestSocketRestart(t *testing.T) {
	v := newVillage(t)
	first := v.serving()
	id := v.asks("annes")
	first.kill()
	info, err := os.Lstat(v.socket)
	require.NoError(t, err, "a killed gate leaves its socket")
	require.NotZero(t, info.Mode()&os.ModeSocket)
	code, _, errs := v.says(v.ann, "pending")
	require.Equal(t, exitError, code)
	require.Regexp(t, `^permesso: no daemon listens on .*\nhint: start the daemon`, errs)

	second := v.serving()
	info, err = os.Lstat(v.socket)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o666), info.Mode().Perm())
	code, _, errs = v.says(v.ann, "approve", id)
	require.Zero(t, code, errs)

	// Another home that names the same socket is told so, and takes nothing over.
	other := *v
	other.place = &place{t: t, dir: v.dir, config: v.config, layout: ipc.Layout{Home: filepath.Join(v.dir, "var", "other")}}
	third := other.start()
	require.Error(t, third.ended())
	require.Equal(t, exitLocked, third.cmd.ProcessState.ExitCode())
	require.Contains(t, third.said(), "another daemon listens on")
	code, _, errs = v.says(v.ann, "status")
	require.Zero(t, code, errs)

	second.stop()
	_, err = os.Lstat(v.socket)
	require.ErrorIs(t, err, os.ErrNotExist, "one that ends in good order takes it away")
}

func TestSocketFileInTheWay(t *testing.T) {
	v := newVillage(t)
	require.NoError(t, os.WriteFile(v.socket, []byte("mine"), 0o644))
	d := v.start()
	require.Error(t, d.ended())
	require.Contains(t, d.said(), "something else lies there")
	b, err := os.ReadFile(v.socket)
	require.NoError(t, err)
	require.Equal(t, "mine", string(b))

	require.NoError(t, os.Remove(v.socket))
	require.NoError(t, os.Chmod(filepath.Dir(v.socket), 0o777))
	d = v.start()
	require.Error(t, d.ended())
	require.Contains(t, d.said(), "others may write to")
}

// The gate's own user can be nobody's approver: every tool runs as it.
func TestSocketGateCannotApprove(t *testing.T) {
	v := newVillage(t)
	if !v.root {
		v.needsRoot()
		return
	}
	v.configure(fmt.Sprintf("socket = %q\n[approvers.x]\nlocal = %d\n[workspaces.w]\napprovers = [\"x\"]\n", v.socket, uidGate))
	d := v.start()
	require.Error(t, d.ended())
	require.Contains(t, d.said(), "local is the user that runs the gate and every tool: it cannot approve")
}

func TestSocketIsForThoseWithoutFiles(t *testing.T) {
	v := newVillage(t)
	v.serving()
	id := v.asks("annes")
	cmd := v.command("approve", id) // the home can be read
	cmd.Env = append(cmd.Env, "PERMESSO_SOCKET="+v.socket)
	b, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", b)
	v.awaitFile(filepath.Join(v.layout.Responses("annes"), id+".json"))
	_, out, _ := v.run("", "show", id)
	require.Contains(t, out, "via cli")

	code, _, errs := v.says(v.ann, "pending", "--home", filepath.Join(v.dir, "typo"))
	require.Equal(t, exitError, code)
	require.Contains(t, errs, "no daemon for this user in", "a home that was named is not another one")
	if v.root {
		code, _, errs = v.says(v.ann, "pending", "--home", v.layout.Home)
		require.Zero(t, code, errs, "named, and not theirs to read")
	}
	cmd = v.as(v.ann, []string{"PERMESSO_SOCKET=" + filepath.Join(v.dir, "none")}, "pending")
	b, err = cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(b), "no daemon for this user in")
}

// An agent in a sandbox that its user made has the user's uid. Where the socket
// is in its sight, it is not taken for them.
func TestSocketFromWithinASandbox(t *testing.T) {
	v := newVillage(t)
	v.configure(strings.Replace(fmt.Sprintf(villageConfig, v.socket, v.ann), `language = "it"`, "", 1))
	d := v.serving()
	require.NotContains(t, d.said(), "are hidden (hidepid)")
	id := v.asks("annes")
	for _, row := range []struct {
		why  string
		wrap []string
	}{
		{"a user namespace", []string{"unshare", "--user", "--map-root-user"}},
		{"a sandbox that shows the whole host", []string{"bwrap", "--bind", "/", "/", "--dev", "/dev", "--unshare-user", "--unshare-pid", "--die-with-parent"}},
	} {
		t.Run(row.why, func(t *testing.T) {
			for _, args := range [][]string{{"approve", id}, {"pending"}, {"show", id}} {
				cmd := v.as(v.ann, []string{"PERMESSO_SOCKET=" + v.socket})
				path, err := osexec.LookPath(row.wrap[0])
				require.NoError(t, err)
				cmd.Path = path
				cmd.Args = append(append(row.wrap, v.bin), args...)
				b, err := cmd.CombinedOutput()
				require.Error(t, err)
				require.Equal(t, "permesso: nothing here for you\n", string(b))
			}
		})
	}
	code, _, errs := v.says(v.ann, "approve", id)
	require.Zero(t, code, errs)
}

// What root does in the gate's home, the gate must be able to read.
func TestRootActsAsTheHomesOwner(t *testing.T) {
	v := newVillage(t)
	d := v.serving()
	if !v.root {
		v.needsRoot()
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
	id := v.asks("operators")
	code, _, errs = v.run("", "deny", id, "no")
	require.Zero(t, code, errs)
	v.awaitFile(filepath.Join(v.layout.Responses("operators"), id+".json"))
	_, out, _ = v.run("", "show", id)
	require.Contains(t, out, "denied by operator:root via cli")
	d.stop()
	v.serving()
	id = v.asks("fresh")
	code, _, errs = v.says(v.ann, "approve", id)
	require.Zero(t, code, errs)
}
