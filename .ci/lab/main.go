// Command lab runs the pinned versions of the agents against a model of ours on loopback, without any account, and reports
// whether a call is executed whose hook has ended in this way. It compares the report with the recorded one: a cell that
// has changed is an error, with both versions. Trials have our own hook and daemon, and break one of them: a call that ran
// without an approval is an error, except where the agent is known to go on without our process.
//
//	go run ./.ci/lab [-update] [-only cells|trials|schemas|servers|mcp] [-cells PART] [-column PART] [-wait TIME] FOLDER
//
// FOLDER has the agents' npm packages in node_modules; npm install fills it with those of package.json here. What has
// settings of the system, or a small file system, runs in a mount namespace of its own, so that no file of the machine is
// touched; without root this is one in a user namespace. With -update a run of all replaces the record, and a part of it
// only what it has found.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/ipc/hook/model"
)

// report is what a run has found: of each agent its version, and of each cell "runs" or "blocked".
type report struct {
	Versions map[string]string            `json:"versions"`
	Cells    map[string]map[string]string `json:"cells"`             // by the row, then by the column
	Trials   map[string]map[string]string `json:"trials"`            // with our hook: how often the call ran
	Schemas  map[string]map[string]string `json:"schemas,omitempty"` // by the agent, then by the golden event or answer: "valid", with its digest
}

const (
	recorded = ".ci/lab/report.json"
	document = "ipc/hook/README.md"
)

