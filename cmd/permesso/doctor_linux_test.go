package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/doctor"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/receipt"
	"github.com/permesso-dev/permesso/security/seal"
)

// doctorRig is a home with one request that ran and one that is pending. Its
// daemon is stopped.
type doctorRig struct{ *rig }

const doctorRigConfig = `
[workspaces.work]
approval_timeout = "1h"
[tools.count]
trust = false
handler = { kind = "command", argv = ["/bin/echo", "counted"] }
[tools.danger]
public_source = false
secret_data = false
public_sink = false
dangerous_writes = true
handler = { kind = "command", argv = ["PROGRAM"] }
[[rules]]
match = { tool = "count" }
outcome = "allow"
`

func newDoctorRig(t *testing.T) *doctorRig {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	bin := filepath.Join(dir, "bin", "danger")
	require.NoError(t, writeProgram(bin, "#!/bin/sh\necho danger\n", 0o700))
	w := &doctorRig{newRig(t, "work", strings.ReplaceAll(doctorRigConfig, "PROGRAM", bin))}
	d := w.serve()
	done := w.ask(`{"tool_name":"count","request_data":{}}`)
	require.Equal(t, approval.StatusAutoApproved, w.response(done).Status)
	w.awaitPending("work", w.ask(`{"tool_name":"danger","request_data":{}}`))
	d.stop()
	return w
}

// copy returns a copy of the rig, for one case.
func (w *doctorRig) copy(t *testing.T) *doctorRig {
	t.Helper()
	dir := t.TempDir()
	for _, from := range []string{w.layout.Home, w.config} {
		out, err := osexec.Command("cp", "-a", from, dir).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	p := *w.rig
	p.t, p.dir, p.config, p.layout = t, dir, filepath.Join(dir, filepath.Base(w.config)), ipc.Layout{Home: filepath.Join(dir, "home")}
	return &doctorRig{&p}
}

// runDoctor runs the doctor's checks in this process.
func (w *doctorRig) runDoctor(t *testing.T, change func(*doctor.Doctor)) []doctor.Finding {
	t.Helper()
	d := w.doctor(t)
	if change != nil {
		change(d)
	}
	return d.Run(t.Context())
}

func (w *doctorRig) doctor(t *testing.T) *doctor.Doctor {
	t.Helper()
	a := &app{&console.Console{Version: version, Out: &bytes.Buffer{}, Err: &bytes.Buffer{}, Env: func(string) string { return "" }, ConfigFlag: w.config, HomeFlag: w.layout.Home}}
	d, err := doctor.New(a.Console, "")
	require.NoError(t, err)
	d.Quick, d.Bin = true, program(t, true)
	return d
}

// onlyFile is the only document in a folder.
func (w *doctorRig) onlyFile(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	return files[0]
}

// problemsOf returns the warnings and errors. It drops the warning that every home
// of root gets, and that about a tmpfs or overlay below the tests' folders.
func problemsOf(list []doctor.Finding) (is []doctor.Finding) {
	for _, f := range list {
		if f.Severity >= doctor.SeverityInfo || f.Check == "home" && os.Getuid() == 0 && f.Severity == doctor.SeverityWarning {
			continue
		}
		if f.Check == "fsync" && (strings.Contains(f.What, "tmpfs") || strings.Contains(f.What, "overlay")) {
			continue
		}
		is = append(is, f)
	}
	return is
}

func flipBit(t *testing.T, file string, at int) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	if at < 0 {
		at += len(b)
	}
	b[at] ^= 1
	require.NoError(t, os.WriteFile(file, b, 0o600))
}

// reseal changes a document and renews its MAC, as only the operator can.
func (w *doctorRig) reseal(t *testing.T, doc approval.Doc, k approval.Key, file string, change func([]byte) []byte) {
	t.Helper()
	key, err := seal.Load(ipc.OS(), w.layout.Keys())
	require.NoError(t, err)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	body, err := key.Open(doc, k, b)
	require.NoError(t, err)
	changed := change(body)
	require.NotEqual(t, body, changed)
	require.NoError(t, os.WriteFile(file, key.Seal(doc, k, changed), 0o600))
}

func writeFile(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(t, os.WriteFile(file, []byte(text), mode))
	require.NoError(t, os.Chmod(file, mode))
}

func (w *doctorRig) configure(t *testing.T, text string) {
	t.Helper()
	b, err := os.ReadFile(w.config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(w.config, append(b, text...), 0o600))
}

