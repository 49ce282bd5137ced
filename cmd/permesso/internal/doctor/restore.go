package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/sandbox"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/journal"
	"github.com/permesso-dev/permesso/security/audit"
)

// CopyReport is what a copy of HOME is worth.
type CopyReport struct {
	Dir      string    `json:"dir"`
	Worst    Severity  `json:"worst"`
	Findings []Finding `json:"findings"`
	Entry    int64     `json:"entry,omitzero"` // number of the newest audit entry
	Until    time.Time `json:"until,omitzero"` // its time: nothing later is in the copy
	Commands []string  `json:"commands"`       // that put it in place; none after an error
}

// copied is the copy of the copy: restore --check changes nothing.
type copied struct {
	*Doctor
	dir, temp string
}

// CheckCopy recovers a copy of HOME as a start would, in a temporary folder, and checks what
// comes out. It does not change the copy.
func CheckCopy(ctx context.Context, a *console.Console, dir, homeDir string) (r *CopyReport, err error) {
	if err := canBeHome(ipc.Layout{Home: dir}); err != nil {
		return nil, err
	}
	if err := isElsewhere(dir, homeDir); err != nil {
		return nil, err
	}
	dir = Resolved(dir)
	temp, remove, err := tempFolder()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	a.Status("copying …")
	from, at := ipc.Layout{Home: dir}, filepath.Join(temp, "home")
	c := &ipc.Copy{FS: ipc.OS(), From: from, To: at}
	for _, step := range []func() error{c.Prepare, func() error { return c.Frozen(ctx) }, c.Complete} {
		if err := step(); err != nil {
			return nil, console.HintIfFull(err, temp, moreRoom)
		}
	}
	own := *a
	own.HomeFlag = at
	if file, err := home.FileOf(a, homeDir); err == nil && file != "" {
		own.ConfigFlag = file // that of the HOME whose copy this is
	}
	d, err := New(&own, "")
	if err != nil {
		return nil, err
	}
	r = &CopyReport{Dir: dir, Commands: []string{}}
	p := &copied{d, dir, at}
	p.check(ctx, r)
	if r.Worst > SeverityError {
		r.Commands = commandsFor(a, dir, homeDir, time.Now())
	}
	return r, nil
}

// moreRoom is for a temporary folder that is full.
const moreRoom = "set TMPDIR to a folder with room for a copy of HOME"

const (
	tempBegin = "permesso-restore-"
	tempLock  = "running"
)

// tempFolder makes a private folder for a copy, named by this process, and removes those that
// killed processes have left: they hold keys.
func tempFolder() (dir string, remove func() error, err error) {
	if err := removeLeftovers(os.TempDir()); err != nil {
		return "", nil, err
	}
	if dir, err = os.MkdirTemp("", fmt.Sprintf("%s%d-", tempBegin, os.Getpid())); err != nil {
		return "", nil, err
	}
	lock, err := ipc.OS().TryLock(filepath.Join(dir, tempLock))
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, func() error { return errors.Join(lock.Close(), os.RemoveAll(dir)) }, nil
}

// removeLeftovers removes this user's folders of processes that have ended. A process of
// another container has no PID here, but its lock.
func removeLeftovers(in string) error {
	names, err := filepath.Glob(filepath.Join(in, tempBegin+"*-*"))
	if err != nil {
		return err
	}
	for _, name := range names {
		first, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(name), tempBegin), "-")
		pid, err := strconv.Atoi(first)
		if err != nil || pid <= 0 || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			continue
		}
		info, err := os.Lstat(name)
		if err != nil || !info.IsDir() {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
			continue
		}
		if held, err := ipc.OS().Locked(filepath.Join(name, tempLock)); err != nil || held {
			continue
		}
		if err := os.RemoveAll(name); err != nil {
			return fmt.Errorf("remove what an earlier check has left: %w", err)
		}
	}
	return nil
}

