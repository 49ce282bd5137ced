package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/pelletier/go-toml/v2"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
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
func (d *doctor) checkConfig(context.Context) []finding {
	if d.configErr != nil {
		return configProblems(d.configErr)
	}
	var list []finding
	for _, w := range d.Config.Warnings {
		list = append(list, findingOf(severityWarning, "", errors.New(w.In(d.Config.File))))
	}
	if d.file == "" {
		list = append(list, finding{Severity: severityInfo, What: "no configuration: every request asks an approver", Cure: "permesso init writes one"})
	} else {
		list = append(list, d.checkSecrets()...)
	}
	if d.exists {
		list = append(list, d.compareWorkspaces()...)
	}
	return orOK(list, "%s: %s, %s", d.file, plural(len(d.Config.Workspaces), "workspace"), plural(len(d.Config.Tools), "tool"))
}

func configProblems(err error) (list []finding) {
	var e *config.Error
	if !errors.As(err, &e) {
		return findingsOf(severityError, "", err)
	}
	for _, p := range e.Errors {
		list = append(list, findingOf(severityError, "", errors.New(p.In(e.File))))
	}
	return list
}

// compareWorkspaces compares the configuration with the folders.
func (d *doctor) compareWorkspaces() (list []finding) {
	have, err := d.Store.Workspaces()
	if err != nil {
		return nil // checkFolders reports it
	}
	for _, ws := range d.names {
		_, configured := d.Config.Workspaces[ws]
		switch {
		case !configured:
			list = append(list, finding{
				Severity: severityWarning, Workspace: ws, What: "workspace has folders but is not configured: its requests are refused",
				Cure: "add [workspaces." + ws + "], or move " + d.Layout.Workspace(ws) + " away",
			})
		case !slices.Contains(have, ws):
			list = append(list, finding{
				Severity: severityInfo, Workspace: ws, What: "workspace has no folders yet",
				Cure: "permesso serve creates them when it starts",
			})
		}
	}
	return list
}

// checkSecrets checks the secret files of the configuration. It finds them by
// the names of the keys.
func (d *doctor) checkSecrets() (list []finding) {
	for _, path := range secretFiles(d.configTree()) {
		if err := ipc.CheckSecret(path); errors.Is(err, fs.ErrNotExist) {
			list = append(list, finding{What: "missing secret file " + console.OneLine(path) + ", named in the configuration", Cure: "create it, or change the configuration"})
		} else if err != nil {
			list = append(list, findingOf(severityError, "", err))
		}
	}
	return list
}

// configTree is the configuration file as a plain tree, for keys without a
// field in Config. It is nil if the file is unreadable; checkConfig reports that.
func (d *doctor) configTree() map[string]any {
	b, err := os.ReadFile(d.file)
	var tree map[string]any
	if err != nil || toml.Unmarshal(b, &tree) != nil {
		return nil
	}
	return tree
}

// public are keys of files that are not secret.
var public = []string{"ca_file", "cert_file", "public_key_file"}