func main() {
	update := flag.Bool("update", false, "record the report")
	part := flag.String("cells", "", "only rows with this text")
	only := flag.String("only", "", "cells, or trials: those with our own hook and daemon, or schemas: golden events and answers against those of the packages, or servers: the MCP servers that the agents list, or mcp: calls that ask by MCP")
	wait := flag.Duration("wait", 10*time.Minute, "how long a call that asks by MCP waits for a late decision")
	column := flag.String("column", "", "only trials in columns with this text")
	possible := flag.Bool("possible", false, "only exit 1, with a line, where no mount namespace can be had")
	flag.Parse()
	if err := noNamespaces(); err != nil {
		fmt.Printf("lab: skipped: no mount namespace can be had here: %v\n", err)
		if *possible {
			os.Exit(1)
		}
		return
	}
	if *possible {
		return
	}
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: go run ./.ci/lab [-update] [-only cells|trials|schemas|servers|mcp] [-cells PART] [-column PART] [-wait TIME] FOLDER")
		os.Exit(2)
	}
	folder, err := filepath.Abs(flag.Arg(0))
	if err == nil {
		err = run(&lab{folder, *wait}, *part, *only, *column, *update)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func run(l *lab, part, only, column string, update bool) error {
	now := report{Versions: map[string]string{}, Cells: map[string]map[string]string{}}
	before, err := read()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, a := range append(slices.Clone(agents), editing) {
		version, err := l.version(a.pkg)
		if err != nil {
			fmt.Printf("lab: %s is not installed: its column is missing\n", a.name)
			continue
		}
		now.Versions[a.name] = version
	}
	if only == "" || only == "cells" {
		l.cells(part, &now)
	}
	var wrong error
	if only == "" || only == "trials" {
		now.Trials, wrong = l.gate(part, column)
	}
	if only == "" || only == "schemas" {
		l.schemas(&now)
	}
	if only == "" || only == "servers" {
		wrong = errors.Join(wrong, l.servers())
	}
	if only == "" || only == "mcp" {
		asked, err := l.mcp(part, column)
		wrong = errors.Join(wrong, err)
		if now.Trials == nil {
			now.Trials = map[string]map[string]string{}
		}
		maps.Copy(now.Trials, asked)
	}
	if !update {
		return errors.Join(wrong, compare(before, now))
	}
	if part+only+column != "" {
		now = before.with(now)
	}
	b, err := json.MarshalIndent(now, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(recorded, append(b, '\n'), 0o644); err != nil {
		return err
	}
	return errors.Join(wrong, writeDocument(now))
}

func (l *lab) cells(part string, now *report) {
	var jobs []func()
	var mu sync.Mutex
	for _, row := range rows {
		if !strings.Contains(row.name, part) {
			continue
		}
		now.Cells[row.name] = map[string]string{}
		for _, a := range agents {
			if now.Versions[a.name] == "" || row.only != nil && !slices.Contains(row.only, a.column) {
				continue
			}
			jobs = append(jobs, func() {
				got := l.cell(a, row)
				mu.Lock()
				defer mu.Unlock()
				now.Cells[row.name][a.column] = got
				fmt.Printf("lab: %-10s %-22s %s\n", got, a.column, row.name)
			})
		}
	}
	parallel(2, jobs)
}

func read() (r report, err error) {
	b, err := os.ReadFile(recorded)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(b, &r)
}

// with has what a run has found in place of what was found before.
func (r report) with(now report) report {
	all := report{
		Versions: map[string]string{}, Cells: map[string]map[string]string{}, Trials: map[string]map[string]string{}, Schemas: map[string]map[string]string{},
	}
	for _, x := range []report{r, now} {
		maps.Copy(all.Versions, x.Versions)
		for from, to := range map[*map[string]map[string]string]map[string]map[string]string{&x.Cells: all.Cells, &x.Trials: all.Trials, &x.Schemas: all.Schemas} {
			for row, cells := range *from {
				if to[row] == nil {
					to[row] = map[string]string{}
				}
				maps.Copy(to[row], cells)
			}
		}
	}
	return all
}

// compare names each cell that has changed, with both versions.
func compare(before, now report) error {
	var changed []error
	for row, cells := range now.Cells {
		for column, got := range cells {
			if was := before.Cells[row][column]; was != got {
				name := agentOf(column).name
				changed = append(changed, fmt.Errorf("%s, %s: %s with %s, recorded: %s with %s", row, column, got, now.Versions[name], was, before.Versions[name]))
			}
		}
	}
	for agent, results := range now.Schemas {
		for name, got := range results {
			if got != before.Schemas[agent][name] {
				changed = append(changed, fmt.Errorf("%s, schema: %s with %s, recorded: %q with %s", name, got, now.Versions[agent], before.Schemas[agent][name], before.Versions[agent]))
			}
		}
	}
	return errors.Join(changed...)
}

// writeDocument puts the tables into the document.
func writeDocument(r report) error {
	b, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	text := string(b)
	var names, trialNames, exchangeNames, mcpNames []string
	for _, row := range rows {
		names = append(names, row.name)
	}
	for _, t := range trials {
		trialNames = append(trialNames, t.name)
	}
	for _, x := range exchanges {
		exchangeNames = append(exchangeNames, acpRow(x))
	}
	for _, x := range exposures {
		mcpNames = append(mcpNames, mcpRow(x))
	}
	for mark, table := range map[string]string{
		"cells": r.table("the hook …", names, agents, r.Cells), "trials": r.table("", trialNames, tried, r.Trials),
		"exchanges": r.table("", exchangeNames, []agent{editing}, r.Trials), "mcp": r.table("", mcpNames, served, r.Trials),
	} {
		begin := "<!-- " + mark + ": make lab writes this table -->\n"
		before, rest, ok := strings.Cut(text, begin)
		_, after, ok2 := strings.Cut(rest, "<!-- end -->")
		if !ok || !ok2 {
			return fmt.Errorf("%s has no place for %s", document, mark)
		}
		text = before + begin + "\n" + table + "\n<!-- end -->" + after
	}
	return os.WriteFile(document, []byte(text), 0o644)
}

func (r report) table(head string, names []string, columns []agent, cells map[string]map[string]string) string {
	var out strings.Builder
	columns = slices.DeleteFunc(slices.Clone(columns), func(a agent) bool { return r.Versions[a.name] == "" })
	out.WriteString("| " + head + " |")
	for _, c := range columns {
		out.WriteString(" " + c.title(r.Versions) + " |")
	}
	out.WriteString("\n|---" + strings.Repeat("|---", len(columns)) + "|\n")
	for _, name := range names {
		out.WriteString("| " + name + " |")
		for _, c := range columns {
			got := cells[name][c.column]
			if got == "runs" {
				got = "**runs**"
			}
			out.WriteString(" " + cmp.Or(got, "–") + " |")
		}
		out.WriteString("\n")
	}
	return out.String()
}

func parallel(n int, jobs []func()) {
	next := make(chan func())
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for job := range next {
				job()
			}
		})
	}
	for _, job := range jobs {
		next <- job
	}
	close(next)
	wg.Wait()
}

