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

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/receipt"
	"github.com/permesso-dev/permesso/security/seal"
)

// ward is a home in which something has happened: one request was run, one
// waits. Its daemon is down.
type ward struct{ *place }

const warded = `
[workspaces.work]
approval_timeout = "1h"
[tools.count]
trust = false
handler = { kind = "command", argv = ["/bin/echo", "counted"] }
[tools.danger]
handler = { kind = "command", argv = ["PROGRAM"] }
[[rules]]
match = { tool = "count" }
outcome = "allow"
`

func newWard(t *testing.T) *ward {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	bin := filepath.Join(dir, "bin", "danger")
	require.NoError(t, os.WriteFile(bin, []byte("#!/bin/sh\necho danger\n"), 0o700))
	w := &ward{newPlace(t, "work", strings.ReplaceAll(warded, "PROGRAM", bin))}
	d := w.serve()
	done := w.ask(`{"tool_name":"count","request_data":{}}`)
	require.Equal(t, approval.StatusAutoApproved, w.response(done).Status)
	w.awaitPending("work", w.ask(`{"tool_name":"danger","request_data":{}}`))
	d.stop()
	return w
}

// copy is a ward like this one, for another illness.
func (w *ward) copy(t *testing.T) *ward {
	t.Helper()
	dir := t.TempDir()
	for _, from := range []string{w.layout.Home, w.config} {
		out, err := osexec.Command("cp", "-a", from, dir).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	p := *w.place
	p.t, p.dir, p.config, p.layout = t, dir, filepath.Join(dir, filepath.Base(w.config)), ipc.Layout{Home: filepath.Join(dir, "home")}
	return &ward{&p}
}

// examine is permesso doctor within this process.
func (w *ward) examine(t *testing.T, change func(*doctor)) []finding {
	t.Helper()
	d := w.doctor(t)
	if change != nil {
		change(d)
	}
	return d.examine(t.Context())
}

func (w *ward) doctor(t *testing.T) *doctor {
	t.Helper()
	a := &app{Main: Main{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}, Env: func(string) string { return "" }}, configFlag: w.config, homeFlag: w.layout.Home}
	d, err := a.doctor("")
	require.NoError(t, err)
	d.quick, d.bin = true, program(t, true)
	return d
}

// the only one of a kind of document.
func (w *ward) file(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	return files[0]
}

// wrong leaves what is worse than worth knowing, but for what every home of root
// has, and a disk in memory where the tests' folders are on one.
func wrong(list []finding) (is []finding) {
	for _, f := range list {
		if f.Severity >= worthKnowing || f.Check == "home" && os.Getuid() == 0 && f.Severity == warning {
			continue
		}
		if f.Check == "fsync" && (strings.Contains(f.What, "tmpfs") || strings.Contains(f.What, "overlay")) {
			continue
		}
		is = append(is, f)
	}
	return is
}

func flip(t *testing.T, file string, at int) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	if at < 0 {
		at += len(b)
	}
	b[at] ^= 1
	require.NoError(t, os.WriteFile(file, b, 0o600))
}

