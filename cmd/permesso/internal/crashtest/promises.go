package crashtest

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/move"
	"github.com/permesso-dev/permesso/ipc"
)

// runToEnd starts the gate on what is left and lets time pass until nothing is
// pending. It checks the promises on the way. choice selects what else happens. If
// isKnown returns true, it stops without a verdict.
func (w *sim) runToEnd(choice uint64, isKnown func(checkpoint) bool) (bad []string, known bool) {
	w.onOpen = func() bool {
		w.checkGrantsHold()
		return isKnown(homeOpened)
	}
	err := w.restart()
	w.onOpen = nil
	switch {
	case errors.Is(err, errKnownFuture):
		return nil, true
	case err != nil:
		return settleError(err), false
	case isKnown(firstSettled):
		return nil, true
	}
	return w.continueRun(choice), false
}

// continueRun is what follows the first recovery.
func (w *sim) continueRun(choice uint64) (bad []string) {
	if choice%3 == 0 {
		bad = w.recoverTwice()
	}
	if w.flow.submits() && w.flow.Actors == nil && choice%2 == 1 {
		bad = append(bad, w.submitAgain()...)
	}
	if w.hasPending() && choice%2 == 0 {
		if err := unlessRefused(w.decide(w.disk.Process("ann"), keyA, approval.Approved, nil)); err != nil {
			bad = append(bad, "L deciding after the crash: "+err.Error())
		}
		bad = append(bad, w.settleAgain()...)
	}
	if w.flow.pauses() {
		bad = append(bad, w.endPause(choice%5 == 0)...)
	}
	if w.hasPending() {
		w.now = w.now.Add(3 * time.Hour)
		bad = append(bad, w.settleAgain()...)
	}
	return append(bad, w.checkPromises()...)
}

// submitAgain is a client that lost its connection in the crash and submits the same
// request again.
func (w *sim) submitAgain() (bad []string) {
	d, err := w.boot()
	if err != nil {
		return []string{"L the gate does not start: " + err.Error()}
	}
	_, first, _ := strings.Cut(w.flow.actions, "submit ")
	first, _, _ = strings.Cut(first, ";")
	tool, text, _ := strings.Cut(first, " ")
	// After a disk fault it may be rejected once; the client retries.
	for try := 0; err == nil && w.submitted[idA] == "" && try < 3; try++ {
		err = w.submit(d.gate, request(idA, tool, text))
	}
	if err != nil || w.submitted[idA] == "" {
		bad = append(bad, fmt.Sprintf("L the request is not accepted after the crash: %v", err))
	}
	return append(bad, settleError(errors.Join(d.settle(), d.stop()))...)
}

// settleAgain restarts the gate.
func (w *sim) settleAgain() []string { return settleError(w.restart()) }

func settleError(err error) []string {
	if err == nil {
		return nil
	}
	return []string{"L settling fails: " + err.Error()}
}

// endPause ends a pause that survived the crash, at once or after the time of every
// approval.
func (w *sim) endPause(late bool) (bad []string) {
	store := w.store(w.disk.Process("operator"))
	if late {
		w.now = w.now.Add(3 * time.Hour)
		bad = w.settleAgain()
	}
	_, paused := store.Paused(workspace)
	if w.paused && !paused {
		bad = append(bad, "P an acknowledged pause was lost")
	}
	w.paused = false
	if !paused {
		return bad
	}
	if _, err := store.Resume(ipc.AllWorkspaces, "ann", "", w.now); err != nil {
		bad = append(bad, "L resume: "+err.Error())
	}
	return append(bad, w.settleAgain()...)
}

// hasPending reports that a request is pending.
func (w *sim) hasPending() bool {
	return len(w.disk.Names(layout.Pendings(workspace))) > 0
}

// restart starts a new daemon on this disk, settles all keys, and stops it.
func (w *sim) restart() error {
	d, err := w.boot()
	if err != nil {
		return err
	}
	if err := d.settle(); err != nil {
		return err
	}
	w.observe()
	// A request torn by the crash is refused after the grace period.
	w.now = w.now.Add(move.IncompleteGrace)
	if err := d.settle(); err != nil {
		return err
	}
	w.observe()
	return d.stop()
}