// canBeHome refuses what was no HOME, or is one in use, with what it lacks.
func canBeHome(l ipc.Layout) error {
	const hint = "name the folder of the copy"
	switch err := home.CheckReadable(l.Home); {
	case errors.Is(err, fs.ErrNotExist):
		return console.Fail(console.ExitErrors, hint, "there is no folder %s", l.Home)
	case errors.Is(err, syscall.ENOTDIR):
		return console.Fail(console.ExitErrors, hint, "%s is not a folder", l.Home)
	case err != nil:
		return err
	}
	var lacks []string
	for _, name := range []string{l.Keys(), l.Journal(), l.Audit(), l.IPC(), filepath.Join(l.Home, "records"), filepath.Join(l.Home, "receipts"), l.Grants()} {
		if info, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
			lacks = append(lacks, filepath.Base(name)+"/")
		} else if err != nil {
			return err
		}
	}
	if len(lacks) > 0 {
		return console.Fail(console.ExitErrors, "a backup that was interrupted has no journal/; take another copy, of all of HOME",
			"%s is not a complete copy of a HOME: it lacks %s", l.Home, strings.Join(lacks, " "))
	}
	switch held, err := ipc.OS().Locked(l.Lock()); {
	case err != nil:
		return err
	case held:
		return console.Fail(console.ExitErrors, "make a copy first: permesso backup DIR", "a daemon uses %s: it is no copy", l.Home)
	}
	return nil
}

// Resolved is a folder without links, as mv and cp -a need it.
func Resolved(dir string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	if parent, err := filepath.EvalSymlinks(filepath.Dir(dir)); err == nil {
		return filepath.Join(parent, filepath.Base(dir))
	}
	return dir
}

// isElsewhere refuses a copy that the printed commands would move away together with HOME.
func isElsewhere(dir, homeDir string) error {
	const hint = "make a copy first: permesso backup DIR"
	at, to := Resolved(dir), Resolved(homeDir)
	switch {
	case at == to:
		return console.Fail(console.ExitErrors, hint, "%s is HOME itself: it is no copy", dir)
	case strings.HasPrefix(at, to+"/"), strings.HasPrefix(to, at+"/"):
		return console.Fail(console.ExitErrors, "move the copy elsewhere, best to another disk", "%s is a part of HOME, or holds it: the commands would move it away", dir)
	}
	return nil
}

// check recovers, and runs the checks that a copy can fail.
func (p *copied) check(ctx context.Context, r *CopyReport) {
	add := func(name string, list []Finding) {
		for _, f := range limitFindings(list) {
			f.Check = name
			f.What, f.Cure = strings.ReplaceAll(f.What, p.temp, p.dir), strings.ReplaceAll(f.Cure, p.temp, p.dir)
			r.Findings = append(r.Findings, f)
		}
	}
	r.Worst = SeverityOK
	add("keys", p.checkKeys(ctx))
	if recovered := p.recover(ctx); recovered != nil {
		add("journal", recovered)
	} else {
		add("journal", []Finding{okFinding("it recovers, as after a power cut")})
		p.all = true
		add("seals", p.checkSeals(ctx))
		add("records", p.checkRecords(ctx))
		add("audit", p.checkLog(ctx, r))
	}
	for _, f := range r.Findings {
		r.Worst = min(r.Worst, f.Severity)
	}
}

func (p *copied) recover(ctx context.Context) []Finding {
	err := p.Layout.PrepareHome(p.FS)
	for _, ws := range p.names {
		err = errors.Join(err, p.Layout.Prepare(p.FS, ws))
	}
	if err != nil {
		return findingsOf(SeverityError, "", err)
	}
	release, err := p.Store.Lease(ctx)
	if err == nil {
		err = release()
	}
	err = console.HintIfFull(err, p.temp, moreRoom)
	if _, missing := errors.AsType[*journal.MissingError](err); missing {
		return failure("the copy cannot be restored: "+console.OneLine(err.Error()), "it is not complete: use another copy")
	}
	if err != nil {
		return failure("the copy cannot be restored: "+console.OneLine(err.Error()), console.HintFor(err))
	}
	return nil
}

// checkLog verifies the whole log, compares it with the records, and looks for what the log
// has and the copy lacks.
func (p *copied) checkLog(ctx context.Context, r *CopyReport) []Finding {
	list := p.checkAudit(ctx)
	if last, err := audit.Last(p.FS, p.Layout.Audit(), 1); err == nil && len(last) == 1 {
		r.Entry, r.Until = last[0].Seq, last[0].Time
	}
	if slices.ContainsFunc(list, func(f Finding) bool { return f.Severity < SeverityOK }) {
		return list
	}
	known, err := p.AuditKeys()
	if err != nil {
		return findingsOf(SeverityError, "", err)
	}
	c := &audit.Check{FS: p.FS, Dir: p.Layout.Audit(), Keys: known}
	note, err := p.AddRecords(c)
	var report *audit.Report
	if err == nil {
		report, err = c.Run()
	}
	if err != nil {
		return findingsOf(SeverityError, "", err)
	}
	if p.keys != nil { // else the keys' findings say so
		list = p.checkLost(ctx)
	}
	if note != "" {
		list = append(list, warning(note, "")...)
	}
	return orOK(list, "%d entries unchanged, %d signed; every record has its entry", report.Entries, report.Signed)
}