// reseal changes a document as only the operator could.
func (w *ward) reseal(t *testing.T, doc approval.Doc, k approval.Key, file string, change func([]byte) []byte) {
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

func write(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(t, os.WriteFile(file, []byte(text), mode))
	require.NoError(t, os.Chmod(file, mode))
}

func (w *ward) configure(t *testing.T, text string) {
	t.Helper()
	b, err := os.ReadFile(w.config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(w.config, append(b, text...), 0o600))
}

// illness is one thing wrong, and what doctor must say of it and nothing else.
type illness struct {
	why      string
	inflict  func(t *testing.T, w *ward)
	change   func(*doctor)
	check    string
	severity severity
	says     string // in what or cure
}

func chmod(mode os.FileMode, path func(*ward) string) func(*testing.T, *ward) {
	return func(t *testing.T, w *ward) { require.NoError(t, os.Chmod(path(w), mode)) }
}

func later(by time.Duration) func(*doctor) {
	return func(d *doctor) { d.now = d.now.Add(by) }
}

func illnesses() []illness {
	const ws = "work"
	tool := func(argv string) func(*testing.T, *ward) {
		return func(t *testing.T, w *ward) {
			text := "[tools.extra]\nhandler = { kind = \"command\", argv = [" + strings.ReplaceAll(argv, "DIR", w.dir) + "] }\n"
			w.configure(t, text)
		}
	}
	both := func(steps ...func(*testing.T, *ward)) func(*testing.T, *ward) {
		return func(t *testing.T, w *ward) {
			for _, s := range steps {
				s(t, w)
			}
		}
	}
	put := func(name, text string, mode os.FileMode) func(*testing.T, *ward) {
		return func(t *testing.T, w *ward) { write(t, filepath.Join(w.dir, name), text, mode) }
	}
	configure := func(text string) func(*testing.T, *ward) {
		return func(t *testing.T, w *ward) { w.configure(t, text) }
	}
	list := []illness{
		{"an agent that reaches it would decide", chmod(0o777, func(w *ward) string { return w.layout.Decisions(ws) }), nil, "folders", serious, "chmod 0700"},
		{"keys are for one", chmod(0o750, func(w *ward) string { return w.layout.Keys() }), nil, "folders", serious, "other users may read"},
		{"forged responses would be believed", chmod(0o775, func(w *ward) string { return w.layout.Responses(ws) }), nil, "folders", serious, "chmod 0755"},
		{"a link leads elsewhere", func(t *testing.T, w *ward) {
			require.NoError(t, os.RemoveAll(w.layout.Records(ws)+"-old"))
			require.NoError(t, os.Rename(w.layout.Errors(ws), w.layout.Errors(ws)+"-old"))
			require.NoError(t, os.Symlink(w.layout.Errors(ws)+"-old", w.layout.Errors(ws)))
		}, nil, "folders", serious, "is a symbolic link"},
		{"the next start makes it", func(t *testing.T, w *ward) { require.NoError(t, os.Remove(w.layout.Grants())) }, nil, "folders", warning, "permesso serve makes it"},

		{"who may rename the home replaces it", chmod(0o777, func(w *ward) string { return w.dir }), nil, "path", serious, "chmod go-w"},
		{"a group is others, too", chmod(0o770, func(w *ward) string { return w.dir }), nil, "path", serious, "chmod g-w"},
		{"who writes the configuration approves", chmod(0o620, func(w *ward) string { return w.config }), nil, "path", serious, "permesso.toml"},

		{"a key that does not exist", configure("[workspaces.work.limit]\npending = 3\n"), nil, "config", serious, "limit"},
		{"no file", func(t *testing.T, w *ward) { require.NoError(t, os.Remove(w.config)) }, nil, "config", serious, "no such file"},
		{"a rule for no tool", configure("[[rules]]\nmatch = { tool = \"cuont\" }\noutcome = \"deny\"\n"), nil, "config", warning, `did you mean`},
		{"an approver whom nobody recognises", configure("[approvers.ann]\n"), nil, "config", warning, "nobody is recognised"},
		{"nobody may approve", configure("[workspaces.mute]\nlocal_decisions = false\n"), nil, "config", warning, "nobody may approve"},
		{"an approver who is none", configure("[workspaces.other]\napprovers = [\"bob\"]\n"), nil, "config", serious, `approver "bob" is not defined`},
		{"a principal who is no approver", configure("[approvers.ann]\nlocal = 1\n[workspaces.other]\nprincipal = \"ann\"\n"), nil, "config", serious, "not among"},
		{"folders of no workspace", func(t *testing.T, w *ward) { require.NoError(t, w.layout.Prepare(ipc.OS(), "stray")) }, nil, "config", warning, "add [workspaces.stray]"},

		{"no program", tool(`"/no/such/program"`), nil, "programs", serious, "tool extra: /no/such/program does not exist"},
		{"not executable", both(put("p", "", 0o600), tool(`"DIR/p"`)), nil, "programs", serious, "chmod +x"},
		{"a folder", tool(`"/usr/bin"`), nil, "programs", serious, "is not a program"},
		{"everybody's program", both(put("p", "", 0o777), tool(`"DIR/p"`)), nil, "programs", serious, "chmod go-w"},
		{"everybody's folder", both(put("open/p", "", 0o700), func(t *testing.T, w *ward) {
			require.NoError(t, os.Chmod(filepath.Join(w.dir, "open"), 0o777))
		}, tool(`"DIR/open/p"`)), nil, "programs", serious, "chmod go-w"},
		{"everybody's script", both(put("s", "", 0o666), tool(`"/bin/sh", "-e", "DIR/s"`)), nil, "programs", serious, "chmod go-w"},
		{"a program for a program", both(put("s", "", 0o777), tool(`"/usr/bin/nice", "-n5", "DIR/s"`)), nil, "programs", serious, "chmod go-w"},

		{"others may read the key", chmod(0o644, func(w *ward) string { return w.layout.Keys() + "/mac.key" }), nil, "keys", serious, "chmod 600"},
		{"no MAC key", func(t *testing.T, w *ward) { require.NoError(t, os.Remove(w.layout.Keys()+"/mac.key")) }, nil, "keys", serious, "mac.key"},
		{"half a key", func(t *testing.T, w *ward) { require.NoError(t, os.Truncate(w.layout.Keys()+"/mac.key", 16)) }, nil, "keys", serious, "16 bytes"},
		{"no public key", func(t *testing.T, w *ward) { require.NoError(t, os.Remove(w.layout.Keys()+"/signing.pub")) }, nil, "keys", serious, "signing.pub"},

		{"halves of two keys", func(t *testing.T, w *ward) {
			code, _, errs := typed("init", "--home", filepath.Join(w.dir, "other"), "--config", w.config)
			require.Zero(t, code, errs)
			require.NoError(t, os.Rename(filepath.Join(w.dir, "other", "keys", "signing.pub"), w.layout.Keys()+"/signing.pub"))
		}, nil, "keys", serious, "is not the public key of"},

		{"a changed pending", func(t *testing.T, w *ward) { flip(t, w.file(t, w.layout.Pendings(ws)), -5) }, nil, "seals", serious, "is not as the gate wrote it"},
		{"a forged decision", func(t *testing.T, w *ward) {
			name := filepath.Base(w.file(t, w.layout.Pendings(ws)))
			write(t, filepath.Join(w.layout.Decisions(ws), name), `{"approved":true}`, 0o600)
		}, nil, "seals", serious, "permesso decide --stdin"},
		{"a decision of something else", func(t *testing.T, w *ward) {
			pending := w.file(t, w.layout.Pendings(ws))
			k := approval.Key{Workspace: ws, ID: strings.TrimSuffix(filepath.Base(pending), ".json")}
			code, _, errs := w.run("", "deny", k.ID)
			require.Zero(t, code, errs)
			w.reseal(t, approval.DocPending, k, pending, func(body []byte) []byte {
				return bytes.Replace(body, []byte(`"summary":"`), []byte(`"summary":"other`), 1)
			})
		}, nil, "seals", serious, "for something else than what is pending"},
		{"a forged claim", func(t *testing.T, w *ward) {
			write(t, filepath.Join(w.layout.Receipts(ws), strings.Repeat("ab", 8)+".json"), `{}`, 0o600)
		}, nil, "seals", serious, "find out what ran"},

		{"a changed record", func(t *testing.T, w *ward) { flip(t, w.file(t, w.layout.Records(ws)), -5) }, func(d *doctor) { d.quick = false }, "records", serious, "restore it from a backup"},
		{"a record with another's receipt", func(t *testing.T, w *ward) {
			file := w.file(t, w.layout.Records(ws))
			k := approval.Key{Workspace: ws, ID: strings.TrimSuffix(filepath.Base(file), ".json")}
			w.reseal(t, approval.DocRecord, k, file, func(body []byte) []byte {
				rec, err := approval.ParseRecord(body, k)
				require.NoError(t, err)
				signer, err := receipt.Load(ipc.OS(), w.layout.Keys())
				require.NoError(t, err)
				rec.Receipt, err = signer.Issue(receipt.Facts{
					Workspace: ws, RequestID: strings.Repeat("0", 16), ArgsSHA256: "x", DecisionType: "approved", Issued: time.Now(), Expires: time.Now(),
				})
				require.NoError(t, err)
				body, err = rec.Encode()
				require.NoError(t, err)
				return body
			})
		}, func(d *doctor) { d.quick = false }, "records", serious, "for something else"},
		{"a changed response", func(t *testing.T, w *ward) { flip(t, w.file(t, w.layout.Responses(ws)), 3) }, func(d *doctor) { d.quick = false; d.now = d.now.Add(time.Minute) }, "records", serious, "told something else"},
		{"a lost response", func(t *testing.T, w *ward) { require.NoError(t, os.Remove(w.file(t, w.layout.Responses(ws)))) }, func(d *doctor) { d.quick = false; d.now = d.now.Add(time.Minute) }, "records", warning, "is gone"},
		{"another gate's receipts", func(t *testing.T, w *ward) {
			for _, name := range []string{"signing.key", "signing.pub"} {
				require.NoError(t, os.Remove(filepath.Join(w.layout.Keys(), name)))
			}
			code, _, errs := w.run("", "init")
			require.Zero(t, code, errs)
		}, func(d *doctor) { d.quick = false }, "records", serious, "was the signing key replaced?"},

		{"a log that ends in something else", func(t *testing.T, w *ward) {
			f, err := os.OpenFile(filepath.Join(w.layout.Audit(), "log.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteString("{}}\n")
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}, nil, "audit", serious, "audit log is damaged"},

		{"the clock was set back", nil, later(-48 * time.Hour), "clock", serious, "was set back"},
		{"an approval that waits for the gate", func(t *testing.T, w *ward) {
			id := strings.TrimSuffix(filepath.Base(w.file(t, w.layout.Pendings(ws))), ".json")
			code, _, errs := w.run("", "approve", id)
			require.Zero(t, code, errs)
		}, nil, "stuck", warning, "is approved and has not run"},
		{"a card that was not sent", configure("\n[workspaces.two]\n"), func(d *doctor) {
			d.now = d.now.Add(2 * time.Minute)
			two := d.cfg.Workspaces[ws]
			two.Channels = []string{"telegram"}
			d.cfg.Workspaces[ws] = two
		}, "channels", warning, "telegram has not sent a card"},
	}
	if os.Getuid() == 0 { // nobody else can give things away
		chown := func(path func(*ward) string) func(*testing.T, *ward) {
			return func(t *testing.T, w *ward) { require.NoError(t, os.Chown(path(w), 65534, 65534)) }
		}
		list = append(list, []illness{
			{"somebody else's folder", chown(func(w *ward) string { return w.layout.Pendings(ws) }), nil, "folders", serious, "chown 0 "},
			{"somebody else's way there", chown(func(w *ward) string { return w.dir }), nil, "path", serious, "owned by UID 65534"},
			{"somebody else's key", chown(func(w *ward) string { return w.layout.Keys() + "/mac.key" }), nil, "keys", serious, "chown -R 0"},
			{"somebody else's program", both(put("p", "", 0o755), chown(func(w *ward) string { return w.dir + "/p" }), tool(`"DIR/p"`)), nil, "programs", serious, "UID 65534"},
		}...)
	}
	return list
}

func TestDoctorFindsIt(t *testing.T) {
	t.Parallel()
	well := newWard(t)
	require.Empty(t, wrong(well.examine(t, nil)), "a home that is well")
	for _, ill := range illnesses() {
		t.Run(ill.check+"/"+ill.why, func(t *testing.T) {
			w := well.copy(t)
			if ill.inflict != nil {
				ill.inflict(t, w)
			}
			found := wrong(w.examine(t, ill.change))
			require.NotEmpty(t, found)
			i := slices.IndexFunc(found, func(f finding) bool {
				return f.Check == ill.check && f.Severity == ill.severity && strings.Contains(f.What+"\n"+f.Cure, ill.says)
			})
			require.GreaterOrEqual(t, i, 0, "%+v", found)
			require.NotEmpty(t, found[i].Cure, "it says what to do")
			for _, f := range found {
				require.Equal(t, ill.check, f.Check, "one cause, one kind of finding: %+v", found)
			}
		})
	}
}

// The daemon of a home that is well runs, or does not: nothing to complain of,
// with the sandbox and everything, and nothing is changed.
func TestDoctorLeavesAHealthyHomeAlone(t *testing.T) {
	w := newWard(t)
	before := tree(t, w.layout.Home)
	code, out, errs := w.run("", "doctor", "--json")
	require.NotEqual(t, codeError, code, errs)
	require.NotContains(t, out, `"severity":"error"`)
	after := tree(t, w.layout.Home)
	for _, m := range []map[string]string{before, after} {
		delete(m, w.layout.Run()) // a folder came and went
	}
	require.Equal(t, before, after)
	left, err := filepath.Glob(filepath.Join(w.layout.Requests("work"), "*"))
	require.NoError(t, err)
	require.Empty(t, left)

	w.serve()
	awaitFile(t, w.layout.Lock())
	d := w.doctor(t)
	d.quick = false
	await(t, w.layout.Lock(), func() bool { up, err := d.served(); return err == nil && up })
	list := d.examine(t.Context())
	require.Empty(t, wrong(list))
	require.True(t, d.running)
	require.NotZero(t, d.daemon)
	for _, c := range checks() {
		require.True(t, slices.ContainsFunc(list, func(f finding) bool { return f.Check == c.name }), "%s says nothing", c.name)
	}
}

// Data that others write to is not our affair.
func TestDoctorLeavesDataAlone(t *testing.T) {
	w := newWard(t)
	write(t, filepath.Join(w.dir, "data"), "", 0o666)
	w.configure(t, fmt.Sprintf("[tools.extra]\nhandler = { kind = \"command\", argv = [\"/bin/sh\", \"-c\", \"cat $1\", \"sh\", %[1]q] }\n"+
		"[tools.more]\nhandler = { kind = \"command\", argv = [\"/bin/cat\", %[1]q] }\n", w.dir+"/data"))
	require.Empty(t, wrong(w.examine(t, nil)))
}

// The gate runs with what the file said at its start, or when it last read it.
func TestDoctorNoticesAnUnreadConfiguration(t *testing.T) {
	w := newWard(t)
	w.serve().awaitLog("serving")
	await(t, w.layout.Audit(), func() bool { up, err := w.doctor(t).served(); return err == nil && up })
	later := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes(w.config, later, later))
	found := wrong(w.examine(t, nil))
	require.Len(t, found, 1, "%+v", found)
	require.Equal(t, "daemon", found[0].Check)
	require.Contains(t, found[0].What, "has not read the configuration since it was changed")
}

// A daemon that is alive and does nothing: what lies there becomes stuck.
func TestDoctorFindsWhatIsStuck(t *testing.T) {
	w := newWard(t)
	d := w.serve()
	await(t, w.layout.Lock(), func() bool { up, err := w.doctor(t).served(); return err == nil && up })
	d.awaitLog("serving")
	d.signal(syscall.SIGSTOP)
	defer d.signal(syscall.SIGCONT)
	await(t, w.layout.Lock(), func() bool { return stopped(d.cmd.Process.Pid) })
	w.ask(`{"tool_name":"count","request_data":{}}`)

	require.Empty(t, wrong(w.examine(t, nil)), "not yet")
	found := wrong(w.examine(t, later(time.Minute)))
	require.Len(t, found, 1, "%+v", found)
	require.Contains(t, found[0].What, "1 request untouched for more than 10s while the gate runs")
	require.Equal(t, warning, found[0].Severity)

	found = wrong(w.examine(t, later(2*time.Hour)))
	require.Len(t, found, 2, "%+v", found)
	require.Contains(t, found[1].What, "and is not settled while the gate runs")
}

func stopped(pid int) bool {
	threads, err := filepath.Glob(procFile(pid, "task/*/stat"))
	return err == nil && !slices.ContainsFunc(threads, func(file string) bool {
		b, err := os.ReadFile(file)
		_, rest, _ := strings.Cut(string(b), ") ")
		return err != nil || !strings.HasPrefix(rest, "T")
	})
}

const slow = `
[workspaces.work]
[tools.slow]
trust = false
handler = { kind = "command", argv = ["/bin/sleep", "1000"], timeout = "30m" }
[[rules]]
match = { tool = "slow" }
outcome = "allow"
`

func TestDoctorFindsInterruptedWork(t *testing.T) {
	w := &ward{newPlace(t, "work", slow)}
	w.plain = true // killed
	d := w.serve()
	id := w.ask(`{"tool_name":"slow","request_data":{}}`)
	awaitFile(t, filepath.Join(w.layout.Receipts("work"), id+".json"))
	taken := filepath.Join(w.layout.Requests("work"), id+".json")
	await(t, taken, func() bool { _, err := os.Lstat(taken); return errors.Is(err, fs.ErrNotExist) })

	require.Empty(t, wrong(w.examine(t, nil)), "it runs")
	found := wrong(w.examine(t, later(2*time.Hour)))
	require.Len(t, found, 1, "%+v", found)
	require.Contains(t, found[0].What, "longer than its tool may")

	d.kill()
	found = wrong(w.examine(t, nil))
	require.Len(t, found, 1, "%+v", found)
	require.Contains(t, found[0].What, id+" was started and interrupted")
	require.Contains(t, found[0].Cure, "permesso sweep")
}

func TestDoctorNotesSentCards(t *testing.T) {
	w := newWard(t)
	id := strings.TrimSuffix(filepath.Base(w.file(t, w.layout.Pendings("work"))), ".json")
	require.NoError(t, w.layout.PrepareSent(ipc.OS(), "telegram", "work"))
	for _, tc := range []struct {
		page string
		want int
	}{
		{`{}`, 0},
		{`{"state":"sent"}`, 0},
		{`{"state":"sending"}`, 1}, // written first, so that a tap is understood
	} {
		write(t, filepath.Join(w.layout.Sent("telegram", "work"), id+".json"), tc.page, 0o600)
		require.Len(t, wrong(w.examine(t, func(d *doctor) {
			d.now = d.now.Add(2 * time.Minute)
			ws := d.cfg.Workspaces["work"]
			ws.Channels = []string{"telegram"}
			d.cfg.Workspaces["work"] = ws
		})), tc.want, tc.page)
	}
}

func TestDoctorReadsWhatTheGateSaysOfItself(t *testing.T) {
	w := newWard(t)
	w.serve().awaitLog("serving")
	health := w.layout.Health()
	write(t, health, `{"status":"ok","problems":[],"version":"`+version+`"}`, 0o600)
	require.Empty(t, wrong(w.examine(t, nil)))
	write(t, health, `{"status":"degraded","problems":[{"what":"disk full\u001b[31m","hint":"make room"}],"version":"v0.0.1"}`, 0o600)
	found := wrong(w.examine(t, nil))
	require.Len(t, found, 2)
	require.Equal(t, `the gate says of itself: disk full\u{001B}[31m`, found[0].What)
	require.Equal(t, "make room", found[0].Cure)
	require.Contains(t, found[1].What, "runs version v0.0.1")
}

// What a secret's key is called is enough: whoever owns it need not be known.
func TestDoctorLooksAtSecrets(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "open"), "token", 0o644)
	write(t, filepath.Join(dir, "shut"), "token", 0o600)
	file := filepath.Join(dir, "c.toml")
	text := fmt.Sprintf("[channels.telegram]\ntoken_file = %q\n[[x]]\npassword_file = %q\nca_file = %q\n"+
		"[y]\nz = { key_file = %q, other = \"file\" }\nsecret_headers = { A = %q, B = %q, C = \"none\" }\n",
		dir+"/open", dir+"/shut", dir+"/ca", dir+"/none", "Bearer "+dir+"/header", dir+"/bare")
	for _, name := range []string{"ca", "header", "bare"} {
		write(t, filepath.Join(dir, name), "", 0o644)
	}
	write(t, file, text, 0o600)
	found := (&doctor{file: file}).checkSecrets()
	require.Len(t, found, 4, "%+v", found)
	for i, says := range []string{"other users may read " + dir + "/bare (mode 0644)", "other users may read " + dir + "/header", "there is no " + dir + "/none", "other users may read " + dir + "/open"} {
		require.Contains(t, found[i].What, says)
		require.Equal(t, serious, found[i].Severity)
	}
}

