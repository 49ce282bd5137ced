// Package doctor checks an installation and suggests fixes. It changes nothing.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/sandbox"
)

// Severity orders findings. The zero value is the most severe.
type Severity int

// The severities, the worst first.
const (
	SeverityError Severity = iota
	SeverityWarning
	SeverityInfo
	SeverityOK
)

// String returns ok, info, warning or error.
func (s Severity) String() string { return [...]string{"error", "warning", "info", "ok"}[s] }

// MarshalText writes ok, info, warning or error.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s Severity) sign() string { return [...]string{"✗", "!", "·", "✓"}[s] }

func (s Severity) color() string { return [...]string{"\x1b[31m", "\x1b[33m", "", "\x1b[32m"}[s] }

// Finding is one result of a check.
type Finding struct {
	Check     string   `json:"check"`
	Severity  Severity `json:"severity"`
	Workspace string   `json:"workspace"`
	What      string   `json:"what"`
	Cure      string   `json:"cure"`
}

func failure(what, cure string) []Finding { return []Finding{{What: what, Cure: cure}} }

func warning(what, cure string) []Finding {
	return []Finding{{Severity: SeverityWarning, What: what, Cure: cure}}
}

func notice(what, cure string) []Finding {
	return []Finding{{Severity: SeverityInfo, What: what, Cure: cure}}
}

// in sets the workspace of findings.
func in(ws string, list []Finding) []Finding {
	for i := range list {
		list[i].Workspace = ws
	}
	return list
}

// findingOf makes a finding of an error and its hint.
func findingOf(s Severity, ws string, err error) Finding {
	return Finding{Severity: s, Workspace: ws, What: console.OneLine(err.Error()), Cure: console.OneLine(console.HintFor(err))}
}

func findingsOf(s Severity, ws string, errs ...error) (list []Finding) {
	for _, err := range hints.Split(errors.Join(errs...)) {
		list = append(list, findingOf(s, ws, err))
	}
	return list
}

func okFinding(format string, a ...any) Finding {
	return Finding{Severity: SeverityOK, What: fmt.Sprintf(format, a...)}
}

// orOK returns list, or one ok finding if list is empty.
func orOK(list []Finding, format string, a ...any) []Finding {
	if len(list) == 0 {
		list = append(list, okFinding(format, a...))
	}
	return list
}

// Doctor is one run of the checks.
type Doctor struct {
	*home.Home
	app         *console.Console
	configErr   error      // error of reading the configuration
	file        string     // its path; "" for the defaults
	names       []string   // the workspaces to check
	withFolders []string   // those of them that have folders
	keys        *home.Keys // nil if they cannot be loaded
	UID         int        // the home's owner: the daemon's user
	exists      bool       // the home has keys
	running     bool
	Daemon      int // its PID, 0 if unknown
	Quick       bool
	Hooks       bool                                                      // start the agents that have our hook
	Greet       func(context.Context, *console.Console, *home.Home) error // the error of a daemon that does not answer; nil: it is not asked
	all         bool                                                      // check all documents, not only some
	Now         time.Time                                                 // compared with the documents' times
	began       time.Time
	unwritable  bool                              // a check could not write to the home
	Bin         string                            // our own program, for sandboxes
	MountsOf    func(ws string) sandbox.MountList // the agent's mounts
}

// New locates the home. An unreadable configuration is a finding, not an error.
func New(a *console.Console, workspace string) (*Doctor, error) {
	dir, err := home.Find(a)
	if err != nil {
		return nil, err
	}
	d := &Doctor{app: a, Now: time.Now(), began: time.Now(), UID: os.Getuid()}
	used := config.Default()
	if d.file, d.configErr = home.FileOf(a, dir); d.configErr == nil {
		var cfg *config.Config
		if cfg, d.configErr = home.Reader(a).Load(d.file); d.configErr == nil {
			used = cfg
		}
	}
	d.Home = home.New(used, dir)
	if d.Bin, err = os.Executable(); err != nil {
		return nil, err
	}
	d.MountsOf = func(ws string) sandbox.MountList { return sandbox.Mounts(d.Layout, ws) }
	if info, err := os.Stat(d.Layout.Keys()); err == nil {
		d.exists, d.UID = true, ownerOf(info)
	}
	return d, d.findWorkspaces(workspace)
}

