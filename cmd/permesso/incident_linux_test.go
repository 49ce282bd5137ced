package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/client"
	"github.com/permesso-dev/permesso/ipc/httpapi"
)

// The situations in which every command is tried. inBroken, inUnknownKey and inMissing are a configuration
// that the daemon does not serve any more; inKilled is inStopped without a chance to clean up.
const (
	inFresh      = "fresh" // no configuration, no HOME
	inBroken     = "broken"
	inUnknownKey = "unknown key"
	inMissing    = "missing"
	inOther      = "other"    // another user, at the approver socket
	inPackaged   = "packaged" // root beside this machine's daemon
	inStopped    = "stopped"
	inKilled     = "afterKill"
	inHung       = "hung"
	inOlder      = "older"
)

// incidentSituations share the cell of the first of a line.
var incidentSituations = [][]string{
	{inFresh},
	{inBroken, inUnknownKey, inMissing},
	{inOther},
	{inPackaged},
	{inStopped, inKilled},
	{inHung},
	{inOlder},
}

// cells are what a command does in each situation: the exit code, and a pattern of what it prints.
type cells map[string]string

// like is the cells with some replaced: situation, cell, situation, cell.
func (c cells) but(pairs ...string) cells {
	n := cells{}
	for situation, cell := range c {
		n[situation] = cell
	}
	for i := 0; i < len(pairs); i += 2 {
		n[pairs[i]] = pairs[i+1]
	}
	return n
}

const (
	noDaemonCell = `1 no daemon for this user`
	hungCell     = `1 does not answer`
	strangerCell = `6 nothing here for you`
	updateCell   = `1 the running daemon has version .*, which cannot do this`
)

// same is the same cell in each situation: the command asks no daemon.
func same(cell string) cells {
	c := cells{}
	for _, s := range incidentSituations {
		c[s[0]] = cell
	}
	return c
}

// asks is a command that asks the daemon, or reads HOME without one.
func asks(cell string) cells {
	return same(cell).but(inFresh, noDaemonCell, inHung, hungCell, tellsKey, "yes")
}

// tellsKey marks the cells of a command that says which daemon answers, and what is wrong with it.
const tellsKey = "tells"

// operates is asks for what only the operator may do.
func operates(cell string) cells { return asks(cell).but(inOther, strangerCell) }

// reads is a command that reads HOME itself, whether a daemon runs or not.
func reads(cell string) cells { return same(cell).but(inFresh, noDaemonCell, inOther, noDaemonCell) }

// configures is a command that reads the configuration.
func configures(cell string) cells {
	return same(cell).but(inBroken, "1 "+brokenFile, inOther, noDaemonCell)
}

const brokenFile = `permesso\.toml.*(not valid TOML|unknown key|no such file)`

