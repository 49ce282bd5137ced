package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/sandbox"
	"github.com/permesso-dev/permesso/ipc"
)

// attempt is an attack that the sandbox must prevent. Its script exits with 0 only
// if it succeeds, as far as the agent can see; the test checks the host. In the
// script, $P is the folder with the two mounts, $GATE the daemon's home on the host,
// $VICTIM the PID of a process whose command line contains $LOOKS, $ID a pending
// request, $DONE a settled one and $N a new one.
type attempt struct {
	name     string
	script   string
	readOnly bool // it only reads or kills: no file changes
}

func attempts() []attempt {
	decide := func(file string) string { return `printf %s "$DECISION" > ` + file }
	return []attempt{
		{"write into the slot", decide(`$P/approval_decisions/$ID.json`), false},
		{"write into the slot, through the parent folder", decide(`$P/requests/../approval_decisions/$ID.json`), false},
		{"write into the slot, through its path on the host", decide(`"$GATE/ipc/work/approval_decisions/$ID.json"`), false},
		{"write into the slot, through a symbolic link to the folder", `ln -s ../approval_decisions $P/requests/d$N && ` + decide(`$P/requests/d$N/$ID.json`), false},
		{"write into the slot, through an absolute link to the folder", `ln -s "$GATE/ipc/work/approval_decisions" $P/requests/a$N && ` + decide(`$P/requests/a$N/$ID.json`), false},
		{"write into the slot, through a symbolic link to the file", `ln -s ../approval_decisions/$ID.json $P/requests/l$N.json && ` + decide(`$P/requests/l$N.json`) + ` && [ -L $P/requests/l$N.json ]`, false}, // the daemon may remove it in between
		{"move a file into the slot", decide(`$P/requests/f$N`) + ` && mv $P/requests/f$N $P/approval_decisions/$ID.json`, false},
		{"approve on the command line", `G="permesso --home $GATE --config $GATE/permesso.toml"; $G approve $ID --seen "$($G show $ID | sed -n 's/^seen: //p')"`, false},

		{"forge a pending", `printf %s "$PENDING" > $P/pending_approvals/$N.json`, false},
		{"change a pending", `printf x >> $P/pending_approvals/$ID.json`, false},
		{"remove a pending", `rm $P/pending_approvals/$ID.json`, false},
		{"swap a pending for a link", `rm $P/requests/../pending_approvals/$ID.json && ln -s ../requests/$ID.json $P/pending_approvals/$ID.json`, false},

		{"forge a response", `printf %s "$RESPONSE" > $P/responses/$ID.json`, false},
		{"forge a response through a symbolic link to the folder", `ln -s ../responses $P/requests/r$N && printf %s "$RESPONSE" > $P/requests/r$N/$ID.json`, false},
		{"overwrite a response", `printf %s "$RESPONSE" > $P/responses/$DONE.json`, false},
		{"append to a response", `printf ' ' >> $P/responses/$DONE.json`, false},
		{"truncate a response", `truncate -s 3 $P/responses/$DONE.json`, false},
		{"write into a response that is open for reading", `exec 3< $P/responses/$DONE.json && printf x >> /proc/self/fd/3`, false},
		{"remove a response", `rm -f $P/responses/$DONE.json && [ ! -e $P/responses/$DONE.json ]`, false},
		{"rename a response", `mv $P/responses/$DONE.json $P/responses/$N.json`, false},
		{"move a response away", `mv $P/responses/$DONE.json $P/requests/m$N.json`, false},
		{"move a file over a response", `printf %s "$RESPONSE" > $P/requests/o$N && mv -f $P/requests/o$N $P/responses/$DONE.json`, false},
		{"put a folder among the responses", `mkdir $P/responses/$N.json`, false},
		{"put a FIFO among the responses", `mkfifo $P/responses/$N.json`, false},
		{"put a link among the responses", `ln -s ../requests/$N.json $P/responses/$N.json`, false},

		{"hard link from a response", `ln $P/responses/$DONE.json $P/requests/h$N.json`, false},
		{"hard link to a response", `printf x > $P/requests/i$N && ln $P/requests/i$N $P/responses/$N.json`, false},
		{"hard link from a pending", `ln $P/pending_approvals/$ID.json $P/requests/j$N.json`, false},

		{"chmod a response", `chmod 0666 $P/responses/$DONE.json`, false},
		{"chmod the responses", `chmod 0777 $P/responses`, false},
		{"chmod the slots", `chmod 0777 $P/requests/../approval_decisions`, false},
		{"chown a response", `chown "$(id -u)" $P/responses/$DONE.json`, false},
		{"chown the responses", `chown "$(id -u):$(id -g)" $P/responses`, false},
		{"set the time of a response", `touch -d 2001-01-01 $P/responses/$DONE.json`, false},

		{"remount the responses", `mount -o remount,bind,rw $P/responses; printf x >> $P/responses/$DONE.json`, false},
		{"unmount the responses", `umount $P/responses; printf x >> $P/responses/$DONE.json`, false},
		{
			"remount the responses as root of a namespace of its own",
			`unshare -r -m sh -c 'mount -o remount,bind,rw $P/responses; printf x >> $P/responses/$DONE.json' || printf x >> $P/responses/$DONE.json`, false,
		},
		{
			"unmount the responses as root of a namespace of its own",
			`unshare -r -m sh -c 'umount -l $P/responses; printf x >> $P/responses/$DONE.json' || printf x >> $P/responses/$DONE.json`, false,
		},

		{"move the requests away and put a link there", `mv $P/requests $P/old && ln -s approval_decisions $P/requests`, false},
		{"remove the requests and put a link there", `rm -rf $P/requests; ln -sT responses $P/requests && [ -L $P/requests ]`, false},

		{"read the keys", `cat "$GATE/keys/mac.key"`, true},
		{"find the keys anywhere", `find / -path /proc -prune -o -path /usr -prune -o -name mac.key -print | grep .`, true},
		{"see the slots", `ls -d $P/requests/../approval_decisions "$GATE"`, true},
		{"reach the keys by the root of a process", `for p in /proc/[0-9]*; do cat "$p/root$GATE/keys/mac.key" && exit 0; done; exit 1`, true},
		{"reach the keys by the folder of a process", `for p in /proc/[0-9]*; do cat "$p/cwd/keys/mac.key" && exit 0; done; exit 1`, true},
		{"find a descriptor that leads out", `for f in /proc/[0-9]*/fd/*; do case $(readlink "$f") in "$GATE"*) exit 0 ;; esac; done; exit 1`, true},
		{"look into the gate's memory", `grep -qa "$LOOKS" /proc/$VICTIM/cmdline && grep -q . /proc/$VICTIM/maps`, true},
		{"kill the gate", `grep -qa "$LOOKS" /proc/$VICTIM/cmdline && kill -9 $VICTIM`, true},
	}
}

