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

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/ipc"
)

func (a *app) doctorCmd() *cobra.Command {
	var workspace string
	var quick bool
	c := &cobra.Command{
		Use: "doctor", Short: "Look whether everything is as it should be, and say what to do where it is not", Args: cobra.NoArgs,
		Long: "Look whether everything is as it should be: folders and keys, seals, what a sandbox lets through (it tries,\n" +
			"from a throw-away one, what an agent must not do), agents that run as the gate's own user, limits, clock,\n" +
			"disk, what is stuck, and the bot of Telegram's. It works with the gate running or stopped, and leaves everything as it is.\n\n" +
			"Each line begins with ✓ for what is well, · for what is worth knowing, ! for a warning, ✗ for an error.\n" +
			"A hint below it says what to do. --json gives one object with the same findings:\n\n" +
			`  {"home":"…","config":"…","version":"…","running":true,"worst":"warning","findings":[` + "\n" +
			`    {"check":"disk","severity":"warning","workspace":"","what":"…","cure":"…"}]}` + "\n\n" +
			"where severity and worst are ok, info, warning or error. workspace and cure may be empty.\n\n" +
			"Exit codes: 0 nothing worse than info; 8 warnings; 9 errors: do not let an agent in before they are cured.",
		Example: "  permesso doctor\n  permesso doctor --quick --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := a.doctor(workspace)
			if err != nil {
				return err
			}
			d.quick = quick
			return d.report(d.examine(cmd.Context()))
		},
	}
	c.Flags().StringVar(&workspace, "workspace", "", "only this `workspace`, and what all have in common")
	c.Flags().BoolVar(&quick, "quick", false, "without sandbox, measurements and old records")
	_ = c.RegisterFlagCompletionFunc("workspace", a.completeWorkspaces) // fails only for flags that are not there
	c.AddCommand(probeCmd(a))
	return c
}

// severity orders findings. The zero value is the worst.
type severity int

const (
	serious severity = iota
	warning
	worthKnowing
	fine
)

func (s severity) String() string { return [...]string{"error", "warning", "info", "ok"}[s] }

// MarshalText writes ok, info, warning or error.
func (s severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s severity) sign() string { return [...]string{"✗", "!", "·", "✓"}[s] }

func (s severity) color() string { return [...]string{"\x1b[31m", "\x1b[33m", "", "\x1b[32m"}[s] }

// finding is one thing that a check saw.
type finding struct {
	Check     string   `json:"check"`
	Severity  severity `json:"severity"`
	Workspace string   `json:"workspace"`
	What      string   `json:"what"`
	Cure      string   `json:"cure"`
}

// found makes a finding of an error, which may have its hint on a line of its
// own, as the rooms' errors do.
func found(s severity, ws string, err error) finding {
	what, cure, _ := strings.Cut(err.Error(), "\nhint: ")
	return finding{Severity: s, Workspace: ws, What: oneLine(what), Cure: oneLine(cure)}
}

func foundAll(s severity, ws string, errs ...error) (list []finding) {
	for _, err := range errs {
		if err != nil {
			list = append(list, found(s, ws, err))
		}
	}
	return list
}

// oneLine keeps whatever a file is called, or holds, from looking like
// another finding.
func oneLine(s string) string { return chat.Escape(strings.ReplaceAll(s, "\n", "; ")) }

func well(format string, a ...any) finding {
	return finding{Severity: fine, What: fmt.Sprintf(format, a...)}
}

// orWell is what was found, or, when that is nothing, that all is well.
func orWell(list []finding, format string, a ...any) []finding {
	if len(list) == 0 {
		list = append(list, well(format, a...))
	}
	return list
}

// doctor is one examination.
type doctor struct {
	*house
	app        *app
	problem    error    // why the configuration cannot be read
	file       string   // which one it is; "" when built in
	names      []string // the workspaces looked at
	keys       *keys    // nil where they cannot be loaded
	uid        int      // the home's owner: the daemon's user
	exists     bool     // somebody has served or made this home
	running    bool
	daemon     int // its process, 0 where that is not known
	quick      bool
	now        time.Time // that documents are compared with
	began      time.Time
	bin        string                    // our own program, for sandboxes
	probeMount func(ws string) mountList // what an agent sees
}

