package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/client"
)

// The people of a machine. The gate's is a system user; nobody of them need
// have an account.
const (
	uidGate     = 900
	uidAnn      = 40001
	uidBob      = 40002
	uidAgent    = 40003
	uidStranger = 40004
)

// A uid that is refused again and again fills no disk, and silences no other.
func TestRefusalsAreNotedSeldom(t *testing.T) {
	var s seldom
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

// village is a machine with a gate for several people. Without root there is
// one person only: ann, who is whoever runs the test, and the gate's user too.
type village struct {
	*place
	bin    string
	socket string
	ann    int
	root   bool
}

const villageConfig = `
socket = %q
[approvers.ann]
local = %d
language = "it"
[approvers.bob]
local = 40002
[workspaces.annes]
approvers = ["ann"]
agent_uid = [40003, 40005]
[workspaces.bobs]
approvers = ["bob"]
[workspaces.operators]
[tools.say]
verb = "say"
handler = { kind = "command", argv = ["/bin/echo", "said"] }
`

func newVillage(t *testing.T) *village {
	t.Helper()
	dir, err := os.MkdirTemp("", "permesso-socket-") // t.TempDir is closed to others
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	v := &village{bin: filepath.Join(dir, "permesso"), socket: filepath.Join(dir, "run", "p.sock"), ann: os.Getuid(), root: os.Getuid() == 0}
	if v.root {
		v.ann = uidAnn
	}
	b, err := os.ReadFile(program(t, false))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(v.bin, b, 0o755))
	v.place = &place{t: t, dir: dir, config: filepath.Join(dir, "permesso.toml"), layout: ipc.Layout{Home: filepath.Join(dir, "var", "home")}}
	for _, sub := range []string{"run", "var"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
		if v.root {
			require.NoError(t, os.Chown(filepath.Join(dir, sub), uidGate, uidGate))
		}
	}
	v.configure(fmt.Sprintf(villageConfig, v.socket, v.ann))
	return v
}

func (v *village) configure(text string) {
	require.NoError(v.t, os.WriteFile(v.config, []byte(text), 0o644))
}

