package hook

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// Folders are those in which an agent looks for settings: in the project and in each folder above it, and the user's.
func (a Agent) Folders(home, project string, env func(string) string) (all []string) {
	for dir := project; ; dir = filepath.Dir(dir) {
		all = append(all, filepath.Join(dir, settingsOf[a.Name].folder))
		if dir == filepath.Dir(dir) {
			break
		}
	}
	user, err := a.File(User, home, project, env)
	if dir := filepath.Dir(user); err == nil && !slices.Contains(all, dir) {
		all = append(all, dir)
	}
	return all
}

// Stands are the events for which settings have a hook of ours.
func (a Agent) Stands(scope Scope, text []byte) (events []string) {
	if a.requires(scope) {
		return a.required(string(text))
	}
	var doc struct {
		Hooks map[string]approval.Raw `json:"hooks"`
	}
	if json.Unmarshal(text, &doc) != nil {
		return nil
	}
	for event, value := range doc.Hooks {
		var entries []entry
		if json.Unmarshal(value, &entries) != nil {
			continue
		}
		if slices.ContainsFunc(entries, func(e entry) bool { return slices.ContainsFunc(e.Hooks, a.runsOurs) }) {
			events = append(events, event)
		}
	}
	slices.Sort(events)
	return events
}

var requiredLine = regexp.MustCompile(`^\[\[hooks\.(\w+)\]\]$|^command *= *(".*"|'.*')$`)

// required are the events of Codex's requirements.toml, as we write it; others may have copied our lines into theirs.
func (a Agent) required(text string) (events []string) {
	event := ""
	for line := range strings.Lines(text) {
		switch m := requiredLine.FindStringSubmatch(strings.TrimSpace(line)); {
		case m == nil:
		case m[1] != "":
			event = m[1]
		case event != "":
			command := strings.Trim(m[2], "'")
			if plain, err := strconv.Unquote(m[2]); err == nil {
				command = plain
			}
			if a.runsOurs(commandEntry{Command: command}) && !slices.Contains(events, event) {
				events = append(events, event)
			}
		}
	}
	return events
}