// incidentTable has a row for each command line. {id} is a pending request, {seen} its digest, {new} the
// path of no file, {decision} standard input. Rows that change what others need stand at the end. An
// empty cell is not tried: the daemon would run until it is told to stop.
var incidentTable = []incidentRow{
	{"audit acknowledge --reason seen", operates("6 the audit log has no alarm").but(inOlder, updateCell)},
	{"audit checkpoint", reads("0 ^permesso\n")},
	{"audit keys", reads("0 current")},
	{"audit prove {id}", reads(`[06] (no signed entry|"checkpoint")`)},
	{"audit tail", asks("0 approval_requested")},
	{"audit verify", reads("0 ^OK: ")},
	{"audit verify-proof {new}", same("1 read /.*/new.*: no such file")},
	{"audit witness --to {new}", reads("0 ^witnessed: ")},
	{"backup {new}", asks("0 copied .*permesso.toml").but(inFresh, "1 there is no home in", inOther, "1 there is no home in", inOlder, updateCell)},
	{"config check", configures("0 ok .*permesso.toml").but(inFresh, "0 no file, defaults")},
	{"config schema", same("0 schema")},
	{"config show", configures(`0 # file /.*approval_timeout = "1h"`).but(inFresh, "0 # file none")},
	{"demo extra", same("2 takes no arguments")},
	{"doctor --quick", same("0 running, process").but(inFresh, "9 no daemon for this user", inOther, "9 no daemon for this user.*the daemon at",
		inBroken, "9 "+brokenFile, inStopped, "[08] not running", inHung, "9 does not answer", inOlder, "[08] running, process")},
	{"doctor probe", same("2 standard input is not what doctor gives")},
	{"email deliver", same("65 the delivery is empty").but(inFresh, "75 no daemon for this user", inOther, "75 no daemon for this user")},
	{"email setup", configures("2 give its values as flags").but(inFresh, "2 give its values")},
	{"email test", configures("1 not configured").but(inFresh, noDaemonCell)},
	{"key list", operates("0 No keys")},
	{"key revoke 0123", operates(`6 no key "0123"`)},
	{"mounts w", same("0 ipc/w/requests").but(inFresh, "1 no workspace 'w'", inOther, noDaemonCell, inBroken, "0 "+brokenFile)},
	{"policy check full code:exec", same("0 ask")},
	{"policy explain {id}", configures("0 ask by trust").but(inFresh, "1 no such file")},
	{"policy preset assistant", same("0 workspaces")},
	{"policy registry", same("0 code:exec")},
	{"policy simulate", configures("0 requests would be ruled differently").but(inFresh, "1 no daemon has run there")},
	{"policy table", same("0 supervised")},
	{"policy test {new}", configures("1 read /.*/new.*: no such file")},
	{"prune", reads("0 prunes every hour").but(inStopped, "0 removed 0 records")},
	{"prune --dry-run", configures("0 RECORDS").but(inFresh, noDaemonCell)},
	{"receipt redeem {new}", same("1 read /.*/new.*: no such file")},
	{"receipt verify {new}", same("1 read /.*/new.*: no such file")},
	{"restore --check {new}", same("9 there is no folder")},
	{"service install --dry-run --program /bin/true", same("0 permesso.service")},
	{"service show --program /bin/true", same("0 ExecStart=/bin/true")},
	{"service uninstall --dry-run", same("0 nothing to remove")},
	{"version", same("0 ^permesso .*\ndaemon   [^n]").but(inFresh, "0 daemon   not running", inStopped, "0 daemon   not running", inHung, "0 daemon   not running, or it does not answer")},
	{"status", asks("0 ^daemon  running").but(inStopped, "0 ^daemon  not running")},
	{"status --json", asks(`0 "running":true`).but(inStopped, `0 "running":false`)},
	{"status --line", same(`0 ^\d+ waits?, oldest \d+ s`).but(inFresh, noDaemonCell, inStopped, "0 ^daemon down: [0-9]+ wait")},
	{"tui", same("2 needs a terminal")},
	{"tui --once {id}", same("2 needs a terminal")},
	{"tui --next", same("2 needs a terminal")},
	{"tui --linear", same("2 needs a terminal")},
	{"tui tmux", same("0 bind-key P display-popup")},
	{"status --disk", operates("0 ^journal").but(inOlder, updateCell)},
	{"telegram setup --yes", configures("2 --workspace is required").but(inFresh, "1 no configuration file")},
	{"telegram test", configures("1 not configured")},
	{"workspace list", configures("0 supervised").but(inFresh, "0 default")},
	{"approve {id} --seen {seen}", asks("0 ^Approved: say")},
	{"decide", same("2 --stdin")},
	{"decide --stdin {decision}", asks("0 ^Denied: say")},
	{"decide --stdin", same("2 no decision on standard input")},
	{"deny {id} no", asks("0 ^Denied: say")},
	{"desktop-notify", same("1 no D-Bus session")},
	{"answer {id} yes", asks("6 is not a question")},
	{"ask {id} why", asks("0 needs your decision because")},
	{"change {id} less", asks("0 ^Overridden: say")},
	{"approve {id} --seen {seen} --wait", asks("0 ^Approved: say.*said").but(inStopped, "1 nothing was decided")},
	{"deny --all --workspace idle --yes", asks("0 ").but(inOther, "1 no workspace 'idle'")},
	{"cancel {id} --operator", operates("0 ^Cancelled: say").but(inOther, "6 only the operator of the daemon")},
	{"watch --workspace nowhere", asks("1 no workspace 'nowhere'").but(inStopped, "1 the daemon of .* is not running")},
	{"today", asks("0 requests")},
	{"webhook test ci", same("[12] ")},
	{"webhook secret {new}", same("0 ")},
	{"rule add --tool say --outcome ask --workspace w", configures(`0 \[\[rules\]\]`).but(inFresh, "1 no workspace", inHung, "0 ")},
	{"tool add more --command true --yes", configures("0 added   tool more").but(inHung, "[01] tool more|by another process", inFresh, "1 no configuration file")},
	{"tool list", configures("0 say .*/bin/echo said").but(inFresh, "0 no tools")},
	{"rule list", configures("0 no rules").but(inFresh, "0 no rules")},
	{"approver add bob --email bob@example.org --workspace w", configures("0 added   approver bob").but(inHung, "[01] approver bob|by another process", inFresh, "1 no configuration file")},
	{"approver list", configures("0 ann").but(inFresh, "0 ")},
	{"approver remove bob", configures("0 removed approver bob").but(inHung, `[01] approver "?bob|by another process`, inFresh, "1 no configuration file")},
	{"config edit", same("1 is unchanged: the editor .false. ended with exit code 1").but(inFresh, "1 no configuration file", inOther, noDaemonCell, inMissing, "1 "+brokenFile)},
	{"grants", asks("0 No grants")},
	{"history", asks("0 pending")},
	{"revoke 0123456789abcdef", asks("0 no-op")},
	{"rule add --from {id}", asks(`0 \[\[rules\]\]`)},
	{"session list", asks("0 no taint")},
	{"session clear w", operates("0 ").but(inOther, "6 only the operator of the daemon")},
	{"pending", asks("0 say")},
	{"pending --json", asks(`0 "request_id"`)},
	{"show {id}", asks("0 May I say.*approval requested")},
	{"show {id} --json", asks(`0 "timeline":\[.*"approval_requested"`)},
	{"stats", asks("0 needed an approver")},
	{"ui --print", asks("1 no web UI").but(inFresh, "1 not running: no web UI", inOlder, updateCell)},
	{"cancel {id}", same("1 there is no folder /permesso/requests")},
	{"acp -- /none", same("1 no such file")},
	{"hook run -- /none -p x", same("1 no such file")},
	{"hook install claude-code --print --workspace w", same("0 PreToolUse").but(inFresh, "1 no workspace 'w'\nhint: workspaces: default")},
	{"hook uninstall claude-code --print", same("0 ")},
	{"hook check claude-code --program /none", same("[0-9]+ ")},
	{"mcp", same("0 ")},
	{"mcp proxy -- /none", same("0 ")},
	{"mcp login http://127.0.0.1:1/mcp", same("1 not logged in")},
	{"mcp install claude-code --print --workspace w", same("0 mcp").but(inFresh, "1 no workspace 'w'\nhint: workspaces: default")},
	{"mcp uninstall claude-code --print", same("0 ")},
	{"mcp wrap claude-code --print", same("[0-9]+ ")},
	{"mcp unwrap claude-code --print", same("[0-9]+ ")},
	{"plan {new}", same("1 no such file")},
	{"plan --teach", same("0 ^# Programs")},
	{"run {new}", same("1 no such file")},
	{"request say", same("1 there is no folder /permesso/requests")},
	{"wait {id} --timeout 1ms", same("5 timeout waiting")},
	{"completion bash", same("0 complete")},
	{"completion fish", same("0 complete")},
	{"completion powershell", same("0 Complete")},
	{"completion zsh", same("0 compdef")},
	{"help", same("0 approval gate")},
	{"key create w", operates("0 ^permesso_")},
	{"grant add --workspace w --tool say --for 1h", operates("0 granted")},
	{"pause w --reason look", asks("0 ^paused: nothing runs until permesso resume w")},
	{"resume w", asks("0 ^resumed")},
	{"pause idle", asks("0 ^paused").but(inOther, "6 nothing here for you: name one of your workspaces: w\n")},
	{"resume idle", asks("0 ^resumed").but(inOther, "6 nothing here for you")},
	{"pause", asks("0 ^paused").but(inOther, "6 nothing here for you: name one of your workspaces: w\n")},
	{"resume", asks("0 ^resumed").but(inOther, "6 nothing here for you")},
	{"workspace add x", configures("0 added   workspace x").but(inFresh, "1 no configuration file", inHung, "[01] ")},
	{"workspace remove x", configures("0 removed workspace x").but(inHung, "[01] workspace '?x|by another process", inFresh, "1 no configuration file")},
	{"sweep", configures("7 another daemon serves this home").but(inFresh, noDaemonCell, inStopped, "0 processed")},
	{"audit rotate-key", configures("7 another daemon serves this home").but(inFresh, noDaemonCell, inStopped, "0 new key")},
	{"serve --tui", same("2 needs a terminal")},
	{"serve", configures("7 another daemon serves this home").but(inFresh, "", inStopped, "", inOther, "", inPackaged, "6 this machine has a daemon already", inMissing, "7 another daemon")},
	{"init --yes", same("0 kept").but(inFresh, "0 created", inOther, "0 created", inPackaged, "6 this machine has a daemon already", inBroken, "1 kept.*"+brokenFile, inMissing, "0 wrote")},
}