// doctorCase is one problem and the only finding that doctor must report for it.
type doctorCase struct {
	why      string
	damage   func(t *testing.T, w *doctorRig)
	change   func(*doctor.Doctor)
	check    string
	severity doctor.Severity
	says     string // in What or Cure
}

func chmod(mode os.FileMode, path func(*doctorRig) string) func(*testing.T, *doctorRig) {
	return func(t *testing.T, w *doctorRig) { require.NoError(t, os.Chmod(path(w), mode)) }
}

func clockMovedBy(by time.Duration) func(*doctor.Doctor) {
	return func(d *doctor.Doctor) { d.Now = d.Now.Add(by) }
}

func doctorCases() []doctorCase {
	const ws = "work"
	tool := func(argv string) func(*testing.T, *doctorRig) {
		return func(t *testing.T, w *doctorRig) {
			text := "[tools.extra]\ntrust = false\nhandler = { kind = \"command\", argv = [" + strings.ReplaceAll(argv, "DIR", w.dir) + "] }\n"
			w.configure(t, text)
		}
	}
	both := func(steps ...func(*testing.T, *doctorRig)) func(*testing.T, *doctorRig) {
		return func(t *testing.T, w *doctorRig) {
			for _, s := range steps {
				s(t, w)
			}
		}
	}
	put := func(name, text string, mode os.FileMode) func(*testing.T, *doctorRig) {
		return func(t *testing.T, w *doctorRig) { writeFile(t, filepath.Join(w.dir, name), text, mode) }
	}
	configure := func(text string) func(*testing.T, *doctorRig) {
		return func(t *testing.T, w *doctorRig) { w.configure(t, text) }
	}
	list := []doctorCase{
		{"an agent with access could decide", chmod(0o777, func(w *doctorRig) string { return w.layout.Decisions(ws) }), nil, "folders", doctor.SeverityError, "chmod 0700"},
		{"keys readable by others", chmod(0o750, func(w *doctorRig) string { return w.layout.Keys() }), nil, "folders", doctor.SeverityError, "other users may read"},
		{"responses writable: they could be forged", chmod(0o775, func(w *doctorRig) string { return w.layout.Responses(ws) }), nil, "folders", doctor.SeverityError, "chmod 0755"},
		{"a symbolic link", func(t *testing.T, w *doctorRig) {
			require.NoError(t, os.RemoveAll(w.layout.Records(ws)+"-old"))
			require.NoError(t, os.Rename(w.layout.Errors(ws), w.layout.Errors(ws)+"-old"))
			require.NoError(t, os.Symlink(w.layout.Errors(ws)+"-old", w.layout.Errors(ws)))
		}, nil, "folders", doctor.SeverityError, "is a symbolic link"},
		{"a missing folder, which the next start creates", func(t *testing.T, w *doctorRig) { require.NoError(t, os.Remove(w.layout.Grants())) }, nil, "folders", doctor.SeverityWarning, "permesso serve creates it"},
		{"a version that others may write", chmod(0o666, func(w *doctorRig) string { return w.layout.Version() }), nil, "folders", doctor.SeverityError, "chmod 0600"},
		{"a segment is missing", func(t *testing.T, w *doctorRig) {
			require.NoError(t, os.Remove(filepath.Join(w.layout.Journal(), "segment-2")))
		}, nil, "journal", doctor.SeverityError, "journal: segment-2 is missing\nput it back"},
		{"a version that this program does not know", func(t *testing.T, w *doctorRig) {
			writeFile(t, w.layout.Version(), "3\n", 0o600)
		}, nil, "journal", doctor.SeverityError, "version"},

		{"a parent folder that others may write to", chmod(0o777, func(w *doctorRig) string { return w.dir }), nil, "path", doctor.SeverityError, "chmod go-w"},
		{"a parent folder that the group may write to", chmod(0o770, func(w *doctorRig) string { return w.dir }), nil, "path", doctor.SeverityError, "chmod g-w"},
		{"a configuration that the group may write", chmod(0o620, func(w *doctorRig) string { return w.config }), nil, "path", doctor.SeverityError, "permesso.toml"},

		{"an unknown key", configure("[workspaces.work.limit]\npending = 3\n"), nil, "config", doctor.SeverityError, "limit"},
		{"no configuration file", func(t *testing.T, w *doctorRig) { require.NoError(t, os.Remove(w.config)) }, nil, "config", doctor.SeverityError, "no such file"},
		{"a rule for an unknown tool", configure("[[rules]]\nmatch = { tool = \"cuont\" }\noutcome = \"deny\"\n"), nil, "config", doctor.SeverityWarning, `did you mean`},
		{"an approver without an id", configure("[approvers.ann]\n"), nil, "config", doctor.SeverityWarning, "cannot recognize this person"},
		{"no person may approve", configure("[workspaces.mute]\nlocal_decisions = false\n"), nil, "config", doctor.SeverityWarning, "no person may approve"},
		{"an undefined approver", configure("[workspaces.other]\napprovers = [\"bob\"]\n"), nil, "config", doctor.SeverityError, `approver "bob" is not defined`},
		{"a principal who is not an approver", configure("[approvers.ann]\nlocal = 1\n[workspaces.other]\nprincipal = \"ann\"\n"), nil, "config", doctor.SeverityError, "not an approver of this workspace"},
		{"folders of an unknown workspace", func(t *testing.T, w *doctorRig) { require.NoError(t, w.layout.Prepare(ipc.OS(), "stray")) }, nil, "config", doctor.SeverityWarning, "add [workspaces.stray]"},

		{"a missing program", tool(`"/no/such/program"`), nil, "programs", doctor.SeverityError, "tool extra: /no/such/program does not exist"},
		{"not executable", both(put("p", "", 0o600), tool(`"DIR/p"`)), nil, "programs", doctor.SeverityError, "chmod +x"},
		{"a folder", tool(`"/usr/bin"`), nil, "programs", doctor.SeverityError, "is not a program"},
		{"a world-writable program", both(put("p", "", 0o777), tool(`"DIR/p"`)), nil, "programs", doctor.SeverityError, "chmod go-w"},
		{"a world-writable folder", both(put("open/p", "", 0o700), func(t *testing.T, w *doctorRig) {
			require.NoError(t, os.Chmod(filepath.Join(w.dir, "open"), 0o777))
		}, tool(`"DIR/open/p"`)), nil, "programs", doctor.SeverityError, "chmod go-w"},
		{"a world-writable script", both(put("s", "", 0o666), tool(`"/bin/sh", "-e", "DIR/s"`)), nil, "programs", doctor.SeverityError, "chmod go-w"},
		{"a program run by a wrapper", both(put("s", "", 0o777), tool(`"/usr/bin/nice", "-n5", "DIR/s"`)), nil, "programs", doctor.SeverityError, "chmod go-w"},

		{"a key readable by others", chmod(0o644, func(w *doctorRig) string { return w.layout.Keys() + "/mac.key" }), nil, "keys", doctor.SeverityError, "chmod 600"},
		{"no MAC key", func(t *testing.T, w *doctorRig) { require.NoError(t, os.Remove(w.layout.Keys()+"/mac.key")) }, nil, "keys", doctor.SeverityError, "mac.key"},
		{"a truncated key", func(t *testing.T, w *doctorRig) { require.NoError(t, os.Truncate(w.layout.Keys()+"/mac.key", 16)) }, nil, "keys", doctor.SeverityError, "16 bytes"},
		{"no public key", func(t *testing.T, w *doctorRig) { require.NoError(t, os.Remove(w.layout.Keys()+"/signing.pub")) }, nil, "keys", doctor.SeverityError, "signing.pub"},

		{"a public key of another key", func(t *testing.T, w *doctorRig) {
			code, _, errs := runCommand("init", "--home", filepath.Join(w.dir, "other"), "--config", w.config)
			require.Zero(t, code, errs)
			require.NoError(t, os.Rename(filepath.Join(w.dir, "other", "keys", "signing.pub"), w.layout.Keys()+"/signing.pub"))
		}, nil, "keys", doctor.SeverityError, "is not the public key of"},

		{"a changed pending request", func(t *testing.T, w *doctorRig) { flipBit(t, w.onlyFile(t, w.layout.Pendings(ws)), -5) }, nil, "seals", doctor.SeverityError, "was not written by the daemon"},
		{"a forged decision", func(t *testing.T, w *doctorRig) {
			name := filepath.Base(w.onlyFile(t, w.layout.Pendings(ws)))
			writeFile(t, filepath.Join(w.layout.Decisions(ws), name), `{"approved":true}`, 0o600)
		}, nil, "seals", doctor.SeverityError, "permesso decide --stdin"},
		{"a decision on another request", func(t *testing.T, w *doctorRig) {
			pending := w.onlyFile(t, w.layout.Pendings(ws))
			k := approval.Key{Workspace: ws, ID: strings.TrimSuffix(filepath.Base(pending), ".json")}
			code, _, errs := w.run("", "deny", k.ID)
			require.Zero(t, code, errs)
			w.reseal(t, approval.DocPending, k, pending, func(body []byte) []byte {
				return bytes.Replace(body, []byte(`"summary":"`), []byte(`"summary":"other`), 1)
			})
		}, nil, "seals", doctor.SeverityError, "is not that of the pending request"},
		{"a forged claim", func(t *testing.T, w *doctorRig) {
			writeFile(t, filepath.Join(w.layout.Receipts(ws), strings.Repeat("ab", 8)+".json"), `{}`, 0o600)
		}, nil, "seals", doctor.SeverityError, "find out what ran"},

		{"a changed record", func(t *testing.T, w *doctorRig) { flipBit(t, w.onlyFile(t, w.layout.Records(ws)), -5) }, func(d *doctor.Doctor) { d.Quick = false }, "records", doctor.SeverityError, "restore it from a backup"},
		{"a record with the receipt of another request", func(t *testing.T, w *doctorRig) {
			file := w.onlyFile(t, w.layout.Records(ws))
			k := approval.Key{Workspace: ws, ID: strings.TrimSuffix(filepath.Base(file), ".json")}
			w.reseal(t, approval.DocRecord, k, file, func(body []byte) []byte {
				rec, err := approval.ParseRecord(body, k)
				require.NoError(t, err)
				signer, err := receipt.Load(ipc.OS(), w.layout.Keys())
				require.NoError(t, err)
				rec.Receipt, err = signer.Issue(approval.ReceiptFacts{
					Workspace: ws, RequestID: strings.Repeat("0", 16), ArgsSHA256: "x", DecisionType: "approved", Issued: time.Now(), Expires: time.Now(),
				})
				require.NoError(t, err)
				body, err = rec.Encode()
				require.NoError(t, err)
				return body
			})
		}, func(d *doctor.Doctor) { d.Quick = false }, "records", doctor.SeverityError, "the receipt does not match"},
		{"a changed response", func(t *testing.T, w *doctorRig) { flipBit(t, w.onlyFile(t, w.layout.Responses(ws)), 3) }, func(d *doctor.Doctor) { d.Quick = false; d.Now = d.Now.Add(time.Minute) }, "records", doctor.SeverityError, "read another outcome"},
		{"a lost response", func(t *testing.T, w *doctorRig) { require.NoError(t, os.Remove(w.onlyFile(t, w.layout.Responses(ws)))) }, func(d *doctor.Doctor) { d.Quick = false; d.Now = d.Now.Add(time.Minute) }, "records", doctor.SeverityWarning, "is missing"},
		{"receipts of another signing key", func(t *testing.T, w *doctorRig) {
			for _, name := range []string{"signing.key", "signing.pub"} {
				require.NoError(t, os.Remove(filepath.Join(w.layout.Keys(), name)))
			}
			_, err := receipt.LoadOrCreate(ipc.OS(), w.layout.Keys(), "another")
			require.NoError(t, err)
		}, func(d *doctor.Doctor) { d.Quick = false }, "records", doctor.SeverityError, "if the signing key was replaced"},

		{"a log with an invalid end", func(t *testing.T, w *doctorRig) {
			f, err := os.OpenFile(filepath.Join(w.layout.Audit(), "log.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteString("{}}\n")
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}, nil, "audit", doctor.SeverityError, "audit log is damaged"},

		{"the clock was set back", nil, clockMovedBy(-48 * time.Hour), "clock", doctor.SeverityError, "was set back"},
		{"an approval that has not run", func(t *testing.T, w *doctorRig) {
			id := strings.TrimSuffix(filepath.Base(w.onlyFile(t, w.layout.Pendings(ws))), ".json")
			code, _, errs := w.run("", "approve", id)
			require.Zero(t, code, errs)
		}, nil, "stuck", doctor.SeverityWarning, "is approved and has not run"},
		{"an unsent card", configure("\n[workspaces.two]\n"), func(d *doctor.Doctor) {
			d.Now = d.Now.Add(2 * time.Minute)
			two := d.Config.Workspaces[ws]
			two.Channels = []string{"telegram"}
			d.Config.Workspaces[ws] = two
		}, "channels", doctor.SeverityWarning, "telegram has sent no message"},
	}
	if os.Getuid() == 0 { // only root can change owners
		chown := func(path func(*doctorRig) string) func(*testing.T, *doctorRig) {
			return func(t *testing.T, w *doctorRig) { require.NoError(t, os.Chown(path(w), 65534, 65534)) }
		}
		list = append(list, []doctorCase{
			{"another user's folder", chown(func(w *doctorRig) string { return w.layout.Pendings(ws) }), nil, "folders", doctor.SeverityError, "chown 0 "},
			{"another user's parent folder", chown(func(w *doctorRig) string { return w.dir }), nil, "path", doctor.SeverityError, "owned by UID 65534"},
			{"another user's key", chown(func(w *doctorRig) string { return w.layout.Keys() + "/mac.key" }), nil, "keys", doctor.SeverityError, "chown -R 0"},
			{"requests that fill the disk", func(t *testing.T, w *doctorRig) {
				f, err := os.Create(filepath.Join(w.layout.Requests("work"), ".big"))
				require.NoError(t, err)
				defer f.Close()
				require.NoError(t, unix.Fallocate(int(f.Fd()), 0, 0, 256<<20))
			}, nil, "disk", doctor.SeverityWarning, "takes 256 MiB, which no limit holds"},
			{"another user's program", both(put("p", "", 0o755), chown(func(w *doctorRig) string { return w.dir + "/p" }), tool(`"DIR/p"`)), nil, "programs", doctor.SeverityError, "UID 65534"},
		}...)
	}
	return list
}

func TestDoctorFindings(t *testing.T) {
	t.Parallel()
	healthy := newDoctorRig(t)
	require.Empty(t, problemsOf(healthy.runDoctor(t, nil)), "a healthy home")
	for _, tc := range doctorCases() {
		t.Run(tc.check+"/"+tc.why, func(t *testing.T) {
			w := healthy.copy(t)
			if tc.damage != nil {
				tc.damage(t, w)
			}
			found := problemsOf(w.runDoctor(t, tc.change))
			require.NotEmpty(t, found)
			i := slices.IndexFunc(found, func(f doctor.Finding) bool {
				return f.Check == tc.check && f.Severity == tc.severity && strings.Contains(f.What+"\n"+f.Cure, tc.says)
			})
			require.GreaterOrEqual(t, i, 0, "%+v", found)
			require.NotEmpty(t, found[i].Cure, "a finding has a cure")
			for _, f := range found {
				require.Equal(t, tc.check, f.Check, "one cause gives findings of one check: %+v", found)
			}
		})
	}
}

// In a healthy home the doctor, with the sandbox probe, finds no problem and
// changes nothing, whether or not the daemon runs.
func TestDoctorOfAHealthyHome(t *testing.T) {
	t.Parallel()
	w := newDoctorRig(t)
	before := tree(t, w.layout.Home)
	code, out, errs := w.run("", "doctor", "--json")
	require.NotEqual(t, console.ExitError, code, errs)
	require.NotContains(t, out, `"severity":"error"`)
	require.Regexp(t, `of [0-9]{2,} attempts none succeeded \(/proc [0-9]+, limits [0-9]+, memory [0-9]+, mounts [0-9]+, .*ptrace [0-9]+, .*signals [0-9]+`, out)
	require.NotContains(t, out, "not tried")
	after := tree(t, w.layout.Home)
	for _, m := range []map[string]string{before, after} {
		delete(m, w.layout.Run()) // the probe creates and removes a file there
	}
	require.Equal(t, before, after)
	left, err := filepath.Glob(filepath.Join(w.layout.Requests("work"), "*"))
	require.NoError(t, err)
	require.Empty(t, left)

	w.serve()
	awaitFile(t, w.layout.Lock())
	d := w.doctor(t)
	d.Quick = false
	await(t, w.layout.Lock(), func() bool { up, err := d.Served(); return err == nil && up })
	list := d.Run(t.Context())
	require.Empty(t, problemsOf(list))
	require.NotZero(t, d.Daemon)
	for _, name := range strings.Fields("config home daemon folders journal path programs keys seals records audit mounts agents inotify clock disk fsync stuck channels telegram") {
		require.True(t, slices.ContainsFunc(list, func(f doctor.Finding) bool { return f.Check == name }), "%s has no finding", name)
	}
}

// The doctor ignores world-writable files that are arguments but not programs.
func TestDoctorIgnoresDataFiles(t *testing.T) {
	t.Parallel()
	w := newDoctorRig(t)
	writeFile(t, filepath.Join(w.dir, "data"), "", 0o666)
	w.configure(t, fmt.Sprintf("[tools.extra]\ntrust = false\nhandler = { kind = \"command\", argv = [\"/bin/sh\", \"-c\", \"cat $1\", \"sh\", %[1]q] }\n"+
		"[tools.more]\ntrust = false\nhandler = { kind = \"command\", argv = [\"/bin/cat\", %[1]q] }\n", w.dir+"/data"))
	require.Empty(t, problemsOf(w.runDoctor(t, nil)))
}

// The configuration changed, and the daemon has not reloaded it.
func TestDoctorReportsAStaleConfiguration(t *testing.T) {
	t.Parallel()
	w := newDoctorRig(t)
	w.serve().awaitLog("serving")
	await(t, w.layout.Audit(), func() bool { up, err := w.doctor(t).Served(); return err == nil && up })
	later := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes(w.config, later, later))
	found := problemsOf(w.runDoctor(t, nil))
	require.Len(t, found, 1, "%+v", found)
	require.Equal(t, "daemon", found[0].Check)
	require.Contains(t, found[0].What, "has not reloaded the configuration since its change")
}