// recoverTwice is I8: a second recovery changes nothing.
func (w *sim) recoverTwice() []string {
	before := w.visible()
	if err := w.restart(); err != nil {
		return []string{"I8 second recovery: " + err.Error()}
	}
	if after := w.visible(); after != before {
		return []string{fmt.Sprintf("I8 the second recovery changed something:\n%s\n%s", before, after)}
	}
	return nil
}

// visible lists all documents, without the audit log, the journal and what is no document.
func (w *sim) visible() string {
	var b strings.Builder
	files := w.disk.Files()
	for _, name := range sortedKeys(files) {
		if strings.Contains(name, "/audit/") || strings.Contains(name, "/journal/") {
			continue
		}
		fmt.Fprintf(&b, "%s %s\n", name, approval.Digest(files[name])[:8])
	}
	return b.String()
}

// observe is the agent that reads its responses.
func (w *sim) observe() {
	for _, id := range w.flow.ids() {
		if _, ok := w.read[id]; ok {
			continue
		}
		b, ok := w.disk.File(layout.Responses(workspace) + "/" + id + ".json")
		if !ok {
			continue
		}
		if _, err := approval.ParseResponse(b); err != nil {
			continue // torn: no client accepts it
		}
		w.read[id] = string(b)
	}
}

// checkPromises checks the end state.
func (w *sim) checkPromises() (bad []string) {
	bad = append(bad, w.brokenPromises...)
	for _, id := range w.flow.ids() {
		bad = append(bad, w.checkRequest(id)...)
	}
	return append(append(bad, w.checkAudit()...), w.checkLeftovers()...)
}

func (w *sim) checkRequest(id string) (bad []string) {
	violate := func(format string, a ...any) { bad = append(bad, fmt.Sprintf(format, a...)) }
	k := approval.Key{Workspace: workspace, ID: id}
	rec, err := w.record(k)
	if err != nil {
		violate("I5 the record does not verify: %v", err)
		return bad
	}
	effects := w.effectsOf(id, violate)
	w.checkProgram(id, rec, violate)
	if rec == nil && w.pruned[id] {
		if _, left := w.disk.File(layout.Responses(workspace) + "/" + id + ".json"); left {
			violate("L a response outlived its record")
		}
		return bad
	}
	if rec == nil {
		if len(effects) > 0 {
			violate("I6 an effect without a record")
		}
		if w.accepted[id] {
			violate("I5 an accepted request was never answered")
		}
		if len(w.acknowledgedFor(id)) > 0 {
			violate("I3 an acknowledged decision was lost")
		}
		return bad
	}
	resp, ok := w.disk.File(layout.Responses(workspace) + "/" + id + ".json")
	// After its retention a response may be missing, or torn and not restored.
	_, torn := approval.ParseResponse(resp)
	outlived := (!ok || torn != nil) && w.now.Sub(rec.EndedAt) >= gate.DefaultResponseRetention
	if !outlived && string(resp) != string(rec.Response) {
		violate("I5 the response differs from the record")
	}
	// After an interrupted prune the id may be in use again.
	if seen, ok := w.read[id]; ok && seen != string(rec.Response) && !w.pruned[id] {
		violate("I5 the agent has read another response")
	}
	w.checkStatus(id, rec, effects, violate)
	w.checkTask(id, rec.Status, violate)
	w.checkGrant(k, rec, violate)
	return bad
}

// checkGrantsHold checks that every acknowledged "always" has its grant when the
// gate begins to work.
func (w *sim) checkGrantsHold() {
	for _, t := range w.acknowledged {
		if t.verdict != approval.Approved || !w.flow.remembers() {
			continue
		}
		b, _ := w.disk.File(layout.Grants() + "/" + t.id + ".json")
		if _, err := w.config.key.Open(approval.DocGrant, grant.Key(t.id), b); err != nil {
			w.brokenPromises = append(w.brokenPromises, "I3 an acknowledged grant does not hold")
		}
	}
}