func TestDoctorClock(t *testing.T) {
	now := time.Now()
	require.Empty(t, drifted(now, now.Add(time.Second)))
	for _, off := range []time.Duration{-time.Hour, 3 * time.Second} {
		found := drifted(now, now.Add(off))
		require.Len(t, found, 1)
		require.Contains(t, found[0].What, off.Abs().String()+" apart")
	}
	w := newWard(t)
	for _, year := range []int{1970, 2025, 2101} {
		found := wrong((&doctor{house: w.doctor(t).house, now: time.Date(year, 1, 2, 0, 0, 0, 0, time.UTC)}).checkClock(t.Context()))
		require.NotEmpty(t, found)
		require.Contains(t, found[0].What, fmt.Sprintf("it is not %d-01-02", year))
		require.Equal(t, serious, found[0].Severity)
	}
}

// The zero finding is an error: a check that forgets to say how bad it is, is
// heard.
func TestZeroFindingIsAnError(t *testing.T) {
	require.Equal(t, "error", finding{}.Severity.String())
	d := &doctor{house: &house{}, app: &app{Main: Main{Out: &bytes.Buffer{}, Env: func(string) string { return "" }}}}
	for _, row := range []struct {
		worst severity
		code  int
	}{{serious, codeSick}, {warning, codeUnwell}} {
		var e *exit
		require.ErrorAs(t, d.report([]finding{{Severity: fine}, {Severity: row.worst}, {Severity: worthKnowing}}), &e)
		require.Equal(t, row.code, e.code)
	}
	require.NoError(t, d.report([]finding{{Severity: worthKnowing}, {Severity: fine}}))
}

