// Package agentconf finds the settings of agents, recognizes our own lines in them, and edits them so that every other byte
// stays as it is.
package agentconf

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
)

// Scope is whose settings are meant.
type Scope string

// The scopes. Managed is the system's, which neither a project nor the user switches off.
const (
	User    Scope = "user"
	Project Scope = "project"
	Managed Scope = "managed"
)

// Place is where an agent keeps a file of settings of the user and of a project.
type Place struct {
	Variable string // that names the user's folder instead
	Below    string // the folder in that one
	Folder   string // below the home or the project
	Project  string // below the project instead; "": Folder
	File     string // in that folder
}

// Path is the file of the user, or of the project. home is the user's folder, project the folder of the project.
func (p Place) Path(scope Scope, home, project string, env func(string) string) string {
	if scope == Project {
		return filepath.Join(project, cmp.Or(p.Project, p.Folder), p.File)
	}
	if p.Variable != "" {
		if dir := env(p.Variable); dir != "" {
			return filepath.Join(dir, p.Below, p.File)
		}
	}
	return filepath.Join(home, p.Folder, p.File)
}

// Runs reports whether a command line runs this program with these first arguments.
func Runs(line string, args ...string) bool {
	words := strings.Fields(line)
	for i, w := range words {
		if strings.Trim(filepath.Base(w), "'") == "permesso" && len(words)-i > len(args) && slices.Equal(words[i+1:i+1+len(args)], args) {
			return true
		}
	}
	return false
}