// sandboxRig is a home with requests, and a sandbox.
type sandboxRig struct {
	*rig
	mounts    string // as permesso mounts prints them
	effects   string // one line per run
	doneID    string // a settled request
	pendingID string // a pending request
	n         int
}

const sandboxRigConfig = `
[workspaces.work]
approval_timeout = "1h"
[tools.count]
trust = false
handler = { kind = "command", argv = ["/bin/sh", "-c", 'echo counted >>"$1"', "sh", "EFFECTS"] }
[tools.danger]
dangerous_writes = true
args = { x = { type = "number", optional = true } }
public_source = false
secret_data = false
public_sink = false
handler = { kind = "command", argv = ["/bin/sh", "-c", 'echo danger >>"$1"', "sh", "EFFECTS"] }
[[rules]]
match = { tool = "count" }
outcome = "allow"
`

// newSandboxRig has one settled and one pending request. Its daemon runs.
func newSandboxRig(t *testing.T) (*sandboxRig, *daemonProcess) {
	t.Helper()
	path, err := osexec.LookPath("bwrap")
	require.NoError(t, err, "hint: make deps, or: apt-get install bubblewrap")
	out, err := osexec.Command(path, append(sandbox.BwrapSystem(), "true")...).CombinedOutput()
	require.NoError(t, err, "bubblewrap makes no sandbox here: %s\nhint: .ci/deps bwrap says what it needs", out)

	effects := filepath.Join(t.TempDir(), "effects")
	c := &sandboxRig{rig: newRig(t, "work", strings.ReplaceAll(sandboxRigConfig, "EFFECTS", effects)), effects: effects}
	c.layout.Home = filepath.Join(c.dir, `the gate's "home", 50% $HOME`) // characters that permesso mounts must quote
	c.agent.Requests, c.agent.Responses = c.layout.Requests("work"), c.layout.Responses("work")
	d := c.serve()
	c.doneID = c.ask(`{"tool_name":"count","request_data":{}}`)
	require.Equal(t, approval.StatusAutoApproved, c.response(c.doneID).Status)
	c.pendingID = c.ask(`{"tool_name":"danger","request_data":{"x":1}}`)
	c.awaitPending("work", c.pendingID)
	b, err := os.ReadFile(c.config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(c.layout.Home, "permesso.toml"), b, 0o600))

	code, mounts, errs := c.run("", "mounts", "work", "--bwrap")
	require.Zero(t, code, errs)
	c.mounts = strings.TrimSpace(mounts)
	return c, d
}

