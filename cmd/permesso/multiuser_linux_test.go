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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/client"
)

// UIDs of the test users. uidGate is a system user. None needs an
// account.
const (
	uidGate     = 900
	uidAnn      = 40001
	uidBob      = 40002
	uidAgent    = 40003
	uidStranger = 40004
)

// multiUserRig is a daemon with several users. Without root there is only ann: the
// user that runs the test and the daemon.
type multiUserRig struct {
	*rig
	bin    string
	socket string
	ann    int
	root   bool
}

const multiUserConfig = `
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
public_source = false
secret_data = false
public_sink = false
dangerous_writes = true
verb = "say"
args = { to = { type = "text", optional = true } }
handler = { kind = "command", argv = ["/bin/echo", "said"] }
`

func newMultiUserRig(t *testing.T) *multiUserRig {
	t.Helper()
	dir, err := os.MkdirTemp("", "permesso-socket-") // other users cannot read t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	v := &multiUserRig{bin: filepath.Join(dir, "permesso"), socket: filepath.Join(dir, "run", "p.sock"), ann: os.Getuid(), root: os.Getuid() == 0}
	if v.root {
		v.ann = uidAnn
	}
	b, err := os.ReadFile(program(t, false))
	require.NoError(t, err)
	require.NoError(t, writeProgram(v.bin, string(b), 0o755))
	v.rig = &rig{t: t, dir: dir, config: filepath.Join(dir, "permesso.toml"), layout: ipc.Layout{Home: filepath.Join(dir, "var", "home")}}
	for _, sub := range []string{"run", "var"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, sub), 0o755))
		if v.root {
			require.NoError(t, os.Chown(filepath.Join(dir, sub), uidGate, uidGate))
		}
	}
	v.configure(fmt.Sprintf(multiUserConfig, v.socket, v.ann))
	return v
}

func (v *multiUserRig) configure(text string) {
	require.NoError(v.t, os.WriteFile(v.config, []byte(text), 0o644))
}

// commandAs is a command of a user without access to the home.
func (v *multiUserRig) commandAs(uid int, env []string, args ...string) *osexec.Cmd {
	cmd := osexec.Command(v.bin, args...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=/usr/bin:/bin", "TZ=UTC", "HOME=" + filepath.Join(v.dir, "nowhere"), raceExitsFast}, env...)
	if uid != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	return cmd
}

func (v *multiUserRig) start() *daemonProcess {
	v.t.Helper()
	uid := uidGate
	if !v.root {
		uid = os.Getuid()
	}
	d := &daemonProcess{rig: v.rig, cmd: v.commandAs(uid, nil, "serve", "--config", v.config, "--home", v.layout.Home), log: filepath.Join(v.dir, "log")}
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

func (v *multiUserRig) startServing() *daemonProcess {
	v.t.Helper()
	d := v.start()
	d.awaitLog("approver socket listening")
	d.awaitLog(`"message":"serving"`)
	return d
}

// runAs runs a user's command line through the socket.
func (v *multiUserRig) runAs(uid int, args ...string) (code int, stdout, stderr string) {
	v.t.Helper()
	cmd := v.commandAs(uid, []string{"PERMESSO_SOCKET=" + v.socket}, withSeen(v.layout, args)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exited *osexec.ExitError
	if !errors.As(err, &exited) {
		require.NoError(v.t, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), withoutWaiting(errs.String())
}

// submitAndAwait submits a request and waits until it is pending.
func (v *multiUserRig) submitAndAwait(ws string) string {
	v.t.Helper()
	id := client.NewID()
	files := client.Files{Requests: v.layout.Requests(ws), Responses: v.layout.Responses(ws)}
	require.NoError(v.t, files.Submit(id, fmt.Appendf(nil, `{"request_id":%q,"tool_name":"say","request_data":{"to":%q}}`, id, ws)))
	v.awaitFile(filepath.Join(v.layout.Pendings(ws), id+".json"))
	return id
}

func (v *multiUserRig) awaitFile(name string) {
	v.t.Helper()
	for end := time.Now().Add(testTimeout); ; time.Sleep(2 * time.Millisecond) {
		if _, err := os.Stat(name); err == nil {
			return
		}
		require.True(v.t, time.Now().Before(end), "timeout waiting for %s", name)
	}
}

func (v *multiUserRig) logNeedsRoot() {
	v.t.Helper()
	if !v.root {
		v.t.Log("only one user: the others need root")
	}
}

// readAudit is the content of all files of the audit log.
func (v *multiUserRig) readAudit() string {
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

// rawSender sends bytes as ann and returns the response.
func (v *multiUserRig) rawSender() func(string) string {
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
		cmd := v.selfCommand(v.ann, "talk")
		cmd.Stdin = strings.NewReader(sent)
		b, err := cmd.CombinedOutput()
		require.NoError(v.t, err, "%s", b)
		return string(b)
	}
}

// selfCommand runs the test program as another user; see socketHelper.
func (v *multiUserRig) selfCommand(uid int, what string) *osexec.Cmd {
	exe, err := os.Executable()
	require.NoError(v.t, err)
	mine := filepath.Join(v.dir, "self")
	if _, err := os.Stat(mine); err != nil {
		b, err := os.ReadFile(exe)
		require.NoError(v.t, err)
		require.NoError(v.t, writeProgram(mine, string(b), 0o755))
	}
	cmd := v.commandAs(uid, []string{"PERMESSO_SOCKET_HELPER=" + what, "PERMESSO_SOCKET=" + v.socket})
	cmd.Path, cmd.Args = mine, []string{mine}
	return cmd
}