// lab is where the agents are installed.
type lab struct {
	folder string
	wait   time.Duration // for a late decision
}

func (l *lab) version(pkg string) (string, error) {
	b, err := os.ReadFile(filepath.Join(l.folder, "node_modules", pkg, "package.json"))
	if err != nil {
		return "", err
	}
	var p struct{ Version string }
	return p.Version, json.Unmarshal(b, &p)
}

// cell is one call of one agent, with the hook of the row: "runs" or "blocked".
func (l *lab) cell(a agent, row row) string {
	dir, err := os.MkdirTemp("", "lab-")
	if err != nil {
		return err.Error()
	}
	defer os.RemoveAll(dir)
	ran, why := l.call(a, row, dir)
	if why != nil {
		return "error: " + why.Error()
	}
	if ran {
		return "runs"
	}
	return "blocked"
}

// place has the disposable files of one call.
type place struct {
	dir, home, project, system string // system: what is mounted at /etc/AGENT; "": nothing
	hook                       string // the script
	url                        string
}

func (p place) write(name, text string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), mode)
}

// env keeps all files of the agents in the place, also temporary ones.
func (p place) env() []string {
	return []string{
		"HOME=" + p.home, "PATH=" + os.Getenv("PATH"), "TERM=xterm-256color", "LAB_KEY=none",
		"TMPDIR=" + p.dir, "CLAUDE_CODE_TMPDIR=" + p.dir,
	}
}

func (l *lab) call(a agent, row row, dir string) (ran bool, err error) {
	effect := filepath.Join(dir, "effect")
	m := &model.Server{Turns: [][]model.Call{{a.shell("touch " + effect)}}}
	url, stop, err := serveModel(m)
	if err != nil {
		return false, err
	}
	defer stop()

	p := place{dir: dir, home: filepath.Join(dir, "home"), project: filepath.Join(dir, "project"), hook: filepath.Join(dir, "hook.sh"), url: url}
	called := filepath.Join(dir, "called")
	if row.script != "" {
		form := "specific"
		if a.flat {
			form = "flat"
		}
		script := "#!/bin/sh\nLAB_FORM=" + form + "\ntouch " + called + "\ncat >/dev/null\n" + row.script + "\n"
		if err := p.write(p.hook, script, 0o755); err != nil {
			return false, err
		}
	}
	if err := os.MkdirAll(p.project, 0o755); err != nil {
		return false, err
	}
	if row.managed {
		p.system = filepath.Join(dir, "system")
	}
	if err := a.prepare(p, row); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	argv := append([]string{filepath.Join(l.folder, "node_modules/.bin", a.program)}, a.args(row)...)
	if p.system != "" {
		mount := "mount --bind " + p.system + " /etc/" + a.system + " && exec \"$@\""
		if _, err := os.Stat("/etc/" + a.system); err != nil { // an empty /etc over the machine's, in this namespace alone
			mount = "mkdir -p " + dir + "/etc && cp -a /etc/. " + dir + "/etc 2>/dev/null; mkdir -p " + dir + "/etc/" + a.system + " && mount --bind " + dir + "/etc /etc && " + mount
		}
		argv = append(append(unshare(), "sh", "-c", mount, "lab"), argv...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = p.project
	cmd.Env = append(p.env(), a.env(p.url)...)
	killGroup(cmd)
	out, err := cmd.CombinedOutput()
	if m.Asked() == 0 {
		return false, fmt.Errorf("the model was not asked: %v: %s", err, lastLine(out))
	}
	_, hookErr := os.Stat(called)
	if row.calls && hookErr != nil {
		return false, fmt.Errorf("the hook was not called: %s", lastLine(out))
	}
	_, err = os.Stat(effect)
	return err == nil, nil
}

// killGroup makes the end of a command's time that of all its processes.
func killGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