// secretFiles returns the values of keys such as token_file, and the last word
// of each value in a table such as secret_headers: "Bearer /path/of/the/token".
func secretFiles(tree map[string]any) (paths []string) {
	for key, value := range tree {
		switch v := value.(type) {
		case string:
			if strings.HasSuffix(key, "_file") && !slices.Contains(public, key) && filepath.IsAbs(v) {
				paths = append(paths, v)
			}
		case map[string]any:
			if strings.HasPrefix(key, "secret_") {
				paths = append(paths, lastWords(v)...)
			}
			paths = append(paths, secretFiles(v)...)
		case []any:
			for _, item := range v {
				if table, ok := item.(map[string]any); ok {
					paths = append(paths, secretFiles(table)...)
				}
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

func lastWords(table map[string]any) (paths []string) {
	for _, value := range table {
		text, _ := value.(string)
		if at := strings.LastIndexByte(text, ' '); filepath.IsAbs(text[at+1:]) {
			paths = append(paths, text[at+1:])
		}
	}
	return paths
}

// checkHome checks that the home exists and that this user can read it.
func (d *doctor) checkHome(context.Context) []finding {
	if !d.exists {
		return []finding{{What: "no daemon for this user in " + console.OneLine(d.Layout.Home), Cure: "run permesso init, then permesso serve; or name another --home"}}
	}
	switch uid := os.Getuid(); {
	case uid != 0 && uid != d.uid:
		d.exists = false // skip the checks of a home
		return []finding{{
			What: fmt.Sprintf("%s belongs to UID %d and doctor runs as UID %d: most checks are skipped", console.OneLine(d.Layout.Home), d.uid, uid),
			Cure: fmt.Sprintf("sudo -u '#%d' permesso doctor", d.uid),
		}}
	case d.uid == 0:
		return []finding{{
			Severity: severityWarning, What: console.OneLine(d.Layout.Home) + " belongs to root: approved requests run as root",
			Cure: "run the daemon as a dedicated user: useradd --system permesso",
		}}
	}
	return []finding{okFinding("%s, owned by UID %d", console.OneLine(d.Layout.Home), d.uid)}
}

// withFolders returns the workspaces that have folders.
func (d *doctor) withFolders() (names []string) {
	have, err := d.Store.Workspaces()
	if err != nil {
		return nil
	}
	for _, ws := range d.names {
		if slices.Contains(have, ws) {
			names = append(names, ws)
		}
	}
	return names
}

func (d *doctor) checkFolders(context.Context) []finding {
	seen, wrong := d.Layout.CheckFolders(d.FS, d.withFolders()...)
	var list []finding
	for _, err := range wrong {
		if !errors.Is(err, fs.ErrNotExist) {
			list = append(list, findingOf(severityError, "", err))
			continue
		}
		f := findingOf(severityWarning, "", err)
		f.Cure = "permesso serve creates it when it starts"
		list = append(list, f)
	}
	for _, ws := range d.withFolders() {
		if note := d.Store.Notes(ws); note != "" {
			list = append(list, finding{Severity: severityWarning, Workspace: ws, What: console.OneLine(note), Cure: "run the daemon on a kernel with openat2 and with /proc mounted"})
		}
	}
	return orOK(list, "%d folders, none accessible to other users", seen)
}

// checkPaths checks the parent folders of home and configuration: a user who
// can replace a parent folder can replace what is in it.
func (d *doctor) checkPaths(context.Context) []finding {
	list := findingsOf(severityError, "", ipc.CheckPath(filepath.Dir(d.Layout.Home), d.uid)...)
	if d.file != "" {
		file, err := filepath.Abs(d.file)
		if err != nil {
			return findingsOf(severityError, "", err)
		}
		for _, f := range findingsOf(severityError, "", ipc.CheckPath(file, d.uid)...) {
			if !slices.Contains(list, f) {
				list = append(list, f)
			}
		}
	}
	return orOK(list, "no other user can replace the home or the configuration")
}

// checkPrograms checks the programs that tools run.
func (d *doctor) checkPrograms(context.Context) []finding {
	var list []finding
	programs := 0
	for _, name := range sortedTools(d.Config) {
		argv := d.Config.Tools[name].Handler.Argv
		if d.Config.Tools[name].Handler.Kind != approval.HandlerCommand || len(argv) == 0 {
			continue
		}
		programs++
		for _, err := range slices.Concat(ipc.CheckProgram(argv[0], d.uid), d.checkScripts(argv)) {
			f := findingOf(severityError, "", err)
			f.What = "tool " + name + ": " + f.What
			list = append(list, f)
		}
	}
	return orOK(list, "%s, all present, none writable by another user", plural(programs, "program"))
}

// runners are programs that run the file in their first argument.
var runners = []string{"sh", "bash", "dash", "zsh", "fish", "env", "python", "python3", "perl", "ruby", "node", "bun", "deno", "Rscript"}

// checkScripts checks script files among the arguments: replacing a script
// that sh runs is replacing the program. Other files are data.
func (d *doctor) checkScripts(argv []string) (wrong []error) {
	first := slices.Contains(runners, filepath.Base(argv[0]))
	for _, arg := range argv[1:] {
		if !filepath.IsAbs(arg) {
			first = first && strings.HasPrefix(arg, "-")
			continue
		}
		info, err := os.Stat(arg)
		if err == nil && info.Mode().IsRegular() && (first || info.Mode().Perm()&0o111 != 0) {
			wrong = append(wrong, ipc.CheckPath(arg, d.uid)...)
		}
		first = false
	}
	return wrong
}

func sortedTools(c *config.Config) []string {
	names := make([]string, 0, len(c.Tools))
	for name := range c.Tools {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// checkKeys loads the keys as serve does, and keeps them for later checks.
func (d *doctor) checkKeys(context.Context) []finding {
	var list []finding
	k, err := d.LoadKeys()
	if err != nil {
		list = append(list, findingOf(severityError, "", err))
	} else {
		d.keys = k
	}
	if err := receipt.Check(d.FS, d.Layout.Keys()); err != nil {
		list = append(list, findingOf(severityError, "", err))
	}
	entries, err := os.ReadDir(d.Layout.Keys())
	if err != nil {
		return append(list, findingOf(severityError, "", err))
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && ownerOf(info) != d.uid {
			list = append(list, finding{
				What: fmt.Sprintf("%s belongs to UID %d, the home to UID %d", console.OneLine(filepath.Join(d.Layout.Keys(), e.Name())), ownerOf(info), d.uid),
				Cure: fmt.Sprintf("chown -R %d %s", d.uid, sandbox.ShellWord(d.Layout.Keys())),
			})
		}
	}
	return orOK(list, "the MAC key and the signing key pair load and match")
}
