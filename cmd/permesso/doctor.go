package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/sandbox"
)

// severity orders findings. The zero value is the most severe.
type severity int

const (
	severityError severity = iota
	severityWarning
	severityInfo
	severityOK
)

func (s severity) String() string { return [...]string{"error", "warning", "info", "ok"}[s] }

// MarshalText writes ok, info, warning or error.
func (s severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s severity) sign() string { return [...]string{"✗", "!", "·", "✓"}[s] }

func (s severity) color() string { return [...]string{"\x1b[31m", "\x1b[33m", "", "\x1b[32m"}[s] }

// finding is one result of a check.
type finding struct {
	Check     string   `json:"check"`
	Severity  severity `json:"severity"`
	Workspace string   `json:"workspace"`
	What      string   `json:"what"`
	Cure      string   `json:"cure"`
}

// findingOf makes a finding of an error. A second line "hint: …" becomes its cure.
func findingOf(s severity, ws string, err error) finding {
	what, cure, _ := strings.Cut(err.Error(), "\nhint: ")
	return finding{Severity: s, Workspace: ws, What: console.OneLine(what), Cure: console.OneLine(cure)}
}

func findingsOf(s severity, ws string, errs ...error) (list []finding) {
	for _, err := range errs {
		if err != nil {
			list = append(list, findingOf(s, ws, err))
		}
	}
	return list
}

func okFinding(format string, a ...any) finding {
	return finding{Severity: severityOK, What: fmt.Sprintf(format, a...)}
}

// orOK returns list, or one ok finding if list is empty.
func orOK(list []finding, format string, a ...any) []finding {
	if len(list) == 0 {
		list = append(list, okFinding(format, a...))
	}
	return list
}

// doctor is one run of the checks.
type doctor struct {
	*home.Home
	app        *console.Console
	configErr  error      // error of reading the configuration
	file       string     // its path; "" for the defaults
	names      []string   // the workspaces to check
	keys       *home.Keys // nil if they cannot be loaded
	uid        int        // the home's owner: the daemon's user
	exists     bool       // the home has keys
	running    bool
	daemon     int // its PID, 0 if unknown
	quick      bool
	now        time.Time // compared with the documents' times
	began      time.Time
	bin        string                            // our own program, for sandboxes
	probeMount func(ws string) sandbox.MountList // the agent's mounts
}

// newDoctor locates the home. An unreadable configuration is a finding, not an error.
func newDoctor(a *console.Console, workspace string) (*doctor, error) {
	dir, err := config.LocateHome(a.HomeFlag, a.Env)
	if err != nil {
		return nil, err
	}
	d := &doctor{app: a, now: time.Now(), began: time.Now(), uid: os.Getuid()}
	used := config.Default()
	if d.file, d.configErr = config.Locate(a.ConfigFlag, a.Env); d.configErr == nil {
		var cfg *config.Config
		if cfg, d.configErr = home.Reader(a).Load(d.file, a.Env); d.configErr == nil {
			used = cfg
		}
	}
	d.Home = home.New(used, dir)
	if d.bin, err = os.Executable(); err != nil {
		return nil, err
	}
	d.probeMount = func(ws string) sandbox.MountList { return sandbox.Mounts(d.Layout, ws) }
	if info, err := os.Stat(d.Layout.Keys()); err == nil {
		d.exists, d.uid = true, ownerOf(info)
	}
	if d.names, err = d.workspaces(workspace); err != nil {
		return nil, err
	}
	return d, nil
}