type incidentRow struct {
	line  string
	cells cells
}

// runtimeSentences are what the language, its library and its modules say, and no person should read.
var runtimeSentences = regexp.MustCompile(`panic|goroutine|runtime error|strconv\.|unexpected end of JSON|invalid character '|dial (unix|tcp)|context (deadline exceeded|canceled)|\bEOF\b|` +
	`connection (refused|reset)|inBroken pipe|exit status|signal: |nil pointer|<nil>|%!|i/o timeout|use of closed|bad file descriptor| json: |[^.]toml: |jsontext|interface conversion|` +
	`(?m)^permesso: (open|stat|lstat|mkdir) |` + `\(MISSING\)|map\[|\[\]string|0x[0-9a-f]{8}`)

// incident is a daemon, or none, in one of the situations.
type incident struct {
	t    *testing.T
	name string
	dir  string
	env  map[string]string
	rig  *rig
	ids  []string
	// run runs a command line.
	run func(args []string, stdin string) (code int, out, errs string)

	mu  sync.Mutex
	new int
}

const incidentConfig = `
listen = ""
ui = false
[approvers.ann]
local = %d
[workspaces.w]
approvers = ["ann"]
approval_timeout = "1h"
limits = { pending = 64, ask_per_minute = 600, per_minute = 600 }
[approvers.bea]
local = 65000
[workspaces.idle]
approvers = ["bea"]
[tools.say]
public_source = false
secret_data = false
public_sink = false
dangerous_writes = true
verb = "say"
args = { to = { type = "text", optional = true } }
handler = { kind = "command", argv = ["/bin/echo", "said"] }
`