// A flood of one kind does not hide the others.
func TestDoctorTellsTheFirstOfMany(t *testing.T) {
	var list []finding
	for i := range 2000 {
		list = append(list, finding{Severity: warning, Workspace: "a", What: fmt.Sprint(i)})
	}
	list = append(list, finding{Severity: warning, Workspace: "b"}, finding{Severity: serious, Workspace: "z"})
	kept := fewer(list)
	require.Len(t, kept, 1+mostAlike+1+1)
	require.Equal(t, serious, kept[0].Severity)
	require.Equal(t, "0", kept[1].What)
	require.Equal(t, finding{Severity: warning, Workspace: "a", What: "and 1990 more of the kind"}, kept[1+mostAlike])
	require.Equal(t, "b", kept[2+mostAlike].Workspace)
	require.Empty(t, fewer(nil))
	require.Len(t, fewer(list[:mostAlike]), mostAlike)
}

// A folder's name can hold anything; it must not look like another line.
func TestFindingsAreOneLine(t *testing.T) {
	f := found(serious, "", approval.WithHint(errors.New("x\n✓ keys      well"), "do\nthis \x1b[2K"))
	require.NotContains(t, f.What+f.Cure, "\n")
	require.NotContains(t, f.What+f.Cure, "\x1b")
}

var varies = regexp.MustCompile(`\d+ MiB left.*|process \d+ since .*|an fsync takes .*|\d{4}-\d\d-\d\dT.*|\d+ folders`)

func TestDoctorGolden(t *testing.T) {
	w := newWard(t)
	require.NoError(t, os.Chmod(w.layout.Decisions("work"), 0o777))
	require.NoError(t, os.Chmod(w.layout.Keys()+"/mac.key", 0o640))
	w.configure(t, "[workspaces.mute]\nlocal_decisions = false\n")
	d := w.doctor(t)
	list := slices.DeleteFunc(d.examine(t.Context()), func(f finding) bool {
		return slices.Contains([]string{"home", "clock", "disk", "fsync", "agents"}, f.Check) // this machine's
	})
	got := strings.ReplaceAll(d.text(list), w.dir, "DIR")
	got = varies.ReplaceAllString(got, "…")
	file := filepath.Join("..", "..", "testdata", "doctor", "sick.golden")
	if os.Getenv("PERMESSO_UPDATE") != "" {
		write(t, file, got, 0o644)
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}