// A daemon that is alive but stopped: requests stay unread.
func TestDoctorFindsStuckRequests(t *testing.T) {
	t.Parallel()
	w := newDoctorRig(t)
	d := w.serve()
	await(t, w.layout.Lock(), func() bool { up, err := w.doctor(t).Served(); return err == nil && up })
	d.awaitLog("serving")
	d.signal(syscall.SIGSTOP)
	defer d.signal(syscall.SIGCONT)
	await(t, w.layout.Lock(), func() bool { return stopped(d.cmd.Process.Pid) })
	w.ask(`{"tool_name":"count","request_data":{}}`)

	require.Empty(t, problemsOf(w.runDoctor(t, nil)), "too early to report")
	found := problemsOf(w.runDoctor(t, clockMovedBy(time.Minute)))
	require.Len(t, found, 1, "%+v", found)
	require.Contains(t, found[0].What, "1 request not read for more than 10s while the daemon runs")
	require.Equal(t, doctor.SeverityWarning, found[0].Severity)

	found = problemsOf(w.runDoctor(t, clockMovedBy(2*time.Hour)))
	require.Len(t, found, 2, "%+v", found)
	require.Contains(t, found[1].What, "and is not settled while the daemon runs")
}

func stopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	return err == nil && !slices.ContainsFunc(threads, func(file string) bool {
		b, err := os.ReadFile(file)
		_, rest, _ := strings.Cut(string(b), ") ")
		return err != nil || !strings.HasPrefix(rest, "T")
	})
}

