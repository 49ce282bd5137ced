package config

import (
	"errors"
	"fmt"
	"slices"
)

// NewApprover is an approver to add. Empty fields are left out.
type NewApprover struct {
	Name       string
	Local      string // the UID
	Telegram   string // the numeric id
	Email      string
	Language   string
	Workspaces []string // that ask this person
}

// AddApprover adds [approvers.NAME] to data, the content of the file called name, and the
// name to the workspaces' approvers. It changes no other setting and keeps comments. An error
// about the result is an *Error.
func (rd Reader) AddApprover(name string, data []byte, a NewApprover) ([]byte, error) {
	return rd.edit(name, data, func(f *file, before *Config) error {
		if err := a.check(before); err != nil {
			return err
		}
		f.addTable("approvers."+a.Name, []entry{
			{"local", a.Local}, {channelTelegram, a.Telegram}, {channelEmail, quoted(a.Email)}, {"language", quoted(a.Language)},
		})
		a.addToWorkspaces(f, before)
		return nil
	}, func(before, after *Config) bool {
		_, added := after.Approvers[a.Name]
		return added && a.addedTo(before, after, "approvers."+a.Name+".")
	})
}

// AddToWorkspaces adds the name to the workspaces' approvers in data, the content of the file
// called name, which has [approvers.NAME].
func (rd Reader) AddToWorkspaces(name string, data []byte, a NewApprover) ([]byte, error) {
	return rd.edit(name, data, func(f *file, before *Config) error {
		a.addToWorkspaces(f, before)
		return nil
	}, func(before, after *Config) bool { return a.addedTo(before, after) })
}

func (a NewApprover) addToWorkspaces(f *file, before *Config) {
	for _, ws := range a.Workspaces {
		n := f.root.at("workspaces", ws)
		f.add(f.addName(n, "approvers", a.Name, before.Workspaces[ws].Approvers), "workspaces", ws)
	}
}

// addedTo reports whether after is before with the name in the workspaces' approvers, and
// other keys only with these beginnings.
func (a NewApprover) addedTo(before, after *Config, changed ...string) bool {
	for _, ws := range a.Workspaces {
		changed = append(changed, "workspaces."+ws+".approvers")
		if !slices.Equal(after.Workspaces[ws].Approvers, withName(before.Workspaces[ws].Approvers, a.Name)) {
			return false
		}
	}
	return before.differsOnly(after, changed...)
}

func (a NewApprover) check(c *Config) error {
	if !validName(a.Name) {
		return fmt.Errorf("%s: an approver's name is %s", quote(a.Name), nameRule)
	}
	if _, exists := c.Approvers[a.Name]; exists {
		return fmt.Errorf("approver %s already exists", quote(a.Name))
	}
	for _, ws := range a.Workspaces {
		switch w, exists := c.Workspaces[ws]; {
		case !exists:
			return fmt.Errorf("there is no workspace %s", quote(ws))
		case w.Principal != "":
			return fmt.Errorf("only the principal %s may decide in workspace %s", quote(w.Principal), quote(ws))
		}
	}
	return nil
}

// RemoveApprover removes [approvers.NAME] from data, the content of the file called name, and
// the name from the approvers of all workspaces. Comments before and after stay.
func (rd Reader) RemoveApprover(name string, data []byte, approver string) ([]byte, error) {
	byHand := &Error{File: name, Errors: []Issue{{
		Message: "approver " + quote(approver) + " is not a separate section here", Hint: "permesso config edit",
	}}}
	out, err := rd.edit(name, data, func(f *file, before *Config) error {
		n := f.root.at("approvers", approver)
		if n == nil || n.header == 0 {
			return byHand
		}
		f.remove(n)
		for ws, w := range before.Workspaces {
			if !slices.Contains(w.Approvers, approver) {
				continue
			}
			list := f.root.at("workspaces", ws, "approvers")
			if list == nil || list.kind != array {
				return byHand
			}
			f.removeFrom(list, approver)
		}
		return nil
	}, func(before, after *Config) bool {
		_, still := after.Approvers[approver]
		changed := []string{"approvers." + approver + "."}
		for ws := range before.Workspaces {
			changed = append(changed, "workspaces."+ws+".approvers")
		}
		return !still && before.differsOnly(after, changed...)
	})
	if errors.Is(err, errOtherSettings) {
		return nil, byHand
	}
	return out, err
}
