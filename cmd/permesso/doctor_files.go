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
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/receipt"
)

func ownerOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return os.Getuid()
}

// checkConfig reads the file as serve would, and compares it with the folders.
func (d *doctor) checkConfig(context.Context) []finding {
	if d.problem != nil {
		return configProblems(d.problem)
	}
	var list []finding
	for _, w := range d.cfg.Warnings {
		list = append(list, found(warning, "", w.In(d.cfg.File)))
	}
	if d.file == "" {
		list = append(list, finding{Severity: worthKnowing, What: "there is no configuration: everything asks", Cure: "permesso init writes one"})
	} else {
		list = append(list, d.checkSecrets()...)
	}
	if d.exists {
		list = append(list, d.compareWorkspaces()...)
	}
	return orWell(list, "%s: %s, %s", d.file, plural(len(d.cfg.Workspaces), "workspace"), plural(len(d.cfg.Tools), "tool"))
}

func configProblems(err error) (list []finding) {
	var e *config.Error
	if !errors.As(err, &e) {
		return foundAll(serious, "", err)
	}
	for _, p := range e.Errors {
		list = append(list, found(serious, "", p.In(e.File)))
	}
	return list
}

// compareWorkspaces holds the configuration against the folders.
func (d *doctor) compareWorkspaces() (list []finding) {
	have, err := d.store.Workspaces()
	if err != nil {
		return nil // the check of the folders says why
	}
	for _, ws := range d.names {
		_, configured := d.cfg.Workspaces[ws]
		switch {
		case !configured:
			list = append(list, finding{
				Severity: warning, Workspace: ws, What: "there are folders, and the configuration does not know it: its requests are refused",
				Cure: "add [workspaces." + ws + "], or move " + d.layout.Workspace(ws) + " away",
			})
		case !slices.Contains(have, ws):
			list = append(list, finding{
				Severity: worthKnowing, Workspace: ws, What: "it has no folders yet",
				Cure: "they are made when permesso serve starts",
			})
		}
	}
	return list
}

// checkSecrets looks at the files from which the configuration has secrets
// read: by the names of its keys, whatever they belong to.
func (d *doctor) checkSecrets() (list []finding) {
	for _, path := range secretFiles(d.configTree()) {
		if err := ipc.CheckSecret(path); errors.Is(err, fs.ErrNotExist) {
			list = append(list, finding{What: "there is no " + oneLine(path) + ", which the configuration names", Cure: "write it, or change the configuration"})
		} else if err != nil {
			list = append(list, found(serious, "", err))
		}
	}
	return list
}

// configTree is the file as it stands there, for what has no place of its own
// in the configuration. It is nil where it cannot be read, which the check of
// the configuration says.
func (d *doctor) configTree() map[string]any {
	b, err := os.ReadFile(d.file)
	var tree map[string]any
	if err != nil || toml.Unmarshal(b, &tree) != nil {
		return nil
	}
	return tree
}

// public are files that everybody may read.
var public = []string{"ca_file", "cert_file", "public_key_file"}

// secretFiles are the values of keys such as token_file, and what stands at the
// end of those in a table such as secret_headers: "Bearer /path/of/the/token".
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

// checkHome says whether there is a home, and whether we are the ones to look.
func (d *doctor) checkHome(context.Context) []finding {
	if !d.exists {
		return []finding{{What: "no gate lives in " + oneLine(d.layout.Home), Cure: "permesso init, then permesso serve; or name another --home"}}
	}
	switch uid := os.Getuid(); {
	case uid != 0 && uid != d.uid:
		d.exists = false // for us
		return []finding{{
			What: fmt.Sprintf("%s belongs to user %d, and this is user %d: most of it cannot be looked at", oneLine(d.layout.Home), d.uid, uid),
			Cure: fmt.Sprintf("sudo -u '#%d' permesso doctor", d.uid),
		}}
	case d.uid == 0:
		return []finding{{
			Severity: warning, What: oneLine(d.layout.Home) + " belongs to root: what is approved runs as root",
			Cure: "let a user of its own run the gate: useradd --system permesso",
		}}
	}
	return []finding{well("%s, of user %d", oneLine(d.layout.Home), d.uid)}
}

// withFolders are the workspaces that have folders.
func (d *doctor) withFolders() (names []string) {
	have, err := d.store.Workspaces()
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
	seen, wrong := d.layout.CheckFolders(d.fs, d.withFolders()...)
	var list []finding
	for _, err := range wrong {
		if !errors.Is(err, fs.ErrNotExist) {
			list = append(list, found(serious, "", err))
			continue
		}
		f := found(warning, "", err)
		f.Cure = "permesso serve makes it when it starts"
		list = append(list, f)
	}
	for _, ws := range d.withFolders() {
		if note := d.store.Notes(ws); note != "" {
			list = append(list, finding{Severity: warning, Workspace: ws, What: oneLine(note), Cure: "run the gate where the kernel has openat2 and /proc"})
		}
	}
	return orWell(list, "%d folders, none open to others", seen)
}

// checkPaths looks above the home and the configuration: who may replace a
// folder on the way there, replaces what is in it.
func (d *doctor) checkPaths(context.Context) []finding {
	list := foundAll(serious, "", ipc.CheckPath(filepath.Dir(d.layout.Home), d.uid)...)
	if d.file != "" {
		file, err := filepath.Abs(d.file)
		if err != nil {
			return foundAll(serious, "", err)
		}
		for _, f := range foundAll(serious, "", ipc.CheckPath(file, d.uid)...) {
			if !slices.Contains(list, f) {
				list = append(list, f)
			}
		}
	}
	return orWell(list, "nobody else can replace the home or the configuration")
}

// checkPrograms looks at what tools run.
func (d *doctor) checkPrograms(context.Context) []finding {
	var list []finding
	programs := 0
	for _, name := range sortedTools(d.cfg) {
		argv := d.cfg.Tools[name].Handler.Argv
		if d.cfg.Tools[name].Handler.Kind != approval.HandlerCommand || len(argv) == 0 {
			continue
		}
		programs++
		for _, err := range slices.Concat(ipc.CheckProgram(argv[0], d.uid), d.checkScripts(argv)) {
			f := found(serious, "", err)
			f.What = "tool " + name + ": " + f.What
			list = append(list, f)
		}
	}
	return orWell(list, "%s, all there and nobody else's", plural(programs, "program"))
}

// runners run the file that is their first argument.
var runners = []string{"sh", "bash", "dash", "zsh", "fish", "env", "python", "python3", "perl", "ruby", "node", "bun", "deno", "Rscript"}

// checkScripts looks at files among a program's arguments: a script that sh is
// to run is as good as the program. Other files are its data.
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

// checkKeys loads them as serve would, and keeps them for the seals.
func (d *doctor) checkKeys(context.Context) []finding {
	var list []finding
	k, err := d.loadKeys()
	if err != nil {
		list = append(list, found(serious, "", err))
	} else {
		d.keys = k
	}
	if err := receipt.Check(d.fs, d.layout.Keys()); err != nil {
		list = append(list, found(serious, "", err))
	}
	entries, err := os.ReadDir(d.layout.Keys())
	if err != nil {
		return append(list, found(serious, "", err))
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && ownerOf(info) != d.uid {
			list = append(list, finding{
				What: fmt.Sprintf("%s belongs to user %d, the home to user %d", oneLine(filepath.Join(d.layout.Keys(), e.Name())), ownerOf(info), d.uid),
				Cure: fmt.Sprintf("chown -R %d %s", d.uid, shellWord(d.layout.Keys())),
			})
		}
	}
	return orWell(list, "the MAC key and both halves of the signing key load and fit")
}