func newIncident(t *testing.T, name string) *incident {
	dir, err := os.MkdirTemp("", "permesso-incident-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	v := &incident{t: t, name: name, dir: dir, env: map[string]string{"HOME": dir, "PATH": "/usr/bin:/bin", "EDITOR": "false", "PERMESSO_JOURNAL_SIZE": "262144"}}
	v.rig = &rig{t: t, dir: dir, config: filepath.Join(dir, ".config", "permesso", "permesso.toml"), layout: ipc.Layout{Home: filepath.Join(dir, ".local", "state", "permesso")}, plain: true}
	v.run = v.inProcess
	return v
}

func (v *incident) configure(text string) {
	require.NoError(v.t, os.MkdirAll(filepath.Dir(v.rig.config), 0o755))
	require.NoError(v.t, os.WriteFile(v.rig.config, []byte(text), 0o644))
}

// environ is the environment of a process.
func (v *incident) environ() (list []string) {
	for name, value := range v.env {
		list = append(list, name+"="+value)
	}
	return append(list, raceExitsFast)
}

// serve starts a daemon in the usual places, and submits requests.
func (v *incident) serve() *daemonProcess {
	v.configure(fmt.Sprintf(incidentConfig, uidAnn))
	cmd := osexec.Command(program(v.t, true), "serve")
	cmd.Dir, cmd.Env = v.dir, v.environ()
	return v.start(cmd)
}

func (v *incident) start(cmd *osexec.Cmd) *daemonProcess {
	d := v.rig.start(cmd)
	d.awaitLog(`"message":"serving"`)
	files := client.Files{Requests: v.rig.layout.Requests("w"), Responses: v.rig.layout.Responses("w")}
	for range 20 {
		id := client.NewID()
		require.NoError(v.t, files.Submit(id, fmt.Appendf(nil, `{"request_id":%q,"tool_name":"say","request_data":{"to":%q}}`, id, id)))
		v.ids = append(v.ids, id)
	}
	for _, id := range v.ids {
		v.rig.awaitPending("w", id)
	}
	return d
}

// inProcess runs a command line in this process.
func (v *incident) inProcess(args []string, stdin string) (code int, out, errs string) {
	var o, e bytes.Buffer
	ctx, stop := context.WithTimeout(v.t.Context(), testTimeout)
	defer stop()
	m := Main{In: strings.NewReader(stdin), Out: &o, Err: &e, Env: func(name string) string { return v.env[name] }}
	code = m.Run(ctx, args)
	require.NoError(v.t, ctx.Err(), "%v does not end", args)
	return code, o.String(), e.String()
}

// fill replaces the placeholders of a command line.
func (v *incident) fill(line string) (args []string, stdin string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if strings.Contains(line, "{id}") || strings.Contains(line, "{decision}") {
		id := "0123456789abcdef"
		if len(v.ids) > 0 {
			id, v.ids = v.ids[0], v.ids[1:]
		}
		line = strings.ReplaceAll(line, "{id}", id)
		line = strings.ReplaceAll(line, "{seen}", digestOf(v.rig.layout, id))
		if decide, ok := strings.CutSuffix(line, " {decision}"); ok {
			line, stdin = decide, `{"request_id":"`+id+`","workspace":"w","verdict":"denied"}`
		}
	}
	v.new++
	line = strings.ReplaceAll(line, "{new}", filepath.Join(v.dir, "new"+strconv.Itoa(v.new)))
	return strings.Fields(line), stdin
}

// situation prepares a situation.
func situation(t *testing.T, name string) *incident {
	v := newIncident(t, name)
	switch name {
	case inFresh:
	case inBroken, inUnknownKey, inMissing:
		d := v.serve()
		text := map[string]string{inBroken: "this is [[[ no TOML\n", inUnknownKey: "colour = true\n"}[name]
		if text == "" {
			require.NoError(t, os.Remove(v.rig.config))
		} else {
			v.configure(text)
		}
		d.awaitLog("configuration change refused")
	case inStopped:
		v.serve().stop()
	case inKilled:
		v.serve().kill()
	case inHung:
		d := v.serve()
		d.signal(syscall.SIGSTOP)
	case inOlder:
		v.serve()
		v.makeOlder()
	case inOther:
		v.serveOthers()
	case inPackaged:
		v.servePackaged()
	}
	return v
}

// serveOthers starts a daemon of another user, with this user as an approver.
func (v *incident) serveOthers() {
	socket := filepath.Join(v.dir, "run", "p.sock")
	home := filepath.Join(v.dir, "var")
	require.NoError(v.t, errors.Join(os.Mkdir(filepath.Dir(socket), 0o755), os.Mkdir(home, 0o755)))
	v.rig.layout = ipc.Layout{Home: filepath.Join(home, "home")}
	v.configure("socket = \"" + socket + "\"\n" + fmt.Sprintf(incidentConfig, os.Getuid()))
	cmd := osexec.Command(v.program(), "serve", "--config", v.rig.config, "--home", v.rig.layout.Home)
	cmd.Dir, cmd.Env = "/", v.environ()
	if os.Getuid() == 0 {
		require.NoError(v.t, errors.Join(os.Chown(filepath.Dir(socket), uidGate, uidGate), os.Chown(home, uidGate, uidGate)))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uidGate, Gid: uidGate}}
	}
	v.start(cmd).awaitLog("approver socket listening")
	v.env["HOME"], v.env["PERMESSO_SOCKET"] = filepath.Join(v.dir, "nowhere"), socket
}