// agentIdentities are the users that an agent may be in its sandbox, with the flags of
// bwrap for each, after the printed ones.
func agentIdentities() map[string][]string {
	return map[string][]string{
		"as printed":  nil,
		"a user":      {"--unshare-user", "--uid", "1000", "--gid", "1000"},
		"root inside": {"--unshare-user", "--uid", "0", "--gid", "0"},
	}
}

// vars are the variables of the scripts. An attacker could guess the values.
func (c *sandboxRig) vars(home string, victim int, looks string) map[string]string {
	c.n++
	id := fmt.Sprintf("%016x", 0xabc000+c.n)
	return map[string]string{
		"P": "/permesso", "GATE": home, "ID": c.pendingID, "DONE": c.doneID, "N": id, "VICTIM": strconv.Itoa(victim), "LOOKS": looks,
		"DECISION": `{"request_id":"` + c.pendingID + `","approved":true,"verdict":"approved","decided_by":"operator:root","mac":"` + strings.Repeat("0", 64) + `"}`,
		"PENDING":  `{"request_id":"` + id + `","tool_name":"count","request_data":{}}`,
		"RESPONSE": `{"version":1,"request_id":"` + c.pendingID + `","status":"approved"}`,
	}
}

// runInside runs a script in bubblewrap. The printed sandbox is part of a shell command
// line, unchanged; more are arguments after it.
func (c *sandboxRig) runInside(t *testing.T, printed string, more []string, vars map[string]string, script string) (int, string) {
	t.Helper()
	more = slices.Clone(more)
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		more = append(more, "--setenv", name, vars[name])
	}
	line := `exec bwrap ` + printed + ` "$@" --ro-bind ` + sandbox.ShellWord(program(t, true)) + ` ` + sandbox.AgentBin + `/permesso /bin/sh -c ` + sandbox.ShellWord(script)
	return c.shell(t, nil, line, more...)
}

func (c *sandboxRig) shell(t *testing.T, vars map[string]string, line string, args ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	cmd := osexec.CommandContext(ctx, "/bin/sh", append([]string{"-c", line, "sh"}, args...)...)
	for name, value := range vars {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(program(t, true))+":/usr/bin:/bin")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, time.Second
	err := sandbox.OnOneThread(cmd.Run)
	var exited *osexec.ExitError
	if !errors.As(err, &exited) {
		require.NoError(t, err, out.String())
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// tree maps every path below home to its metadata and content, except in the
// agent's own folder.
func tree(t *testing.T, home string) map[string]string {
	t.Helper()
	requests := ipc.Layout{Home: home}.Requests("work")
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		require.True(t, ok)
		if path == requests {
			all[path] = fmt.Sprint(info.Mode().Type(), st.Ino) // the folder was not replaced
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		content := ""
		switch {
		case info.Mode().IsRegular():
			if content, err = contentHash(path); err != nil {
				return err
			}
		case info.Mode()&fs.ModeSymlink != 0:
			if content, err = os.Readlink(path); err != nil {
				return err
			}
		}
		all[path] = fmt.Sprint(info.Mode(), st.Uid, st.Gid, st.Nlink, st.Ino, st.Size, st.Mtim, st.Ctim, content)
		return nil
	}))
	return all
}

// contentHash reads a file in parts: the journal is large.
func contentHash(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return fmt.Sprintf("%x", h.Sum(nil)), err
}

// startVictim starts a process in place of a daemon: its working folder is the home,
// a key is open, and it may be killed.
func startVictim(t *testing.T, home string) *osexec.Cmd {
	t.Helper()
	cmd := osexec.Command("/bin/sleep", "1000")
	key, err := os.Open(ipc.Layout{Home: home}.Keys() + "/mac.key")
	require.NoError(t, err)
	defer key.Close()
	cmd.Stdin, cmd.Dir = key, home
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z")
}

// No daemon runs, so that any change below the home is the agent's.
func TestSandboxHolds(t *testing.T) {
	t.Parallel()
	c, d := newSandboxRig(t)
	d.stop()
	target := startVictim(t, c.layout.Home)
	before := tree(t, c.layout.Home)
	require.Greater(t, len(before), 20)
	for who, more := range agentIdentities() {
		for _, a := range attempts() {
			t.Run(who+"/"+a.name, func(t *testing.T) {
				code, out := c.runInside(t, c.mounts, more, c.vars(c.layout.Home, target.Process.Pid, "sleep"), a.script)
				require.Equal(t, before, tree(t, c.layout.Home), "the host has changed: %s", out)
				require.NotZero(t, code, "the attempt succeeded: %s", out)
				require.True(t, alive(target.Process.Pid))
			})
		}
	}
	require.Equal(t, "counted\n", c.readEffects(t))
}

