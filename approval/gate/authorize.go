package gate

import (
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// operatorPrefix begins the name of a local person without an approver entry. No
// approver can have such a name, because names have no colon.
const operatorPrefix = "operator:"

// People is what one configuration says of those who may decide.
type People interface {
	Workspace(name string) (approval.Workspace, bool)
	// Approver returns the approver whom the person's channel and id identify, or "".
	Approver(by approval.Person) (name string)
	// IsAgent reports whether an agent of any workspace runs as uid.
	IsAgent(uid string) bool
}

// Authorizer says who may decide, at every entrance:
//
//   - A person whose id belongs to an approver is that approver, and never the operator.
//     The approver may decide where listed. If the workspace or the request has a
//     principal, only the principal may.
//   - At a local entrance that only processes with access to HOME reach, a person
//     without an approver entry is the operator: such a process could write decisions
//     anyway. The operator may decide everywhere, also if the list is empty or a
//     principal is set.
//   - With local_decisions = false no person may decide locally, approver or operator.
//   - A UID of an agent may not decide anywhere: it could approve its own or another
//     agent's requests.
//
// Everything else is refused: unknown workspaces, unknown entrances, empty ids.
type Authorizer struct {
	People func() People   // by the current configuration; nil: no person may decide
	Script approval.Person // decides in every workspace; zero: no script does
}

// entrance is how a way to the gate differs from a channel, which has verified an
// approver's id by itself.
type entrance struct {
	local    bool // people are known by UID: local_decisions and agents' UIDs count
	operator bool // a person without an approver entry is the operator
}

func entranceOf(channel string) entrance {
	switch channel {
	case approval.EntranceLocal:
		return entrance{local: true, operator: true}
	case approval.EntranceSocket:
		return entrance{local: true}
	}
	return entrance{} // API keys, and the channels by their names
}

// May returns the person's name, as others see it, if the person may decide p. p is nil
// if no such request is pending.
func (a *Authorizer) May(ws string, p *approval.Pending, by approval.Person) (name string, ok bool) {
	if a == nil || a.People == nil || ws == "" || by.ID == "" {
		return "", false
	}
	people, at := a.People(), entranceOf(by.Channel)
	if people == nil {
		return "", false
	}
	w, known := people.Workspace(ws)
	switch {
	case !known, at.local && (!w.LocalDecisions || people.IsAgent(by.ID)):
		return "", false
	case by == a.Script:
		return by.Name, true
	}
	name = people.Approver(by)
	switch {
	case name == "" && at.operator:
		return operatorName(by), true
	case name == "", !slices.Contains(w.Approvers, name),
		w.Principal != "" && w.Principal != name,
		p != nil && p.Principal != "" && p.Principal != name:
		return "", false
	}
	return name, true
}

func operatorName(by approval.Person) string {
	if strings.HasPrefix(by.Name, operatorPrefix) && len(by.Name) > len(operatorPrefix) {
		return by.Name
	}
	return operatorPrefix + by.ID
}