// program is a copy that every user can run.
func (v *incident) program() string {
	bin := filepath.Join(v.dir, "permesso")
	b, err := os.ReadFile(program(v.t, true))
	require.NoError(v.t, err)
	require.NoError(v.t, writeProgram(bin, string(b), 0o755))
	return bin
}

// servePackaged starts a daemon in the places of the system service, which only a mount
// namespace has. Commands run there as root.
func (v *incident) servePackaged() {
	state, run := filepath.Join(v.dir, "state"), filepath.Join(v.dir, "run")
	for _, dir := range []string{state, run} {
		require.NoError(v.t, errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, uidGate, uidGate)))
	}
	require.NoError(v.t, os.Chmod(state, 0o700))
	v.rig.layout = ipc.Layout{Home: state}
	v.configure("socket = \"" + config.DefaultSocket + "\"\n" + fmt.Sprintf(incidentConfig, uidAnn))
	ns := osexec.Command("unshare", "--mount", "sh", "-ec", `mount -t tmpfs tmpfs /var/lib; mkdir /var/lib/permesso; mount --bind "$1" /var/lib/permesso
mount -t tmpfs tmpfs /run; mkdir /run/permesso; mount --bind "$2" /run/permesso; echo mounted; exec cat`, "sh", state, run)
	in, err := ns.StdinPipe()
	require.NoError(v.t, err)
	out, err := ns.StdoutPipe()
	require.NoError(v.t, err)
	require.NoError(v.t, ns.Start())
	v.t.Cleanup(func() { _ = in.Close(); _ = ns.Wait() })
	line := make([]byte, 64)
	n, err := out.Read(line)
	require.NoError(v.t, err)
	require.Equal(v.t, "mounted\n", string(line[:n]))

	bin := v.program()
	inside := func(args ...string) *osexec.Cmd {
		cmd := osexec.Command("nsenter", append([]string{"--target", strconv.Itoa(ns.Process.Pid), "--mount", "--"}, args...)...)
		cmd.Dir, cmd.Env = v.dir, v.environ()
		return cmd
	}
	gate := strconv.Itoa(uidGate)
	v.start(inside("setpriv", "--reuid", gate, "--regid", gate, "--clear-groups", bin, "serve", "--config", v.rig.config, "--home", config.SystemHome))
	v.env["HOME"] = filepath.Join(v.dir, "root")
	v.run = func(args []string, stdin string) (code int, out, errs string) {
		cmd := inside(append([]string{bin}, args...)...)
		var o, e bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &o, &e
		err := cmd.Run()
		var exited *osexec.ExitError
		if !errors.As(err, &exited) {
			require.NoError(v.t, err)
		}
		return cmd.ProcessState.ExitCode(), o.String(), e.String()
	}
}