const slowConfig = `
[workspaces.work]
[tools.slow]
trust = false
handler = { kind = "command", argv = ["/bin/sleep", "1000"], timeout = "30m" }
[[rules]]
match = { tool = "slow" }
outcome = "allow"
`

func TestDoctorFindsInterruptedRuns(t *testing.T) {
	t.Parallel()
	w := &doctorRig{newRig(t, "work", slowConfig)}
	w.plain = true // the test kills it
	d := w.serve()
	id := w.ask(`{"tool_name":"slow","request_data":{}}`)
	awaitFile(t, filepath.Join(w.layout.Receipts("work"), id+".json"))
	taken := filepath.Join(w.layout.Requests("work"), id+".json")
	await(t, taken, func() bool { _, err := os.Lstat(taken); return errors.Is(err, fs.ErrNotExist) })

	require.Empty(t, problemsOf(w.runDoctor(t, nil)), "the run is within its timeout")
	found := problemsOf(w.runDoctor(t, clockMovedBy(2*time.Hour)))
	require.Len(t, found, 1, "%+v", found)
	require.Contains(t, found[0].What, "longer than its tool's timeout")

	d.kill()
	found = problemsOf(w.runDoctor(t, nil))
	require.Len(t, found, 1, "%+v", found)
	require.Contains(t, found[0].What, id+" was interrupted while running")
	require.Contains(t, found[0].Cure, "permesso sweep")
}