// The same attempts with the whole workspace mounted for writing. They must succeed
// and be detected, or the test above proves nothing.
func TestSandboxAttemptsAreReal(t *testing.T) {
	t.Parallel()
	c, d := newSandboxRig(t)
	d.stop()
	for i, a := range attempts() {
		t.Run(a.name, func(t *testing.T) {
			home := filepath.Join(c.dir, "copy"+strconv.Itoa(i))
			out, err := osexec.Command("cp", "-a", c.layout.Home, home).CombinedOutput()
			require.NoError(t, err, "%s", out)
			before := tree(t, home)
			target := startVictim(t, home)
			vars := c.vars(home, target.Process.Pid, "sleep")
			if a.readOnly { // readable only without a sandbox
				vars["P"] = ipc.Layout{Home: home}.Workspace("work")
				script := strings.NewReplacer("find / ", "find "+sandbox.ShellWord(home)+" ", "/proc/[0-9]*", "/proc/$VICTIM").Replace(a.script)
				code, out := c.shell(t, vars, script)
				require.Zero(t, code, out)
				return
			}
			wrong := sandbox.ShellWords(append(sandbox.BwrapSystem(), "--bind", ipc.Layout{Home: home}.Workspace("work"), "/permesso", "--bind", home, home))
			code, said := c.runInside(t, wrong, nil, vars, a.script)
			require.Zero(t, code, said)
			require.NotEqual(t, before, tree(t, home), "the change was not detected")
		})
	}
}

func (c *sandboxRig) readEffects(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(c.effects)
	require.NoError(t, err)
	return string(b)
}

// The daemon runs and processes what the attempts leave among the requests. It must
// run nothing, approve nothing, and keep running.
func TestSandboxHoldsWhileTheGateServes(t *testing.T) {
	t.Parallel()
	c, d := newSandboxRig(t)
	pid := d.cmd.Process.Pid
	c.requestFromInside(t, 2)
	settled := c.bytes(t, approval.DocResponse, c.doneID)
	pending := c.bytes(t, approval.DocPending, c.pendingID)
	for who, more := range agentIdentities() {
		for _, a := range attempts() {
			t.Run(who+"/"+a.name, func(t *testing.T) {
				code, out := c.runInside(t, c.mounts, more, c.vars(c.layout.Home, pid, "serve"), a.script)
				require.NotZero(t, code, "the attempt succeeded: %s", out)
			})
		}
	}
	c.requestFromInside(t, 3) // also gives the daemon time to process what the attempts left
	require.True(t, alive(pid))
	require.Equal(t, settled, c.bytes(t, approval.DocResponse, c.doneID))
	require.Equal(t, pending, c.bytes(t, approval.DocPending, c.pendingID))
	slots, err := os.ReadDir(c.layout.Decisions("work"))
	require.NoError(t, err)
	require.Empty(t, slots)
	records, err := filepath.Glob(c.glob(c.layout.Records("work")))
	require.NoError(t, err)
	for _, file := range records {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotContains(t, string(b), `"status":"approved"`)
	}

	// The request that was pending can still be decided.
	code, _, errs := c.run("", "approve", c.pendingID)
	require.Zero(t, code, errs)
	require.Equal(t, approval.StatusApproved, c.response(c.pendingID).Status)
	require.Equal(t, "counted\ncounted\ncounted\ndanger\n", c.readEffects(t))
	d.stop()
}

func (c *sandboxRig) glob(dir string) string {
	return strings.NewReplacer("[", `\[`, "*", `\*`, "?", `\?`).Replace(dir) + "/*.json"
}

// requestFromInside submits an allowed request in the sandbox and reads its
// response.
func (c *sandboxRig) requestFromInside(t *testing.T, runs int) {
	t.Helper()
	code, out := c.runInside(t, c.mounts, nil, nil, `permesso request count --wait --timeout 60s --json && ls /permesso`)
	require.Zero(t, code, out)
	require.Contains(t, out, `"status":"auto_approved"`)
	require.Contains(t, out, "\nbin\nrequests\nresponses\n", "the agent sees only these")
	require.Equal(t, strings.Repeat("counted\n", runs), c.readEffects(t))
}

func (c *sandboxRig) bytes(t *testing.T, d approval.Doc, id string) string {
	t.Helper()
	dir := map[approval.Doc]string{approval.DocResponse: c.layout.Responses("work"), approval.DocPending: c.layout.Pendings("work")}[d]
	b, err := os.ReadFile(filepath.Join(dir, id+".json"))
	require.NoError(t, err)
	return string(b)
}
