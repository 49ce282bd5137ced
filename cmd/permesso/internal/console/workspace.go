package console

import (
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval/facts"
)

// CheckWorkspace returns the error about a workspace that is not one of names: those that the user may see. It says
// the same of one that does not exist and of one that the user may not see.
func CheckWorkspace(name string, names []string) error {
	if slices.Contains(names, name) {
		return nil
	}
	hint := "there are no workspaces"
	if near := facts.Nearest(name, names); near != "" {
		hint = "did you mean '" + near + "'?"
	} else if len(names) > 0 {
		hint = "workspaces: " + strings.Join(names, ", ")
	}
	return Fail(ExitError, hint, "no workspace '%.80s'", name)
}