// workspaces returns the configured workspaces and those that have folders.
func (d *doctor) workspaces(only string) ([]string, error) {
	names, err := d.Store.Workspaces()
	if err != nil {
		names = nil // checkFolders reports it
	}
	if d.configErr == nil {
		names = append(names, home.WorkspaceNames(d.Config)...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if only == "" {
		return names, nil
	}
	if !slices.Contains(names, only) {
		return nil, console.Fail(console.ExitError, "workspaces: "+strings.Join(names, ", "), "no workspace %q", only)
	}
	return []string{only}, nil
}

// check is one check of doctor.
type check struct {
	name string
	home bool // needs a home
	slow bool // left out by --quick
	run  func(*doctor, context.Context) []finding
}

// checks are ordered so that earlier findings explain later ones.
func checks() []check {
	return []check{
		{"config", false, false, (*doctor).checkConfig},
		{"home", false, false, (*doctor).checkHome},
		{"daemon", true, false, (*doctor).checkDaemon},
		{"folders", true, false, (*doctor).checkFolders},
		{"path", true, false, (*doctor).checkPaths},
		{"programs", false, false, (*doctor).checkPrograms},
		{"keys", true, false, (*doctor).checkKeys},
		{"seals", true, false, (*doctor).checkSeals},
		{"records", true, true, (*doctor).checkRecords},
		{"audit", true, false, (*doctor).checkAudit},
		{"mounts", true, true, (*doctor).checkMounts},
		{"agents", false, false, (*doctor).checkAgents},
		{"inotify", true, false, (*doctor).checkInotify},
		{"clock", true, false, (*doctor).checkClock},
		{"disk", true, false, (*doctor).checkDisk},
		{"fsync", true, false, (*doctor).checkSync},
		{"stuck", true, false, (*doctor).checkStuck},
		{"channels", true, false, (*doctor).checkChannels},
		{"telegram", false, true, (*doctor).checkTelegram},
	}
}

func (d *doctor) runChecks(ctx context.Context) []finding {
	var all []finding
	for _, c := range checks() {
		if ctx.Err() != nil {
			break
		}
		if c.home && !d.exists || c.slow && d.quick {
			continue
		}
		d.progress("checking " + c.name + " …")
		for _, f := range limitFindings(c.run(d, ctx)) {
			f.Check = c.name
			all = append(all, f)
		}
	}
	d.progress("")
	return all
}

// maxAlike is how many findings of one check, severity and workspace are shown.
const maxAlike = 10

// limitFindings sorts findings by severity and limits each group.
func limitFindings(list []finding) (kept []finding) {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Workspace, b.Workspace))
	})
	for len(list) > 0 {
		first := list[0]
		n := slices.IndexFunc(list, func(f finding) bool { return f.Severity != first.Severity || f.Workspace != first.Workspace })
		if n < 0 {
			n = len(list)
		}
		kept = append(kept, list[:min(n, maxAlike)]...)
		if n > maxAlike {
			kept = append(kept, finding{Severity: first.Severity, Workspace: first.Workspace, What: fmt.Sprintf("and %d more like this", n-maxAlike)})
		}
		list = list[n:]
	}
	return kept
}

// progress draws a status line on a terminal.
func (d *doctor) progress(line string) {
	if console.IsTerminal(d.app.Err) && !d.app.JSON {
		fmt.Fprintf(d.app.Err, "\r\x1b[K%s", line)
	}
}

// report prints the findings. The most severe one gives the exit code.
func (d *doctor) report(all []finding) error {
	worst := severityOK
	for _, f := range all {
		worst = min(worst, f.Severity)
	}
	err := d.app.Print(map[string]any{
		"home": d.Layout.Home, "config": d.file, "version": d.app.Version, "running": d.running, "worst": worst, "findings": all,
	}, d.text(all))
	switch {
	case err != nil:
		return err
	case worst == severityError:
		return &console.Error{Code: console.ExitErrors, Err: errors.New("")}
	case worst == severityWarning:
		return &console.Error{Code: console.ExitWarnings, Err: errors.New("")}
	}
	return nil
}

// text has a line for each finding, and one below it for its cure.
func (d *doctor) text(all []finding) string {
	color := console.IsTerminal(d.app.Out) && d.app.Env("NO_COLOR") == ""
	var b strings.Builder
	for _, f := range all {
		sign := f.Severity.sign()
		if c := f.Severity.color(); color && c != "" {
			sign = c + sign + "\x1b[0m"
		}
		ws := ""
		if f.Workspace != "" {
			ws = f.Workspace + ": "
		}
		fmt.Fprintf(&b, "%s %-9s %s%s\n", sign, f.Check, ws, f.What)
		if f.Cure != "" {
			fmt.Fprintf(&b, "  hint: %s\n", f.Cure)
		}
	}
	return b.String() + summary(all)
}

func summary(all []finding) string {
	count := map[severity]int{}
	for _, f := range all {
		count[f.Severity]++
	}
	switch {
	case count[severityError] > 0:
		return fmt.Sprintf("%s, %s", plural(count[severityError], "error"), plural(count[severityWarning], "warning"))
	case count[severityWarning] > 0:
		return plural(count[severityWarning], "warning")
	}
	return "no errors or warnings"
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