func TestDoctorFindsUnsentCards(t *testing.T) {
	t.Parallel()
	w := newDoctorRig(t)
	id := strings.TrimSuffix(filepath.Base(w.onlyFile(t, w.layout.Pendings("work"))), ".json")
	require.NoError(t, w.layout.PrepareSent(ipc.OS(), "telegram", "work"))
	for _, tc := range []struct {
		sent string
		want int
	}{
		{`{}`, 0},
		{`{"state":"sent"}`, 0},
		{`{"state":"sending"}`, 1}, // written before sending, so that the daemon knows the message when a tap arrives
	} {
		writeFile(t, filepath.Join(w.layout.Sent("telegram", "work"), id+".json"), tc.sent, 0o600)
		require.Len(t, problemsOf(w.runDoctor(t, func(d *doctor.Doctor) {
			d.Now = d.Now.Add(2 * time.Minute)
			ws := d.Config.Workspaces["work"]
			ws.Channels = []string{"telegram"}
			d.Config.Workspaces["work"] = ws
		})), tc.want, tc.sent)
	}
}

func TestDoctorReadsTheHealthReport(t *testing.T) {
	t.Parallel()
	w := newDoctorRig(t)
	w.serve().awaitLog("serving")
	read := func(health string) []doctor.Finding {
		t.Helper()
		for {
			writeFile(t, w.layout.Health(), health, 0o600)
			list := w.runDoctor(t, nil)
			if now, err := os.ReadFile(w.layout.Health()); err == nil && string(now) == health {
				return list
			} // the daemon has written its own meanwhile
		}
	}
	require.Empty(t, problemsOf(read(`{"status":"ok","problems":[],"version":"`+version+`"}`)))
	list := read(`{"status":"ok","problems":[],"notes":[{"what":"an email was not understood"}],"version":"` + version + `"}`)
	require.Empty(t, problemsOf(list))
	require.True(t, slices.ContainsFunc(list, func(f doctor.Finding) bool { return f.What == "the daemon notes: an email was not understood" }))
	found := problemsOf(read(`{"status":"degraded","problems":[{"what":"disk full\u001b[31m","hint":"free space"}],"version":"v0.0.1"}`))
	require.Len(t, found, 2)
	require.Equal(t, `the daemon reports: disk full\u{001B}[31m`, found[0].What)
	require.Equal(t, "free space", found[0].Cure)
	require.Contains(t, found[1].What, "runs version v0.0.1")
}

