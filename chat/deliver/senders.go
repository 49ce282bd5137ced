package deliver

import (
	"slices"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// person identifies a user.
func (s *session) person(id ID) approval.Person {
	return approval.Person{Channel: s.Name, ID: string(id)}
}

// workspacesAt lists the workspaces that are asked in a chat or thread.
func (s *session) workspacesAt(at Address) []Workspace {
	return slices.DeleteFunc(s.Workspaces(), func(ws Workspace) bool {
		return !slices.ContainsFunc(ws.Places, func(p Place) bool {
			return p.Chat == at.Chat && (p.Thread == "" || p.Thread == at.Thread)
		})
	})
}

// mayDecideIn lists the names of the workspaces in which the user may decide.
func (s *session) mayDecideIn(all []Workspace, by approval.Person) []string {
	var names []string
	for _, ws := range all {
		if _, ok := s.Guard.May(ws.Name, nil, by); ok {
			names = append(names, ws.Name)
		}
	}
	return names
}

// languageIn is the language of a chat.
func languageIn(all []Workspace, chatID ID) string {
	for _, ws := range all {
		for _, p := range ws.Places {
			if p.Chat == chatID && p.Language != "" {
				return p.Language
			}
		}
	}
	for _, ws := range all {
		return ws.Language
	}
	return ""
}

// Limits on the refusals sent to one user.
const (
	maxRefusals   = 5
	refusalWindow = time.Minute
	maxRefused    = 1000
)

// refusals counts recent refusals by user.
type refusals struct {
	mu sync.Mutex
	at map[ID][]time.Time
}

// count counts a refusal, and reports whether to send it: a user gets at most maxRefusals per refusalWindow. last says
// that no further one is sent for a refusalWindow.
func (x *refusals) count(id ID, now time.Time) (speak, last bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := func(t time.Time) bool { return now.Sub(t) >= refusalWindow }
	if len(x.at) >= maxRefused {
		for i, times := range x.at {
			if old(times[len(times)-1]) {
				delete(x.at, i)
			}
		}
	}
	times := x.at[id]
	if len(times) < maxRefusals || old(times[maxRefusals-1]) { // else no refusal is sent until the last one is old
		times = slices.DeleteFunc(times, old)
	}
	if len(times) >= maxRefusals || len(x.at) >= maxRefused && x.at[id] == nil {
		return false, false
	}
	x.at[id] = append(times, now)
	return true, len(times)+1 == maxRefusals
}

// auditRefusal writes an audit entry about a refused user, and reports whether to send the refusal.
func (s *session) auditRefusal(k approval.Key, by ID) (speak bool) {
	if speak, _ := s.refusals.count(by, s.now()); !speak {
		return false
	}
	s.Guard.Refused(k, s.person(by))
	return true
}