// doctor finds the home. A configuration that cannot be read is a finding, not
// the end.
func (a *app) doctor(workspace string) (*doctor, error) {
	home, err := config.LocateHome(a.homeFlag, a.Env)
	if err != nil {
		return nil, err
	}
	d := &doctor{app: a, now: time.Now(), began: time.Now(), uid: os.Getuid()}
	d.house = &house{cfg: config.Default(), layout: ipc.Layout{Home: home}, fs: ipc.OS()}
	if d.file, d.problem = config.Locate(a.configFlag, a.Env); d.problem == nil {
		var cfg *config.Config
		if cfg, d.problem = a.reader().Load(d.file); d.problem == nil {
			d.cfg = cfg
		}
	}
	d.store = &ipc.Store{FS: d.fs, Layout: d.layout, RequestSize: d.requestSize}
	if d.bin, err = os.Executable(); err != nil {
		return nil, err
	}
	d.probeMount = func(ws string) mountList { return mounts(d.layout, ws) }
	if info, err := os.Stat(d.layout.Keys()); err == nil {
		d.exists, d.uid = true, ownerOf(info)
	}
	if d.names, err = d.workspaces(workspace); err != nil {
		return nil, err
	}
	return d, nil
}

// workspaces are those of the configuration and those that have folders.
func (d *doctor) workspaces(only string) ([]string, error) {
	names, err := d.store.Workspaces()
	if err != nil {
		names = nil // the check of the folders says why
	}
	if d.problem == nil {
		names = append(names, sortedNames(d.cfg)...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if only == "" {
		return names, nil
	}
	if !slices.Contains(names, only) {
		return nil, fail(codeError, "the workspaces are: "+strings.Join(names, ", "), "no workspace %q", only)
	}
	return []string{only}, nil
}

// check is one of the things that are looked at.
type check struct {
	name string
	home bool // needs a home
	slow bool // left out by --quick
	look func(*doctor, context.Context) []finding
}

// checks are in the order in which one thing explains the next.
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

// examine runs the checks, one after the other.
func (d *doctor) examine(ctx context.Context) []finding {
	var all []finding
	for _, c := range checks() {
		if ctx.Err() != nil {
			break
		}
		if c.home && !d.exists || c.slow && d.quick {
			continue
		}
		d.progress("looking at " + c.name + " …")
		for _, f := range fewer(c.look(d, ctx)) {
			f.Check = c.name
			all = append(all, f)
		}
	}
	d.progress("")
	return all
}

// mostAlike is how many findings of one check and workspace are told: whoever
// has more is helped by the first ones.
const mostAlike = 10

// fewer keeps the worst, in their order, and counts the others.
func fewer(list []finding) (kept []finding) {
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
		kept = append(kept, list[:min(n, mostAlike)]...)
		if n > mostAlike {
			kept = append(kept, finding{Severity: first.Severity, Workspace: first.Workspace, What: fmt.Sprintf("and %d more of the kind", n-mostAlike)})
		}
		list = list[n:]
	}
	return kept
}

// progress is a line that goes away again, for whoever waits at a terminal.
func (d *doctor) progress(line string) {
	if terminal(d.app.Err) && !d.app.json {
		fmt.Fprintf(d.app.Err, "\r\x1b[K%s", line)
	}
}

// report prints what was found, and makes the worst of it the exit code.
func (d *doctor) report(all []finding) error {
	worst := fine
	for _, f := range all {
		worst = min(worst, f.Severity)
	}
	err := d.app.print(map[string]any{
		"home": d.layout.Home, "config": d.file, "version": version, "running": d.running, "worst": worst, "findings": all,
	}, d.text(all))
	switch {
	case err != nil:
		return err
	case worst == serious:
		return &exit{code: codeSick, err: errors.New("")}
	case worst == warning:
		return &exit{code: codeUnwell, err: errors.New("")}
	}
	return nil
}

// text has a line for each finding, and one below it for what to do.
func (d *doctor) text(all []finding) string {
	color := terminal(d.app.Out) && d.app.Env("NO_COLOR") == ""
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
	case count[serious] > 0:
		return fmt.Sprintf("%s, %s", plural(count[serious], "error"), plural(count[warning], "warning"))
	case count[warning] > 0:
		return plural(count[warning], "warning")
	}
	return "all is well"
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
