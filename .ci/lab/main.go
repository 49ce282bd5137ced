// Command lab runs the pinned versions of the agents against a model of ours on loopback, without any account, and reports
// whether a call is executed whose hook has ended in this way. It compares the report with the recorded one: a cell that
// has changed is an error, with both versions.
//
//	go run ./.ci/lab [-update] [-cells PART] FOLDER
//
// FOLDER has the agents' npm packages in node_modules; npm install fills it with those of package.json here. Cells with
// settings of the system run in a mount namespace of their own, so that no file of the machine is touched.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/ipc/hook/model"
)

// report is what a run has found: of each agent its version, and of each cell "runs" or "blocked".
type report struct {
	Versions map[string]string            `json:"versions"`
	Cells    map[string]map[string]string `json:"cells"` // by the row, then by the column
}

const recorded = ".ci/lab/report.json"

func main() {
	update := flag.Bool("update", false, "record the report")
	part := flag.String("cells", "", "only rows with this text")
	gate := flag.Bool("gate", false, "only the trials with our own hook and daemon")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: go run ./.ci/lab [-update] [-cells PART] FOLDER")
		os.Exit(2)
	}
	folder, err := filepath.Abs(flag.Arg(0))
	if err == nil && *gate {
		_, err = (&lab{folder: folder}).gate(*part)
	} else if err == nil {
		err = run(folder, *part, *update)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func run(folder, part string, update bool) error {
	l := &lab{folder: folder}
	now := report{Versions: map[string]string{}, Cells: map[string]map[string]string{}}
	for _, a := range agents {
		version, err := l.version(a.pkg)
		if err != nil {
			fmt.Printf("lab: %s is not installed: its column is missing\n", a.name)
			continue
		}
		now.Versions[a.name] = version
	}
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
	if update {
		b, err := json.MarshalIndent(now, "", "  ")
		if err != nil {
			return err
		}
		return os.WriteFile(recorded, append(b, '\n'), 0o644)
	}
	return compare(now)
}

func compare(now report) error {
	b, err := os.ReadFile(recorded)
	if err != nil {
		return err
	}
	var before report
	if err := json.Unmarshal(b, &before); err != nil {
		return err
	}
	var changed []error
	for row, cells := range now.Cells {
		for column, got := range cells {
			if was := before.Cells[row][column]; was != got {
				name := agentOf(column).name
				changed = append(changed, fmt.Errorf("%s, %s: %s with %s, recorded: %s with %s", row, column, got, now.Versions[name], was, before.Versions[name]))
			}
		}
	}
	return errors.Join(changed...)
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
type lab struct{ folder string }

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

// place is the disposable world of one call.
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

func (l *lab) call(a agent, row row, dir string) (ran bool, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return false, err
	}
	effect := filepath.Join(dir, "effect")
	m := &model.Server{Turns: [][]model.Call{{a.touch(effect)}}}
	server := &http.Server{Handler: m, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()

	p := place{dir: dir, home: filepath.Join(dir, "home"), project: filepath.Join(dir, "project"), hook: filepath.Join(dir, "hook.sh"), url: "http://" + listener.Addr().String()}
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
		argv = append([]string{"unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "lab"}, argv...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = p.project
	cmd.Env = append([]string{"HOME=" + p.home, "PATH=" + os.Getenv("PATH"), "TERM=xterm-256color", "LAB_KEY=none"}, a.env(p.url)...)
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

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