// olderLacks are paths of operations that the older daemon does not have.
var olderLacks = []string{"/v1/local/disk", "/v1/local/link", "/v1/local/freeze", "/v1/local/audit/acknowledge"}

// makeOlder puts a daemon of an earlier version before the running one.
func (v *incident) makeOlder() {
	path := v.rig.layout.Socket()
	behind := path + ".newer"
	require.NoError(v.t, os.Rename(path, behind))
	l, err := net.Listen("unix", path)
	require.NoError(v.t, err)
	to := &httputil.ReverseProxy{
		ErrorLog: log.New(io.Discard, "", 0), // else a serve in this process logs that a client of it is gone
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "permesso"}) },
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", behind)
			},
		},
		ModifyResponse: func(r *http.Response) error {
			r.Header.Set(httpapi.VersionHeader, "0.1.0")
			if r.Request.URL.Path != "/v1/local" {
				return nil
			}
			var hello map[string]any
			if err := json.NewDecoder(r.Body).Decode(&hello); err != nil {
				return err
			}
			for _, name := range []string{"config", "config_issue", "config_hint"} {
				delete(hello, name)
			}
			b, err := json.Marshal(hello)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
			r.Header.Set("Content-Length", strconv.Itoa(len(b)))
			return err
		},
	}
	s := &http.Server{ReadHeaderTimeout: testTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(olderLacks, r.URL.Path) {
			w.Header().Set(httpapi.VersionHeader, "0.1.0")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"detail":"unknown path","status":404}`)
			return
		}
		wholeRequests(to).ServeHTTP(w, r)
	})}
	go func() { _ = s.Serve(l) }()
	v.t.Cleanup(func() { _ = s.Close() })
}

// wholeRequests reads a request to its end before to passes it on. Else the other side may have answered before to looks
// for that end, the server has closed the request's body by then, and to cuts off the answer.
func wholeRequests(to *httputil.ReverseProxy) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		to.ServeHTTP(w, r)
	})
}

// leafCommands are the commands that do something, also hidden ones.
func leafCommands() (paths []string) {
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Runnable() && !c.HasSubCommands() || c.Name() == "doctor" || c.Name() == "tui" {
			paths = append(paths, strings.TrimPrefix(c.CommandPath(), "permesso "))
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	root := (&app{&console.Console{Env: func(string) string { return "" }}}).root()
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	walk(root)
	return paths
}

// Every command has a row.
func TestIncidentTableIsComplete(t *testing.T) {
	t.Parallel()
	for _, path := range leafCommands() {
		require.True(t, slices.ContainsFunc(incidentTable, func(r incidentRow) bool {
			return r.line == path || strings.HasPrefix(r.line, path+" ")
		}), "incidentTable has no row for %q", path)
	}
}

// Every command, in every situation: the right answer, or a plain refusal with a hint.
func TestIncidents(t *testing.T) {
	t.Parallel()
	require.NoDirExists(t, config.SystemHome, "the test would ask a real daemon")
	for _, alike := range incidentSituations {
		for _, name := range alike {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if name == inPackaged && os.Getuid() != 0 {
					require.Empty(t, os.Getenv("CI"), "CI has root")
					t.Skip("only root has another user's HOME")
				}
				v := situation(t, name)
				var wg sync.WaitGroup
				for _, row := range incidentTable {
					if name == inHung { // each waits for the daemon, at the same time
						wg.Go(func() { v.check(row, alike[0]) })
					} else {
						v.check(row, alike[0])
					}
				}
				wg.Wait()
			})
		}
	}
}

// tells are lines that say which daemon answers, or what is wrong with it.
var tells = map[string]string{
	inBroken:   "permesso: configuration change refused, the old one stays active: .*permesso.toml.*\nhint: .*permesso config check\n",
	inPackaged: "permesso: this machine's daemon is meant: its HOME is /var/lib/permesso\n",
	inOlder:    "permesso: this command has version dev, the running daemon 0.1.0; restart the daemon to update it\n",
}

// check runs a row. Its cell is that of the situation, or of one like it.
func (v *incident) check(row incidentRow, alike string) {
	line := row.line
	cell, ok := row.cells[v.name]
	if !ok {
		cell = row.cells[alike]
	}
	if cell == "" {
		return
	}
	args, stdin := v.fill(line)
	code, out, errs := v.run(args, stdin)
	want, says, _ := strings.Cut(cell, " ")
	all := out + errs
	if !regexp.MustCompile("^(?:"+want+")$").MatchString(strconv.Itoa(code)) || !regexp.MustCompile("(?s)"+says).MatchString(all) {
		v.t.Errorf("%s: %s: exit code %d, not %q:\n%s", v.name, line, code, cell, all)
	}
	if said := runtimeSentences.FindString(all); said != "" {
		v.t.Errorf("%s: %s says %q:\n%s", v.name, line, said, all)
	}
	if says, ok := tells[alike]; ok && row.cells[tellsKey] != "" && len(regexp.MustCompile(says).FindAllString(errs, -1)) != 1 {
		v.t.Errorf("%s: %s does not say once %q:\n%s", v.name, line, says, all)
	}
	for answer := range strings.Lines(out) {
		if code == 0 && strings.HasSuffix(line, "--json") && !json.Valid([]byte(answer)) {
			v.t.Errorf("%s: %s prints what is no JSON:\n%s", v.name, line, answer)
		}
	}
	if code != 0 && !strings.Contains(all, "hint: ") && !strings.Contains(all, "nothing here for you: ") {
		v.t.Errorf("%s: %s: an error without a hint:\n%s", v.name, line, all)
	}
}