// only returns the findings of one check.
func only(check string, list []doctor.Finding) []doctor.Finding {
	return slices.DeleteFunc(list, func(f doctor.Finding) bool { return f.Check != check })
}

func TestDoctorClock(t *testing.T) {
	w := newDoctorRig(t)
	for _, year := range []int{1970, 2025, 2101} {
		now := time.Date(year, 1, 2, 0, 0, 0, 0, time.UTC)
		found := problemsOf(only("clock", w.runDoctor(t, func(d *doctor.Doctor) { d.Now = now })))
		require.NotEmpty(t, found)
		require.Contains(t, found[0].What, fmt.Sprintf("the clock shows %d-01-02", year))
		require.Equal(t, doctor.SeverityError, found[0].Severity)
	}
}

var varies = regexp.MustCompile(`\d+ MiB left.*|process \d+ since .*|a commit to the journal takes .*|\d{4}-\d\d-\d\dT.*|\d+ folders`)

func TestDoctorGolden(t *testing.T) {
	w := newDoctorRig(t)
	require.NoError(t, os.Chmod(w.layout.Decisions("work"), 0o777))
	require.NoError(t, os.Chmod(w.layout.Keys()+"/mac.key", 0o640))
	w.configure(t, "[workspaces.mute]\nlocal_decisions = false\n")
	d := w.doctor(t)
	list := slices.DeleteFunc(d.Run(t.Context()), func(f doctor.Finding) bool {
		return slices.Contains([]string{"home", "clock", "disk", "fsync", "agents"}, f.Check) // depends on this machine
	})
	got := strings.ReplaceAll(d.Text(list), w.dir, "DIR")
	got = varies.ReplaceAllString(got, "…")
	file := filepath.Join("..", "..", "testdata", "doctor", "sick.golden")
	if os.Getenv("PERMESSO_UPDATE") != "" {
		writeFile(t, file, got, 0o644)
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}