// findWorkspaces sets the workspaces to check: those in the configuration and those that
// have folders, or only one of them.
func (d *Doctor) findWorkspaces(only string) error {
	have, err := d.Store.Workspaces(context.Background())
	if err != nil {
		have = nil // checkFolders reports it
	}
	d.names = slices.Clone(have)
	if d.configErr == nil {
		d.names = append(d.names, home.WorkspaceNames(d.Config)...)
	}
	slices.Sort(d.names)
	d.names = slices.Compact(d.names)
	if only != "" {
		if err := console.CheckWorkspace(only, d.names); err != nil {
			return err
		}
	}
	other := func(ws string) bool { return only != "" && ws != only }
	d.names, d.withFolders = slices.DeleteFunc(d.names, other), slices.DeleteFunc(have, other)
	return nil
}

// check is one check of doctor.
type check struct {
	name string
	home bool // needs a home
	slow bool // left out by --quick
	run  func(*Doctor, context.Context) []Finding
}

// checks are ordered so that earlier findings explain later ones.
func checks() []check {
	return []check{
		{"config", false, false, (*Doctor).checkConfig},
		{"home", false, false, (*Doctor).checkHome},
		{"daemon", true, false, (*Doctor).checkDaemon},
		{"folders", true, false, (*Doctor).checkFolders},
		{"journal", true, false, (*Doctor).checkJournal},
		{"path", true, false, (*Doctor).checkPaths},
		{"programs", false, false, (*Doctor).checkPrograms},
		{"keys", true, false, (*Doctor).checkKeys},
		{"seals", true, false, (*Doctor).checkSeals},
		{"records", true, true, (*Doctor).checkRecords},
		{"audit", true, false, (*Doctor).checkAudit},
		{"mounts", true, true, (*Doctor).checkMounts},
		{"agents", false, false, (*Doctor).checkAgents},
		{"hooks", false, false, (*Doctor).checkHooks},
		{"disk", true, false, (*Doctor).checkDisk},
		{"fsync", true, false, (*Doctor).checkSync},
		{"inotify", true, false, (*Doctor).checkInotify},
		{"clock", true, false, (*Doctor).checkClock},
		{"stuck", true, false, (*Doctor).checkStuck},
		{"channels", true, false, (*Doctor).checkChannels},
		{"telegram", false, true, (*Doctor).checkTelegram},
	}
}

// Run runs the checks.
func (d *Doctor) Run(ctx context.Context) []Finding {
	var all []Finding
	for _, c := range checks() {
		if ctx.Err() != nil {
			break
		}
		if c.home && !d.exists || c.slow && d.Quick {
			continue
		}
		d.app.Status("checking " + c.name + " …")
		for _, f := range limitFindings(c.run(d, ctx)) {
			f.Check = c.name
			all = append(all, f)
		}
	}
	d.app.Status("")
	return all
}

// maxAlike is how many findings of one check, severity and workspace are shown.
const maxAlike = 10

// limitFindings sorts findings by severity and limits each group.
func limitFindings(list []Finding) (kept []Finding) {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Workspace, b.Workspace))
	})
	for len(list) > 0 {
		first := list[0]
		n := slices.IndexFunc(list, func(f Finding) bool { return f.Severity != first.Severity || f.Workspace != first.Workspace })
		if n < 0 {
			n = len(list)
		}
		kept = append(kept, list[:min(n, maxAlike)]...)
		if n > maxAlike {
			kept = append(kept, Finding{Severity: first.Severity, Workspace: first.Workspace, What: fmt.Sprintf("and %d more like this", n-maxAlike)})
		}
		list = list[n:]
	}
	return kept
}

// Report prints the findings. The most severe one gives the exit code.
func (d *Doctor) Report(all []Finding) error {
	worst := SeverityOK
	for _, f := range all {
		worst = min(worst, f.Severity)
	}
	err := d.app.Print(map[string]any{
		"home": d.Layout.Home, "config": d.file, "version": d.app.Version, "running": d.running, "worst": worst, "findings": all,
	}, d.Text(all))
	if err != nil {
		return err
	}
	return exitFor(worst)
}

// exitFor is the exit code for the most severe finding.
func exitFor(worst Severity) error {
	switch worst {
	case SeverityError:
		return &console.Error{Code: console.ExitErrors, Err: errors.New("")}
	case SeverityWarning:
		return &console.Error{Code: console.ExitWarnings, Err: errors.New("")}
	}
	return nil
}

// Text has a line for each finding, and one below it for its cure.
func (d *Doctor) Text(all []Finding) string {
	color := d.app.Colors()
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

func summary(all []Finding) string {
	count := map[Severity]int{}
	for _, f := range all {
		count[f.Severity]++
	}
	switch {
	case count[SeverityError] > 0:
		return fmt.Sprintf("%s, %s", hints.Plural(count[SeverityError], "error"), hints.Plural(count[SeverityWarning], "warning"))
	case count[SeverityWarning] > 0:
		return hints.Plural(count[SeverityWarning], "warning")
	}
	return "no errors or warnings"
}
