package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/sandbox"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/receipt"
)

func ownerOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return os.Getuid()
}

// checkConfig reads the file as serve does, and compares it with the folders.
func (d *Doctor) checkConfig(context.Context) []Finding {
	if d.configErr != nil {
		return configProblems(d.configErr)
	}
	var list []Finding
	for _, w := range d.Config.Warnings {
		list = append(list, findingOf(SeverityWarning, "", w.Format(d.Config.File)))
	}
	if d.file == "" {
		list = append(list, notice("no configuration: every request asks an approver", "permesso init writes one")...)
	} else {
		list = append(list, d.checkSecrets()...)
	}
	if d.exists {
		list = append(list, d.compareWorkspaces()...)
	}
	return orOK(list, "%s: %s, %s", d.file, hints.Plural(len(d.Config.Workspaces), "workspace"), hints.Plural(len(d.Config.Tools), "tool"))
}

func configProblems(err error) (list []Finding) {
	var e *config.Error
	if !errors.As(err, &e) {
		return findingsOf(SeverityError, "", err)
	}
	for _, p := range e.Errors {
		list = append(list, findingOf(SeverityError, "", p.Format(e.File)))
	}
	return list
}

// compareWorkspaces compares the configuration with the folders.
func (d *Doctor) compareWorkspaces() (list []Finding) {
	for _, ws := range d.names {
		_, configured := d.Config.Workspaces[ws]
		switch {
		case !configured:
			list = append(list, in(ws, warning("workspace has folders but is not configured: its requests are refused",
				"add [workspaces."+ws+"], or move "+d.Layout.Workspace(ws)+" away"))...)
		case !slices.Contains(d.withFolders, ws):
			list = append(list, in(ws, notice("workspace has no folders yet",
				"permesso serve creates them when it starts"))...)
		}
	}
	return list
}

// checkSecrets checks the secret files of the configuration. It finds them by
// the names of the keys.
func (d *Doctor) checkSecrets() (list []Finding) {
	for _, path := range d.Config.SecretFiles() {
		if err := ipc.CheckSecret(path); errors.Is(err, fs.ErrNotExist) {
			list = append(list, failure("missing secret file "+console.OneLine(path)+", named in the configuration",
				"create it, or change the configuration")...)
		} else if err != nil {
			list = append(list, findingOf(SeverityError, "", err))
		}
	}
	return list
}

// checkHome checks that the home exists and that this user can read it.
func (d *Doctor) checkHome(context.Context) []Finding {
	if !d.exists {
		_, err := home.Existing(d.app)
		return findingsOf(SeverityError, "", err)
	}
	switch uid := os.Getuid(); {
	case uid != 0 && uid != d.UID:
		d.exists = false // skip the checks of a home
		return failure(fmt.Sprintf("%s belongs to UID %d and doctor runs as UID %d: most checks are skipped", console.OneLine(d.Layout.Home), d.UID, uid),
			fmt.Sprintf("sudo -u '#%d' permesso doctor", d.UID))
	case d.UID == 0:
		return warning(console.OneLine(d.Layout.Home)+" belongs to root: approved requests run as root",
			"run the daemon as a dedicated user: useradd --system permesso")
	}
	return []Finding{okFinding("%s, owned by UID %d", console.OneLine(d.Layout.Home), d.UID)}
}

// checkJournal reports segments that are missing. The next start refuses such a HOME.
func (d *Doctor) checkJournal(context.Context) []Finding {
	return orOK(findingsOf(SeverityError, "", d.Layout.CheckJournal(d.FS)), "no segment is missing")
}

func (d *Doctor) checkFolders(context.Context) []Finding {
	seen, wrong := d.Layout.CheckFolders(d.FS, d.withFolders...)
	var list []Finding
	for _, err := range wrong {
		if errors.Is(err, fs.ErrNotExist) {
			list = append(list, warning(console.OneLine(err.Error()), "permesso serve creates it when it starts")...)
		} else {
			list = append(list, findingOf(SeverityError, "", err))
		}
	}
	for _, ws := range d.withFolders {
		if note := d.Store.RequestsWarning(ws); note != "" {
			list = append(list, in(ws, warning(console.OneLine(note),
				"run the daemon on a kernel with openat2 and with /proc mounted"))...)
		}
	}
	open := "no other user"
	for _, ws := range d.withFolders {
		for _, uid := range d.Config.AgentsOf(ws) {
			open = "no other user but each agent_uid"
			if err := d.Layout.CheckAgentPath(ws, uid); err != nil && !errors.Is(err, errors.ErrUnsupported) {
				list = append(list, in(ws, findingsOf(SeverityWarning, ws, err))...)
			}
		}
	}
	return orOK(list, "%d folders, accessible to %s", seen, open)
}

