package policy

import (
	"cmp"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
)

// Learn takes one entry of the audit log. Entries come in the log's order. An entry
// that was learned before is ignored.
func (e *Engine) Learn(x event.Entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.init()
	if x.Seq > 0 {
		if x.Seq <= e.seq {
			return
		}
		e.seq = x.Seq
	}
	switch x.Event {
	case event.Approved, event.AutoApproved:
		if x.Detail != event.DetailAgain {
			e.learnClaim(&x)
		}
	case event.Requested:
		e.learnAsked(&x)
	case event.Failed: // with taints: those of its claim, because it read nothing
		for _, t := range x.Taints {
			e.account(x.Workspace).takeBack(e.taintedSession(&x), t, x.RequestID)
		}
	case event.TaintsCleared:
		a := e.account(x.Workspace)
		if x.SessionID == "" {
			clear(a.Taints)
		} else {
			delete(a.Taints, x.SessionID)
		}
	}
}

func (e *Engine) learnClaim(x *event.Entry) {
	k := approval.Key{Workspace: x.Workspace, ID: x.RequestID}
	if b := e.reservations[k]; b != nil {
		delete(e.reservations, k)
		e.reserve(b, -1)
	}
	a := e.account(x.Workspace)
	if _, step := approval.CutStep(x.RequestID); step > 0 {
		x.Human = false // the program was approved, not the call
	}
	if x.Tool == "" && x.ActionType == approval.ActionProgram { // its steps count
		x.Cost, x.Taints = 0, nil
	} else {
		a.addUse(e.current().limits[x.Workspace], x.Capability, x.SessionID, x.Cost, x.Time)
	}
	session := e.taintedSession(x)
	for _, t := range x.Taints {
		a.addTaint(session, t, taintRead{x.RequestID, x.Tool, x.Capability, x.Target})
	}
	if h := e.grants.byID[x.Grant]; h != nil {
		h.uses++
		h.lastUsed = x.Time
	} else if x.Grant != "" {
		e.addPendingUse(x)
	}
	if x.Human {
		e.approvalsByKind[kindOf(x.Workspace, cmp.Or(x.Tool, x.ActionType), x.Capability)]++
	}
}

// taintedSession is the session whose taints an entry changes, "" for the workspace's.
func (e *Engine) taintedSession(x *event.Entry) string {
	if e.current().bound[x.Workspace] {
		return x.SessionID
	}
	return ""
}

// addPendingUse counts a use of a grant that is not loaded yet.
func (e *Engine) addPendingUse(x *event.Entry) {
	if e.pendingUses == nil {
		e.pendingUses = map[string]grantUses{}
	}
	u := e.pendingUses[x.Grant]
	e.pendingUses[x.Grant] = grantUses{u.N + 1, x.Time}
}

type grantUses struct {
	N    int       `json:"n"`
	Last time.Time `json:"last"`
}

func (e *Engine) learnAsked(x *event.Entry) {
	a := e.account(x.Workspace)
	k := approval.Key{Workspace: x.Workspace, ID: x.RequestID}
	before := a.Asked[x.ClientID]
	a.Asked[x.ClientID] = append(before[max(0, len(before)+1-maxAsked):], askedRequest{*x, e.asking[k]})
	delete(e.asking, k)
}

// Recurrence is how often people approved requests of the same workspace, action (the tool,
// or the action type of a request without one) and capability, whatever their targets were.
func (e *Engine) Recurrence(ws, action, capability string) int {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.approvalsByKind[kindOf(ws, action, capability)]
}

func kindOf(ws, action, capability string) string {
	return strings.Join([]string{ws, action, capability}, sep)
}
