package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/ipc/client"
)

const (
	probePatience  = 5 * time.Second // for one sandbox
	mountsPatience = 6 * time.Second // after that no other is begun
)

// checkMounts starts the very sandbox that permesso mounts --bwrap describes,
// for each workspace, and in it a probe that tries what an agent must not do.
func (d *doctor) checkMounts(ctx context.Context) []finding {
	box := findSandbox(ctx, d.bin, "", nil)
	if box.bwrap == "" {
		return []finding{{Severity: worthKnowing, What: "no sandbox was tried: " + oneLine(box.why), Cure: "apt-get install bubblewrap, or look at your containers by hand: permesso mounts WORKSPACE"}}
	}
	var list []finding
	workspaces := d.withFolders()
	for i, ws := range workspaces {
		if time.Since(d.began) > mountsPatience {
			list = append(list, finding{
				Severity: worthKnowing, What: plural(len(workspaces)-i, "workspace") + " left out, from " + ws + " on: there are too many for one look",
				Cure: "permesso doctor --workspace " + ws,
			})
			break
		}
		box.see = d.probeMount(ws)
		for _, user := range sandboxUsers() {
			list = append(list, d.tryMounts(ctx, box, ws, user)...)
		}
	}
	return orWell(list, "an agent in bubblewrap got at nothing but its two folders (%s)", plural(len(workspaces), "workspace"))
}

// sandboxUser is whom an agent may be, and the system that it then gets.
type sandboxUser struct {
	who    string
	system []string
}

// sandboxUsers: only root can start an agent that is root outside as well.
func sandboxUsers() []sandboxUser {
	system := bwrapSystem()
	users := []sandboxUser{{"a user", system}, {"root", append(slices.Clone(system), "--uid", "0", "--gid", "0")}}
	if i := slices.Index(system, "--unshare-all"); os.Getuid() == 0 && i >= 0 {
		own := []string{"--unshare-pid", "--unshare-ipc", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"}
		users = append(users, sandboxUser{"root of the host", slices.Replace(slices.Clone(system), i, i+len([]string{"--unshare-all", "--uid", "1000", "--gid", "1000"}), own...)})
	}
	return users
}

// tryMounts makes findings of what the probe could do.
func (d *doctor) tryMounts(ctx context.Context, box sandbox, ws string, user sandboxUser) []finding {
	breaches, err := d.probe(ctx, box, ws, user)
	if err != nil {
		return []finding{{Severity: warning, Workspace: ws, What: "no sandbox could be tried: " + oneLine(err.Error()), Cure: "permesso mounts " + ws + " --bwrap prints its mounts; try them by hand"}}
	}
	var list []finding
	for _, b := range breaches {
		f := finding{Workspace: ws, What: "an agent that is " + user.who + " in bubblewrap " + oneLine(b), Cure: "look for links and other mounts: permesso mounts " + ws + "; findmnt -T " + shellWord(d.layout.Home)}
		if !slices.ContainsFunc(list, func(g finding) bool { return g == f }) {
			list = append(list, f)
		}
	}
	return list
}

// probe runs permesso doctor probe in a sandbox.
func (d *doctor) probe(ctx context.Context, box sandbox, ws string, user sandboxUser) (breaches []string, err error) {
	q, err := json.Marshal(d.question(ws))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	args := append(slices.Clone(user.system), box.see.bwrap()...)
	args = append(args, "--ro-bind", box.bin, agentBin+"/permesso", agentBin+"/permesso", "doctor", "probe")
	cmd := exec.CommandContext(ctx, box.bwrap, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = bytes.NewReader(q), &out, &errs, time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := onOneThread(cmd.Run); err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(errs.String()), "\n")
		return nil, fmt.Errorf("probe: %w: %s", err, first)
	}
	if err := json.Unmarshal(out.Bytes(), &breaches); err != nil {
		return nil, fmt.Errorf("read the probe's answer: %w", err)
	}
	return breaches, nil
}

// question is what the probe must know. An attacker may have guessed it.
type question struct {
	Requests  string   `json:"requests"`
	Responses string   `json:"responses"`
	Own       thing    `json:"own"` // the folder of requests
	Private   []thing  `json:"private"`
	Sockets   []string `json:"sockets"`
	Gate      int      `json:"gate"`  // a process on the host
	Since     string   `json:"since"` // when it started: another sandbox's process may have its number
}

// thing is a file or folder on the host that is the gate's own.
type thing struct {
	Name   string `json:"name"`
	Path   string `json:"path"`
	Dev    uint64 `json:"dev"`
	Ino    uint64 `json:"ino"`
	Folder bool   `json:"folder"`
}

func (d *doctor) question(ws string) question {
	l := d.layout
	q := question{Requests: client.DefaultRequests, Responses: client.DefaultResponses, Gate: d.daemon}
	if q.Gate == 0 {
		q.Gate = os.Getpid() // as good a process of the host as any
	}
	q.Since = startOf(q.Gate)
	q.Own, _ = thingAt("its requests", l.Requests(ws))
	for _, t := range []struct{ name, path string }{
		{"the gate's home", l.Home},
		{"the keys", l.Keys()},
		{"the MAC key", filepath.Join(l.Keys(), "mac.key")},
		{"the signing key", filepath.Join(l.Keys(), "signing.key")},
		{"what is pending", l.Pendings(ws)},
		{"the decisions", l.Decisions(ws)},
		{"the receipts", l.Receipts(ws)},
		{"the records", l.Records(ws)},
		{"the audit log", l.Audit()},
		{"all workspaces", l.IPC()},
		{"its whole workspace", l.Workspace(ws)},
		{"the configuration", d.file},
	} {
		if thing, err := thingAt(t.name, t.path); err == nil {
			q.Private = append(q.Private, thing)
		}
	}
	for _, other := range d.withFolders() {
		if other != ws {
			if t, err := thingAt("workspace "+other, l.Workspace(other)); err == nil {
				q.Private = append(q.Private, t)
			}
		}
	}
	socket, _ := d.configTree()["socket"].(string)
	q.Sockets = sockets(l.Home, "/run/permesso", socket, "/var/run/docker.sock", "/run/podman/podman.sock")
	return q
}

func thingAt(name, path string) (thing, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return thing{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return thing{}, err
	}
	t := thing{Name: name, Path: path, Folder: info.IsDir()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		t.Dev, t.Ino = uint64(st.Dev), st.Ino
	}
	return t, nil
}

// sockets are those that stand at these paths, or in these folders.
func sockets(places ...string) (found []string) {
	for _, place := range places {
		if place == "" {
			continue
		}
		inside, err := filepath.Glob(filepath.Join(place, "*")) // fails only for bad patterns
		if err != nil {
			inside = nil
		}
		for _, path := range append(inside, place) {
			if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
				found = append(found, path)
			}
		}
	}
	return found
}

// startOf is when a process started, in ticks since the machine did: field 22
// of proc_pid_stat(5). "" when there is no such process.
func startOf(pid int) string {
	b, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // from field 3
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}