// checkGrant checks that an approved "always" has a grant, and that nothing else has.
func (w *sim) checkGrant(k approval.Key, rec *approval.Record, violate func(string, ...any)) {
	b, there := w.disk.File(layout.Grants() + "/" + k.ID + ".json")
	_, err := w.config.key.Open(approval.DocGrant, grant.Key(k.ID), b)
	approved := rec.Status == approval.StatusApproved && w.flow.remembers()
	switch {
	case approved && (!there || err != nil):
		violate("I3 a grant is missing")
	case there && len(rec.Decision) == 0:
		violate("I1 a grant without a decision")
	case there && !w.flow.remembers():
		violate("I1 a grant for a decision that gave none")
	}
}

func (w *sim) record(k approval.Key) (*approval.Record, error) {
	b, ok := w.disk.File(layout.Records(workspace) + "/" + k.ID + ".json")
	if !ok {
		return nil, nil
	}
	body, err := w.config.key.Open(approval.DocRecord, k, b)
	if err != nil {
		return nil, err
	}
	return approval.ParseRecord(body, k)
}

// effectsOf checks I1 and I2 for one id.
func (w *sim) effectsOf(id string, violate func(string, ...any)) (list []effect) {
	for _, e := range w.effects {
		if e.id != id {
			continue
		}
		list = append(list, e)
		if !w.legitimate(e) {
			violate("I1 an effect without an approval")
		}
	}
	if len(list) > 1 && (len(list) > 2 || list[0].key == "" || list[0] != list[1]) {
		violate("I2 %d effects", len(list))
	}
	return list
}

func (w *sim) legitimate(e effect) bool {
	return slices.Contains(w.approvedArgs[e.id], e.args) || e.id == idAfter || e.id == idOther ||
		w.flow.has(" auto ") // policy allows it
}

func (w *sim) acknowledgedFor(id string) (list []approval.Verdict) {
	for _, t := range w.acknowledged {
		if t.id == id {
			list = append(list, t.verdict)
		}
	}
	return list
}

// checkStatus checks that the record agrees with what happened and what people were
// told.
func (w *sim) checkStatus(id string, rec *approval.Record, effects []effect, violate func(string, ...any)) {
	st := rec.Status
	switch st {
	case approval.StatusApproved, approval.StatusAutoApproved:
		if len(effects) == 0 && w.flow.script() == nil {
			violate("I1 %s without an effect", st)
		}
	case approval.StatusFailed, approval.StatusInterrupted:
	default:
		if len(effects) > 0 {
			violate("I4 an effect though %s", st)
		}
	}
	verdicts := w.acknowledgedFor(id)
	if len(verdicts) > 1 {
		violate("I3 two decisions were acknowledged")
	}
	for _, v := range verdicts {
		if !statusMatches(v, st) || st == approval.StatusExpired && !w.flow.passesRunBefore() && !w.gateWasDown {
			violate("I3 a decision was reversed: %s became %s", v, st)
		}
	}
}

// statusMatches reports whether a status agrees with an acknowledged verdict. An
// approval that could not start in time ends as expired, and everyone is told.
func statusMatches(v approval.Verdict, st approval.Status) bool {
	late := []approval.Status{approval.StatusFailed, approval.StatusInterrupted, approval.StatusExpired}
	return string(v) == string(st) || v == approval.Approved && slices.Contains(late, st)
}

// checkLeftovers finds files that a gate without work must have removed.
func (w *sim) checkLeftovers() (bad []string) {
	for name := range w.disk.Files() {
		dir := path.Dir(name)
		if strings.HasPrefix(path.Base(name), ".tmp-") && dir != layout.Requests(workspace) {
			bad = append(bad, "L a temporary file stayed: "+dir)
		}
		switch dir {
		case layout.Pendings(workspace), layout.Requests(workspace), layout.Receipts(workspace):
			if !strings.HasPrefix(path.Base(name), ".") {
				bad = append(bad, "L not removed: "+dir)
			}
		case layout.Decisions(workspace):
			if path.Base(name) != "forged" && !strings.HasPrefix(path.Base(name), ".tmp-") {
				bad = append(bad, "L not removed: "+dir)
			}
		}
	}
	return bad
}