// ended are the entries of requests that no longer wait.
var ended = []event.Kind{
	event.Approved, event.AutoApproved, event.Denied, event.DeniedByUser, event.Answered, event.Overridden, event.RequestMore,
	event.Expired, event.Cancelled, event.AutoRejected, event.Executed, event.Released, event.Failed, event.Interrupted,
}

// checkLost finds the requests that wait in the copy although the log says how they ended:
// the copy lacks their claims and records, and they could run again.
func (p *copied) checkLost(ctx context.Context) []Finding {
	since, err := p.waiting(ctx)
	if err != nil {
		return findingsOf(SeverityError, "", err)
	}
	var list []Finding
	err = audit.Entries(p.FS, p.Layout.Audit(), func(e event.Entry) error {
		k := approval.Key{Workspace: e.Workspace, ID: e.RequestID}
		asked, ok := since[k]
		if ok && slices.Contains(ended, e.Event) && e.Time.After(asked) {
			list = append(list, in(k.Workspace, failure(fmt.Sprintf("%s still waits in the copy, but the log has its entry %d, %s: it could run again", k.ID, e.Seq, e.Event),
				"the copy was not made at one moment: use permesso backup, an atomic snapshot, or a copy of a stopped daemon's HOME"))...)
			delete(since, k)
		}
		return nil
	})
	return append(list, findingsOf(SeverityError, "", err)...)
}

// waiting are the requests that have neither claim nor record, and when they were asked.
func (p *copied) waiting(ctx context.Context) (since map[approval.Key]time.Time, err error) {
	since = map[approval.Key]time.Time{}
	v := p.Viewer(p.keys)
	_, _ = p.eachDocument(ctx, approval.DocPending, func(k approval.Key, _ []byte) []Finding {
		st, storyErr := v.Story(ctx, k)
		if err = errors.Join(err, storyErr); st.Pending != nil && st.Claim == nil && st.Record == nil {
			since[k] = st.Pending.Timestamp
		}
		return nil
	})
	return since, err
}

// commandsFor puts a copy in place. A second run of the same commands changes nothing: the name
// for the old HOME is taken then, and mv -T moves nothing into a folder.
func commandsFor(a *console.Console, dir, homeDir string, now time.Time) []string {
	homeDir = Resolved(homeDir)
	to := sandbox.ShellWord(homeDir)
	place := "cp -a " + sandbox.ShellWord(dir) + " " + to
	if _, err := os.Lstat(homeDir); !errors.Is(err, fs.ErrNotExist) {
		place = "mv -T " + to + " " + sandbox.ShellWord(unusedName(homeDir+".before-"+now.Format("20060102-150405"))) + " && " + place
	}
	flags := GivenFlags(a)
	return []string{
		"systemctl stop permesso  # or end permesso serve",
		place,
		"permesso doctor" + flags + "; systemctl start permesso  # or permesso serve" + flags,
	}
}

// GivenFlags repeats --home and --config for a printed command.
func GivenFlags(a *console.Console) (flags string) {
	for _, x := range [][2]string{{"home", a.HomeFlag}, {"config", a.ConfigFlag}} {
		if x[1] != "" {
			flags += " --" + x[0] + " " + sandbox.ShellWord(x[1])
		}
	}
	return flags
}

// unusedName is a name that no file has, beginning with this one.
func unusedName(begin string) string {
	name := begin
	for n := 2; ; n++ {
		if _, err := os.Lstat(name); err != nil {
			return name
		}
		name = fmt.Sprintf("%s-%d", begin, n)
	}
}

// Report prints the findings and the commands. The most severe finding gives the exit code.
func (r *CopyReport) Report(a *console.Console) error {
	text := (&Doctor{app: a, Home: &home.Home{}}).Text(r.Findings)
	if r.Entry > 0 {
		text += fmt.Sprintf("\nThe copy ends with audit entry %d of %s. What was decided or ran later is unknown to it.", r.Entry, r.Until.Local().Format(time.DateTime))
	}
	if len(r.Commands) > 0 {
		text += "\nTo put it in place:\n  " + strings.Join(r.Commands, "\n  ")
	} else {
		text += "\nDo not put it in place."
	}
	if err := a.PrintToCopy(r, text); err != nil {
		return err
	}
	return exitFor(r.Worst)
}
