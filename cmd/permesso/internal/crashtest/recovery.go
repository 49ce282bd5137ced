package crashtest

import (
	"context"
	"fmt"
	"path"
	"time"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/move"
)

// settleAll steps the gate until all keys are settled, without any error.
func (s *env) settleAll() []string {
	for range 3 { // failed steps are retried later, and incomplete files have a grace period
		s.w.now = s.w.now.Add(move.IncompleteGrace)
		if err := s.daemon.settle(); err != nil {
			return []string{"F settling fails after the fault: " + err.Error()}
		}
		s.w.observe()
	}
	return nil
}

// takesNoWork checks that a gate that needs a restart takes no new work.
func (s *env) takesNoWork() (bad []string) {
	before := len(s.w.effects)
	if err := s.ask(workspace, idAfter); err != nil {
		return []string{"H " + err.Error()}
	}
	_, _ = s.daemon.gate.Step(context.Background(), approval.Key{Workspace: workspace, ID: idAfter})
	if len(s.w.effects) != before {
		bad = append(bad, "F a handler ran although the gate needs a restart")
	}
	return bad
}

// servesNewRequests submits new requests in both workspaces.
func (s *env) servesNewRequests() (bad []string) {
	for ws, id := range map[string]string{workspace: idAfter, otherWorkspace: idOther} {
		if err := s.ask(ws, id); err != nil {
			return []string{"H " + err.Error()}
		}
		k := approval.Key{Workspace: ws, ID: id}
		if err := s.daemon.step(k); err != nil {
			bad = append(bad, "F a new request fails after the fault: "+err.Error())
			continue
		}
		b, _ := s.w.disk.File(path.Join(layout.Responses(ws), id+".json"))
		r, err := approval.ParseResponse(b)
		if err != nil || r.Status != approval.StatusAutoApproved {
			bad = append(bad, fmt.Sprintf("F a new request is not served after the fault: %s", b))
		}
	}
	return bad
}

func (s *env) ask(ws, id string) error {
	name := path.Join(layout.Requests(ws), id+".json")
	return afero.WriteFile(s.w.disk.Process("agent"), name, []byte(request(id, "auto", "after").text), 0o666)
}

// runUntilSettled lets the same gate run until nothing is pending, and checks the
// promises.
func (s *env) runUntilSettled() (bad []string) {
	w := s.w
	if w.hasPending() {
		w.now = w.now.Add(3 * time.Hour)
		bad = append(bad, s.settleAll()...)
	}
	for _, b := range w.checkPromises() {
		// A file that another process could not remove stays until the next start.
		if b != "L a temporary file stayed: "+layout.Decisions(workspace) && b != "L a temporary file stayed: "+layout.Grants() {
			bad = append(bad, b)
		}
	}
	return bad
}