// checkPaths checks the parent folders of home and configuration: a user who
// can replace a parent folder can replace what is in it.
func (d *Doctor) checkPaths(context.Context) []Finding {
	list := findingsOf(SeverityError, "", ipc.CheckPath(filepath.Dir(d.Layout.Home), d.UID)...)
	if d.file != "" {
		file, err := filepath.Abs(d.file)
		if err != nil {
			return findingsOf(SeverityError, "", err)
		}
		for _, f := range findingsOf(SeverityError, "", ipc.CheckPath(file, d.UID)...) {
			if !slices.Contains(list, f) {
				list = append(list, f)
			}
		}
	}
	return orOK(list, "no other user can replace the home or the configuration")
}

// checkPrograms checks the programs that tools run.
func (d *Doctor) checkPrograms(context.Context) []Finding {
	var list []Finding
	programs := 0
	for _, name := range slices.Sorted(maps.Keys(d.Config.Tools)) {
		argv := d.Config.Tools[name].Handler.Argv
		if len(argv) == 0 {
			continue
		}
		programs++
		for _, err := range slices.Concat(ipc.CheckProgram(argv[0], d.UID), d.checkScripts(argv)) {
			f := findingOf(SeverityError, "", err)
			f.What = "tool " + name + ": " + f.What
			list = append(list, f)
		}
	}
	return orOK(list, "%s, all present, none writable by another user%s", hints.Plural(programs, "program"), d.handlerLimits())
}

// handlerLimits says how the running daemon keeps the limits of programs.
func (d *Doctor) handlerLimits() string {
	h, ok := d.health()
	switch {
	case !d.running || !ok || h.HandlerLimits == "":
		return ""
	case h.HandlerLimits == exec.LimitsKernel:
		return "; the kernel keeps their limits"
	}
	return "; their limits are " + console.OneLine(h.HandlerLimits) + ", not kept by the kernel: " + console.OneLine(h.HandlerLimitsReason)
}

// runners are programs that run the file in their first argument.
var runners = []string{"sh", "bash", "dash", "zsh", "fish", "env", "python", "python3", "perl", "ruby", "node", "bun", "deno", "Rscript"}

// checkScripts checks script files among the arguments: replacing a script
// that sh runs is replacing the program. Other files are data.
func (d *Doctor) checkScripts(argv []string) (wrong []error) {
	first := slices.Contains(runners, filepath.Base(argv[0]))
	for _, arg := range argv[1:] {
		if !filepath.IsAbs(arg) {
			first = first && strings.HasPrefix(arg, "-")
			continue
		}
		info, err := os.Stat(arg)
		if err == nil && info.Mode().IsRegular() && (first || info.Mode().Perm()&0o111 != 0) {
			wrong = append(wrong, ipc.CheckPath(arg, d.UID)...)
		}
		first = false
	}
	return wrong
}

// checkKeys loads the keys as serve does, and keeps them for later checks.
func (d *Doctor) checkKeys(context.Context) []Finding {
	var list []Finding
	k, err := d.LoadKeys()
	if err != nil {
		list = append(list, findingOf(SeverityError, "", err))
	} else {
		d.keys = k
	}
	if err := receipt.Check(d.FS, d.Layout.Keys()); err != nil {
		list = append(list, findingOf(SeverityError, "", err))
	}
	entries, err := os.ReadDir(d.Layout.Keys())
	if err != nil {
		return append(list, findingOf(SeverityError, "", err))
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && ownerOf(info) != d.UID {
			list = append(list, failure(fmt.Sprintf("%s belongs to UID %d, the home to UID %d", console.OneLine(filepath.Join(d.Layout.Keys(), e.Name())), ownerOf(info), d.UID),
				fmt.Sprintf("chown -R %d %s", d.UID, sandbox.ShellWord(d.Layout.Keys())))...)
		}
	}
	return orOK(list, "the MAC key and the signing key pair load and match")
}
