package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/permesso-dev/permesso/ipc/hook"
)

// key is what switches hooks off in a file of an agent's settings.
type key struct {
	file    string   // in the folder of the agent's settings
	path    []string // to the value
	off     func(any) bool
	managed bool // switches off also the hook in the settings of the system, unless a value there overrules it
}

var keys = map[string][]key{
	"claude-code": {
		{file: "settings.json", path: []string{"disableAllHooks"}, off: is(true)},
		{file: "settings.local.json", path: []string{"disableAllHooks"}, off: is(true)},
	},
	"codex": {
		{file: "config.toml", path: []string{"features", "hooks"}, off: is(false)},
		{file: "config.toml", path: []string{"features", "codex_hooks"}, off: is(false)}, // its earlier name, still read
	},
	"gemini": {
		{file: "settings.json", path: []string{"hooksConfig", "enabled"}, off: is(false), managed: true},
		{file: "settings.json", path: []string{"hooksConfig", "disabled"}, off: namesOurs, managed: true},
	},
}

func is(value bool) func(any) bool { return func(v any) bool { return v == value } }

// namesOurs reports whether a list names our hook, or its command line.
func namesOurs(v any) bool {
	items, _ := v.([]any)
	for _, item := range items {
		if s, ok := item.(string); ok && strings.Contains(s, "permesso") {
			return true
		}
	}
	return false
}

// Off is a file that switches hooks off, or that cannot be read.
type Off struct {
	File    string `json:"file"`
	Key     string `json:"key"`     // that does it; "": the file cannot be read
	Error   string `json:"error"`   // why it cannot be read
	Managed bool   `json:"managed"` // it switches off also the hook in the settings of the system
	Above   bool   `json:"above"`   // it is in a folder above the project, where the agent may not look
}

// off are the files that switch the hooks of an agent off in a project, the nearest first.
func (p Place) off(a hook.Agent) (all []Off) {
	user, err := a.File(hook.User, p.Home, p.Project, p.Env)
	overrules := p.overrules(a)
	for i, dir := range a.Folders(p.Home, p.Project, p.Env) {
		above := i > 0 && (err != nil || dir != filepath.Dir(user))
		read := map[string]map[string]any{} // each file once
		for _, k := range keys[a.Name] {
			file := filepath.Join(dir, k.file)
			doc, known := read[file]
			if !known {
				var err error
				if doc, err = settings(file); err != nil {
					all = append(all, Off{File: file, Error: err.Error(), Above: above})
				}
				read[file] = doc
			}
			if k.off(at(doc, k.path)) {
				all = append(all, Off{File: file, Key: strings.Join(k.path, "."), Managed: k.managed && !overrules(k), Above: above})
			}
		}
	}
	return all
}

// overrules tells of a key whether the system's settings have it on. Lists are joined, so none overrules another one.
func (p Place) overrules(a hook.Agent) func(key) bool {
	var doc map[string]any
	if file, err := a.File(hook.Managed, p.Home, p.Project, p.Env); err == nil && filepath.Ext(file) == ".json" {
		doc, _ = settings(file) // what cannot be read overrules nothing
	}
	return func(k key) bool { return at(doc, k.path) == true }
}

func at(v any, path []string) any {
	for _, name := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

// settings is a file of settings; nil: there is none.
func settings(file string) (doc map[string]any, err error) {
	b, err := readFile(file)
	if err != nil || len(strings.TrimSpace(string(b))) == 0 {
		return nil, err
	}
	if filepath.Ext(file) == ".toml" {
		err = toml.Unmarshal(b, &doc)
	} else {
		err = json.Unmarshal(b, &doc)
	}
	return doc, err
}

const maxSettings = 4 << 20

// readFile reads a file that may be anything: a project can hold a named pipe under this name. Without a file there is
// neither content nor an error.
func readFile(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() {
		return nil, nil
	}
	if err != nil {
		return nil, cause(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, cause(err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSettings+1))
	if err == nil && len(b) > maxSettings {
		err = fmt.Errorf("larger than %d MiB", maxSettings>>20)
	}
	return b, err
}

// cause is an error without the path, which stands beside it.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
