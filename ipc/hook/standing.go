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
		all = append(all, filepath.Join(dir, settingsOf[a.Name].Folder))
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
	if w, ok := settingsOf[a.Name].whole[scope]; ok {
		if events = a.required(string(text)); events == nil && w.isOurs(text) {
			events = settingsOf[a.Name].events
		}
		return events
	}
	var doc struct {
		Hooks map[string]approval.Raw `json:"hooks"`
	}
	if json.Unmarshal(text, &doc) != nil {
		return nil
	}
	for event, value := range doc.Hooks {
		var entries []anyEntry
		if json.Unmarshal(value, &entries) != nil {
			continue
		}
		if slices.ContainsFunc(entries, func(e anyEntry) bool { return slices.ContainsFunc(e.lines(), a.isOurLine) }) {
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
			if a.isOurLine(command) && !slices.Contains(events, event) {
				events = append(events, event)
			}
		}
	}
	return events
}
