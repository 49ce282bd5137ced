package setup

import (
	"fmt"
	"os/user"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// Approver is an item of approver list --json.
type Approver struct {
	Name       string            `json:"name"`
	IDs        map[string]string `json:"ids"`
	Workspaces []string          `json:"workspaces"` // that ask this person
}

// DescribeApprover describes a configured approver.
func DescribeApprover(c *config.Config, name string) Approver {
	x := Approver{Name: name, IDs: c.Approvers[name].IDs, Workspaces: []string{}}
	for _, ws := range home.WorkspaceNames(c) {
		if slices.Contains(c.Workspaces[ws].Approvers, name) {
			x.Workspaces = append(x.Workspaces, ws)
		}
	}
	return x
}

const idHint = "permesso telegram setup finds the id by itself; or the person writes /start to the gate's bot, which answers with it"

// digits reports whether a text is a number as ids are written.
func digits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// AddApprover adds an approver to the configuration, and to the approvers of its workspaces.
func AddApprover(a *console.Console, n config.NewApprover) error {
	h, err := editable(a)
	if err != nil {
		return err
	}
	if digits(n.Name) {
		return console.Fail(console.ExitUsage, "permesso approver add ann --telegram "+n.Name, "%s looks like an id: give the person a name", n.Name)
	}
	if err := checkName(n.Name); err != nil {
		return err
	}
	if _, exists := h.Config.Approvers[n.Name]; exists {
		return console.Fail(console.ExitError, "permesso approver list shows the approvers; permesso config edit changes them", "approver '%s' already exists", n.Name)
	}
	if n.Telegram != "" && !digits(n.Telegram) {
		return console.Fail(console.ExitUsage, idHint, "--telegram: %.80q is not a numeric id; a @username can get another owner", n.Telegram)
	}
	if n.Local != "" && !digits(n.Local) {
		u, err := user.Lookup(n.Local)
		if err != nil {
			return console.Fail(console.ExitUsage, "id -u prints the UID of a user", "--local: no user %.80q on this machine", n.Local)
		}
		n.Local = u.Uid
	}
	if n.Telegram+n.Local+n.Email == "" {
		return console.Fail(console.ExitUsage, "give --local, --telegram or --email", "nothing says how the daemon recognizes %s", n.Name)
	}
	if n.Workspaces, err = chosen(h.Config, n.Workspaces); err != nil {
		return err
	}
	daemon, err := EditConfig(a, h, func(data []byte) ([]byte, error) { return home.Reader(a).AddApprover(h.Config.File, data, n) })
	if err != nil {
		return err
	}
	missing := []string{}
	if after, err := home.Load(a); err == nil {
		missing = append(missing, after.Config.MissingFor(n.Name)...)
	}
	text := fmt.Sprintf("added   approver %s to %s, for %s\n%s", n.Name, h.Config.File, strings.Join(n.Workspaces, ", "), daemon)
	for _, key := range missing {
		text += "\nmissing " + key + ": " + nextStep(key, n)
	}
	return a.Print(map[string]any{"approver": n.Name, "workspaces": n.Workspaces, "config": h.Config.File, "daemon": daemon, "missing": missing}, text)
}

// nextStep says how a missing key is added.
func nextStep(key string, n config.NewApprover) string {
	if channel, ok := strings.CutPrefix(key, "channels."); ok {
		return "permesso " + channel + " setup"
	}
	var list []string
	if n.Telegram != "" {
		list = append(list, `"telegram"`)
	}
	if n.Email != "" {
		list = append(list, `"email"`)
	}
	return "permesso config edit, and add " + strings.Join(list, ", ")
}

// chosen are the workspaces of these names; without names the only one.
func chosen(c *config.Config, names []string) ([]string, error) {
	all := home.WorkspaceNames(c)
	if len(names) == 0 && len(all) > 1 {
		return nil, console.Fail(console.ExitUsage, "set --workspace to one or more of: "+strings.Join(all, ", "), "--workspace is required: there is more than one")
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return nil, noWorkspace(name)
		}
	}
	if len(names) == 0 {
		names = all
	}
	return slices.Compact(slices.Sorted(slices.Values(names))), nil
}

// RemoveApprover removes an approver. Only if leaveNone is set may a workspace have no
// approver afterwards.
func RemoveApprover(a *console.Console, name string, leaveNone bool) error {
	h, err := editable(a)
	if err != nil {
		return err
	}
	if _, exists := h.Config.Approvers[name]; !exists {
		return console.Fail(console.ExitError, "permesso approver list shows the approvers", "no approver %.80q in the configuration", name)
	}
	from := DescribeApprover(h.Config, name).Workspaces
	for _, ws := range from {
		if len(h.Config.Workspaces[ws].Approvers) == 1 && !leaveNone {
			return console.Fail(console.ExitError, "add another approver first, or set --leave-none",
				"'%s' is the only approver of workspace '%s'", name, ws)
		}
	}
	daemon, err := EditConfig(a, h, func(data []byte) ([]byte, error) { return home.Reader(a).RemoveApprover(h.Config.File, data, name) })
	if err != nil {
		return err
	}
	text := fmt.Sprintf("removed approver %s from %s\n%s", name, h.Config.File, daemon)
	return a.Print(map[string]any{"approver": name, "workspaces": from, "config": h.Config.File, "daemon": daemon}, text)
}

// String describes the approver in one line.
func (x Approver) String() string {
	var ids []string
	for _, kind := range []string{"local", "telegram", "email"} {
		if id := x.IDs[kind]; id != "" {
			ids = append(ids, kind+" "+id)
		}
	}
	return fmt.Sprintf("%s · %s · %s", x.Name, orNone(ids), orNone(x.Workspaces))
}

func orNone(all []string) string {
	if len(all) == 0 {
		return none
	}
	return strings.Join(all, ", ")
}