// as is a command run by somebody, who knows nothing of the home.
func (v *village) as(uid int, env []string, args ...string) *osexec.Cmd {
	cmd := osexec.Command(v.bin, args...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=/usr/bin:/bin", "TZ=UTC", "HOME=" + filepath.Join(v.dir, "nowhere"), raceAtOnce}, env...)
	if uid != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	return cmd
}

func (v *village) start() *daemon {
	v.t.Helper()
	uid := uidGate
	if !v.root {
		uid = os.Getuid()
	}
	d := &daemon{place: v.place, cmd: v.as(uid, nil, "serve", "--config", v.config, "--home", v.layout.Home), log: filepath.Join(v.dir, "log")}
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(v.t, err)
	info, err := log.Stat()
	require.NoError(v.t, err)
	d.from, d.cmd.Stderr = info.Size(), log
	require.NoError(v.t, d.cmd.Start())
	require.NoError(v.t, log.Close())
	d.wait = sync.OnceValue(d.cmd.Wait)
	v.t.Cleanup(d.kill)
	return d
}

func (v *village) serving() *daemon {
	v.t.Helper()
	d := v.start()
	d.awaitLog("people of this machine decide here")
	d.awaitLog(`"message":"serving"`)
	return d
}

// says runs a person's command line through the socket.
func (v *village) says(uid int, args ...string) (code int, stdout, stderr string) {
	v.t.Helper()
	cmd := v.as(uid, []string{"PERMESSO_SOCKET=" + v.socket}, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exited *osexec.ExitError
	if !errors.As(err, &exited) {
		require.NoError(v.t, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// asks files a request, and waits until it waits.
func (v *village) asks(ws string) string {
	v.t.Helper()
	id := client.NewID()
	files := client.Files{Requests: v.layout.Requests(ws), Responses: v.layout.Responses(ws)}
	require.NoError(v.t, files.Submit(id, fmt.Appendf(nil, `{"request_id":%q,"tool_name":"say","request_data":{"to":%q}}`, id, ws)))
	v.awaitFile(filepath.Join(v.layout.Pendings(ws), id+".json"))
	return id
}

func (v *village) awaitFile(name string) {
	v.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		if _, err := os.Stat(name); err == nil {
			return
		}
		require.True(v.t, time.Now().Before(end), "waited in vain for %s", name)
	}
}

func (v *village) needsRoot() {
	v.t.Helper()
	if !v.root {
		v.t.Log("one person only: the others need root")
	}
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
		require.Equal(t, byFile(args...), out, "%v", args)
	}

	code, out, errs := v.says(v.ann, "approve", id[:8], "--note", "quickly")
	require.Zero(t, code, errs)
	require.Contains(t, out, "Approved: say")
	require.NotContains(t, out, "not running")
	v.awaitFile(filepath.Join(v.layout.Responses("annes"), id+".json"))
	_, shown, _ := v.says(v.ann, "show", id)
	require.Equal(t, byFile("show", id), shown)
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
		{"decided", "already decided: approved by ann", codeRefused, []string{"deny", id}},
		{"unknown", "no such request", codeRefused, []string{"approve", "ffffffff"}},
		{"too few digits", "at least 4 digits", codeUsage, []string{"approve", "fff"}},
		{"a session that there is none of", "belongs to no session", codeRefused, []string{"approve", v.asks("annes"), "--session"}},
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
			require.Equal(t, codeRefused, code)
			require.Empty(t, out)
			require.Equal(t, fmt.Sprintf("permesso: %s: no such request\nhint: permesso pending lists what waits\n", id), errs,
				"the same as where there is none")
		}
	}

	v.needsRoot()
	if v.root {
		for who, uid := range map[string]int{"a stranger": uidStranger, "an agent": uidAgent, "the gate's own user": uidGate} {
			for _, args := range [][]string{{"pending"}, {"show", annes}, {"approve", annes}, {"deny", annes, "no"}, {"status"}} {
				code, out, errs := v.says(uid, args...)
				require.Equal(t, codeRefused, code, "%s %v: %s", who, args, errs)
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

// audited is all that lies in the audit log's folder.
func (v *village) audited() string {
	v.t.Helper()
	entries, err := os.ReadDir(v.layout.Audit())
	require.NoError(v.t, err)
	var all strings.Builder
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(v.layout.Audit(), e.Name()))
		require.NoError(v.t, err)
		all.Write(b)
	}
	require.NotEmpty(v.t, all.String())
	return all.String()
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
			require.Equal(t, codeRefused, code)
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
				if code != codeRefused || !strings.Contains(errs, "already decided") && !strings.Contains(errs, "too late") {
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

// rude sends bytes as ann and gives what comes back.
func (v *village) rude() func(string) string {
	if !v.root {
		return func(sent string) string {
			c, err := net.Dial("unix", v.socket)
			require.NoError(v.t, err)
			defer c.Close()
			_, _ = io.WriteString(c, sent)
			require.NoError(v.t, c.(*net.UnixConn).CloseWrite())
			b, _ := io.ReadAll(c)
			return string(b)
		}
	}
	return func(sent string) string {
		cmd := v.self(v.ann, "talk")
		cmd.Stdin = strings.NewReader(sent)
		b, err := cmd.CombinedOutput()
		require.NoError(v.t, err, "%s", b)
		return string(b)
	}
}

// self is the test program itself, run as somebody else; see socketHelper.
func (v *village) self(uid int, what string) *osexec.Cmd {
	exe, err := os.Executable()
	require.NoError(v.t, err)
	mine := filepath.Join(v.dir, "self")
	if _, err := os.Stat(mine); err != nil {
		b, err := os.ReadFile(exe)
		require.NoError(v.t, err)
		require.NoError(v.t, os.WriteFile(mine, b, 0o755))
	}
	cmd := v.as(uid, []string{"PERMESSO_SOCKET_HELPER=" + what, "PERMESSO_SOCKET=" + v.socket})
	cmd.Path, cmd.Args = mine, []string{mine}
	return cmd
}

// socketHelper is what this program does as somebody else.
func socketHelper(what string) int {
	c, err := net.Dial("unix", os.Getenv("PERMESSO_SOCKET"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer c.Close()
	switch what {
	case "talk":
		_, _ = io.Copy(c, os.Stdin)
		_ = c.(*net.UnixConn).CloseWrite()
		_, _ = io.Copy(os.Stdout, c)
	case "hold": // as many as there may be, and one more
		var open []net.Conn
		for range 12 {
			c, err := net.Dial("unix", os.Getenv("PERMESSO_SOCKET"))
			if err != nil {
				fmt.Println(err)
				return 1
			}
			open = append(open, c)
		}
		fmt.Println("holding", len(open))
		_, _ = io.Copy(io.Discard, os.Stdin) // until told to end
	}
	return 0
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
			require.Equal(t, codeError, code)
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
	require.Equal(t, codeError, code)
	require.Regexp(t, `^permesso: no gate answers on .*\nhint: start it`, errs)

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
	require.Equal(t, codeLocked, third.cmd.ProcessState.ExitCode())
	require.Contains(t, third.said(), "another permesso listens on")
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
	require.Equal(t, codeError, code)
	require.Contains(t, errs, "no gate lives in", "a home that was named is not another one")
	if v.root {
		code, _, errs = v.says(v.ann, "pending", "--home", v.layout.Home)
		require.Zero(t, code, errs, "named, and not theirs to read")
	}
	cmd = v.as(v.ann, []string{"PERMESSO_SOCKET=" + filepath.Join(v.dir, "none")}, "pending")
	b, err = cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(b), "no gate lives in")
}

// An agent in a sandbox that its user made has the user's uid. Where the socket
// is in its sight, it is not taken for them.
func TestSocketFromWithinASandbox(t *testing.T) {
	v := newVillage(t)
	v.configure(strings.Replace(fmt.Sprintf(villageConfig, v.socket, v.ann), `language = "it"`, "", 1))
	d := v.serving()
	require.NotContains(t, d.said(), "processes are hidden")
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
	require.Contains(t, out, "restart permesso serve")
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
