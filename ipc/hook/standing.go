package hook

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"

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

var requiredEvent = regexp.MustCompile(`(?m)^\[\[hooks\.(\w+)\]\]$`)

// Stands are the events for which settings have a hook of ours.
func (a Agent) Stands(scope Scope, text []byte) (events []string) {
	if a.requires(scope) {
		if bytes.HasPrefix(text, []byte(mark)) {
			for _, m := range requiredEvent.FindAllSubmatch(text, -1) {
				events = append(events, string(m[1]))
			}
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
