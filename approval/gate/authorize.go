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

// May returns the person's name, as others see it, if the person may decide p. p is nil
// if no such request is pending.
func (a *Authorizer) May(ws string, p *approval.Pending, by approval.Person) (name string, ok bool) {
	if a == nil || a.People == nil || ws == "" || by.ID == "" {
		return "", false
	}
	// At an entrance people are known by UID: local_decisions and agents' UIDs count. API
	// keys are no entrance, and a channel has verified an approver's id by itself.
	atHome := by.Channel == approval.EntranceLocal // a person without an approver entry is the operator
	local := atHome || by.Channel == approval.EntranceSocket
	people := a.People()
	if people == nil {
		return "", false
	}
	w, known := people.Workspace(ws)
	switch {
	case !known, local && (!w.LocalDecisions || people.IsAgent(by.ID)):
		return "", false
	case by == a.Script:
		return by.Name, true
	}
	name = people.Approver(by)
	switch {
	case name == "" && atHome:
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
