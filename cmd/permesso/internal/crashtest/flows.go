package crashtest

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/approval/submit"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/crashfs"
)

const (
	idA = "aaaaaaaa00000001"
	idB = "bbbbbbbb00000002"
)

// action is one thing that an actor does. It fails only if its own process was killed
// or the code under test fails without a crash.
type action func(s *env) error

// env is what the actions of one run share.
type env struct {
	w         *sim
	daemon    *daemon
	clearSlot func(ctx context.Context, k approval.Key) error // for deciders with a blocked slot
	retries   bool                                            // retry after errors, as the running gate does
	yield     func(who string)                                // other actors may run here; nil: there are none
}

// flow is a script for one run, or actors whose actions are interleaved.
type flow struct {
	Name   string
	Script []action            // in this order, one process at a time
	Actors map[string][]action // concurrent, interleaved at every operation

	actions string // as flows.txt has them
}

// passesRunBefore reports that RunBefore may pass in this flow.
func (f *flow) passesRunBefore() bool {
	return f.Name == "late" || f.Name == "deadline" || f.pauses() || f.has("prune")
}

// submits reports that requests come through Submit.
func (f *flow) submits() bool { return f.has("submit ") }

// pauses reports that the gate has a pause guard, and that it is used.
func (f *flow) pauses() bool { return f.has("pause") }

// has reports that a flow has an action that contains this text.
func (f *flow) has(text string) bool { return strings.Contains(f.actions, text) }

func (f *flow) ids() []string {
	if f.has("ask-b ") {
		return []string{idA, idB}
	}
	return []string{idA}
}

//go:embed flows.txt
var flowLines string

// allFlows lists every flow of the design, in the order of flows.txt.
func allFlows() (flows []*flow) {
	for line := range strings.Lines(flowLines) {
		name, actions, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if strings.HasPrefix(line, "#") || !ok {
			continue
		}
		f := &flow{Name: name, actions: actions}
		for part := range strings.SplitSeq(actions, " | ") {
			actor, theirs, concurrent := strings.Cut(part, " = ")
			if !concurrent {
				f.Script = parseActions(part)
				continue
			}
			if f.Actors == nil {
				f.Actors = map[string][]action{}
			}
			f.Actors[actor] = parseActions(theirs)
		}
		flows = append(flows, f)
	}
	return flows
}

func parseActions(text string) (actions []action) {
	for one := range strings.SplitSeq(text, "; ") {
		actions = append(actions, parseAction(one))
	}
	return actions
}

func parseAction(text string) action {
	verb, what, _ := strings.Cut(text, " ")
	switch tool, words, _ := strings.Cut(what, " "); verb {
	case "ask":
		return agent(request(idA, tool, words))
	case "ask-b":
		return agent(request(idB, tool, words))
	case "submit":
		return submission(request(idA, tool, words))
	case "wait":
		d, err := time.ParseDuration(what)
		if err != nil {
			panic(err)
		}
		return wait(d)
	}
	do := map[string]action{
		"question": agent(question(idA)), "malformed": agent(requestFile{idA, `{"request_id":"` + idA + `","surprise":1}`}),
		"decide approved": decision(idA, approval.Approved), "decide denied": decision(idA, approval.Denied),
		"decide answered": decision(idA, approval.Answered), "decide overridden": decision(idA, approval.Overridden),
		"decide too late": decideTooLate, "forge": forge,
		"cancel": cancel, "remove": remove, "withdraw": clientCancel,
		"step": step, "prune": prune, "pause": pauseAll, "resume": resumeAll,
	}[text]
	if do == nil {
		panic("flows.txt: unknown action: " + text)
	}
	return do
}

type requestFile struct{ id, text string }

func request(id, tool, text string) requestFile {
	return requestFile{id, fmt.Sprintf(`{"request_id":%q,"tool_name":%q,"request_data":{"text":%q}}`, id, tool, text)}
}

func question(id string) requestFile {
	return requestFile{id, fmt.Sprintf(`{"request_id":%q,"type":"question","title":"Which?","options":["a","b"]}`, id)}
}

// agent writes a request as agents do: to another name, then a rename, without a
// sync.
func agent(r requestFile) action {
	return func(s *env) error {
		p := s.w.disk.Process("agent")
		dir := layout.Requests(workspace)
		temp := filepath.Join(dir, ".tmp-agent")
		if err := afero.WriteFile(p, temp, []byte(r.text), 0o666); err != nil {
			return err
		}
		return p.Rename(temp, filepath.Join(dir, r.id+".json"))
	}
}

// client is the origin of submissions. It marks every id as fresh, also a used one:
// the gate must not rely on that.
var client = submit.Origin{ClientID: "0123456789ab", Fresh: true}

// submit submits a request to the daemon and records that it was accepted.
func submission(r requestFile) action {
	return func(s *env) error {
		s.yieldAs("gate")
		if err := s.ensureRunning(); err != nil {
			return err
		}
		return s.w.submit(s.daemon.gate, r)
	}
}

// ensureRunning starts the gate if it could not start before.
func (s *env) ensureRunning() error {
	if s.daemon != nil {
		return nil
	}
	if err := s.settle(); err != nil || s.daemon == nil {
		return errors.Join(err, errors.New("the gate does not run"))
	}
	return nil
}

// submit submits, and records what the client was told. ErrIDTaken and ErrDegraded
// are valid results.
func (w *sim) submit(g *gate.Gate, r requestFile) error {
	taken, err := g.Submit(context.Background(), approval.Key{Workspace: workspace, ID: r.id}, []byte(r.text), client)
	switch {
	case errors.Is(err, crashfs.ErrKilled):
		return err
	case errors.Is(err, submit.ErrIDTaken) && w.submitted[r.id] == r.text:
		w.brokenPromises = append(w.brokenPromises, "I5 a client got ErrIDTaken for its own request")
	case err != nil:
	case w.submitted[r.id] != "" && w.submitted[r.id] != r.text:
		w.brokenPromises = append(w.brokenPromises, "I5 other bytes were accepted under a used id")
	case w.submitted[r.id] == r.text && !taken.Repeated:
		w.brokenPromises = append(w.brokenPromises, "I5 a repeated request was accepted as new")
	default:
		w.submitted[r.id] = r.text
		w.accepted[r.id] = true
	}
	return nil
}

// clientCancel is the client's cancel of its request.
func clientCancel(s *env) error {
	s.yieldAs("gate")
	if err := s.ensureRunning(); err != nil {
		return err
	}
	k := approval.Key{Workspace: workspace, ID: idA}
	_, err := s.daemon.gate.Cancel(context.Background(), k, client)
	if err == nil {
		s.w.acknowledged = append(s.w.acknowledged, acknowledged{idA, approval.Cancelled})
	}
	return unlessRefused(err)
}

func remove(s *env) error {
	p := s.w.disk.Process("agent")
	err := p.Remove(filepath.Join(layout.Requests(workspace), idA+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the gate was faster
	}
	return err
}

func cancel(s *env) error {
	f, err := s.w.disk.Process("agent").Create(filepath.Join(layout.Requests(workspace), idA+".cancel"))
	if err != nil {
		return err
	}
	return f.Close()
}

// forge puts an approval without a MAC into the slot.
func forge(s *env) error {
	p := s.w.disk.Process("forger")
	name := filepath.Join(layout.Decisions(workspace), "forged")
	if err := afero.WriteFile(p, name, []byte(`{"request_id":"`+idA+`","approved":true}`), 0o666); err != nil {
		return err
	}
	err := p.RenameNoReplace(name, filepath.Join(layout.Decisions(workspace), idA+".json"))
	if errors.Is(err, fs.ErrExist) {
		return p.Remove(name)
	}
	return err
}

func wait(d time.Duration) action {
	return func(s *env) error {
		s.yieldAs("clock")
		s.w.now = s.w.now.Add(d)
		return nil
	}
}

// prune removes old documents. After that the id is new.
func prune(s *env) error {
	if err := s.ensureRunning(); err != nil {
		return err
	}
	if _, err := s.daemon.gate.Prune(context.Background(), nil); err != nil {
		return err
	}
	for _, id := range s.w.flow.ids() {
		if s.w.pruned[id] {
			s.w.resetID(id)
		}
	}
	return s.settle()
}

func step(s *env) error {
	s.yieldAs("gate")
	return s.settle()
}

// slotStaysBlocked is for deciders where no other process runs between two checks of
// the slot.
func slotStaysBlocked(context.Context, approval.Key) error { return errBlocked }

var errBlocked = errors.New("the slot stays blocked")

// settle steps all keys. If operations fail, it retries, and it starts a gate that
// could not start.
func (s *env) settle() error {
	if !s.retries {
		return s.daemon.settle()
	}
	if s.daemon == nil {
		if s.daemon, _ = s.w.boot(); s.daemon == nil {
			return nil
		}
	}
	for range 3 {
		s.w.now = s.w.now.Add(time.Second)
		if _, degraded := s.daemon.gate.Degraded(); degraded {
			s.daemon.gate.Examine(context.Background()) // as the ticker does
		}
		if err := s.daemon.settle(); err == nil {
			break
		}
	}
	return nil
}

func (s *env) yieldAs(who string) {
	if s.yield != nil {
		s.yield(who)
	}
}

// pauseAll is permesso pause: after it returns, no claim may begin.
func pauseAll(s *env) error {
	store := s.w.store(s.w.disk.Process("operator"))
	err := store.Pause(ipc.Pause{ID: fmt.Sprint("p", s.w.actionIndex), Workspace: ipc.AllWorkspaces, By: "ann", At: s.w.now})
	if err == nil {
		err = store.AwaitClaims(ipc.AllWorkspaces, func() error { return nil }) // every check lets other actors run
	}
	s.w.paused = s.w.paused || err == nil
	s.w.actionIndex++
	return err
}

func resumeAll(s *env) error {
	s.w.paused = false
	_, err := s.w.store(s.w.disk.Process("operator")).Resume(ipc.AllWorkspaces, "ann", "", s.w.now)
	return err
}

// decide lets a person in another process decide, and retries while the request is
// unknown.
func decision(id string, v approval.Verdict) action {
	return func(s *env) error {
		name := cmp.Or(map[approval.Verdict]string{approval.Approved: "ann"}[v], "bob")
		p := s.w.disk.Process(name)
		k := approval.Key{Workspace: workspace, ID: id}
		for range 12 {
			s.yieldAs(name)
			err := s.w.decide(p, k, v, s.clearSlot)
			if !errors.Is(err, decide.ErrUnknown) {
				return unlessRefused(err)
			}
		}
		return nil // nothing was asked
	}
}

// decideTooLate checks in time and writes too late: in between, the deadline passes
// and the gate settles.
func decideTooLate(s *env) error {
	p := s.w.disk.Process("ann")
	store := &deciderStore{Store: s.w.store(p), w: s.w, delay: func() error {
		s.w.now = s.w.now.Add(2 * time.Hour)
		return s.settle()
	}}
	return unlessRefused(s.w.decideOn(store, approval.Key{Workspace: workspace, ID: idA}, approval.Approved, nil))
}

// unlessRefused drops refusals: they are valid results.
func unlessRefused(err error) error {
	if _, refused := errors.AsType[*decide.Refusal](err); refused {
		return nil
	}
	return err
}

// decide decides, and records what the person was told.
func (w *sim) decide(p *crashfs.Proc, k approval.Key, v approval.Verdict, clearSlot func(context.Context, approval.Key) error) error {
	return w.decideOn(&deciderStore{Store: w.store(p), w: w}, k, v, clearSlot)
}

func (w *sim) decideOn(store *deciderStore, k approval.Key, v approval.Verdict, clearSlot func(context.Context, approval.Key) error) error {
	d := &gate.Decider{
		Store: store, Seal: w.config.key, Now: w.clock, ClearSlot: clearSlot,
		May: func(ws string, _ *approval.Pending, by approval.Person) (string, bool) {
			return by.Name, ws == workspace
		},
	}
	if w.config.Mutant != noGrantFirst {
		d.Grants = grantStore{w, store.Store, nil}
	}
	if w.config.Mutant == noRecheck {
		d.RunBefore = func() time.Duration { return 24 * time.Hour } // otherwise RunBefore would detect the late decision, too
	}
	a := decide.Input{
		Key: k, Verdict: v, By: approval.Person{Channel: "local", ID: "1", Name: "ann"}, Via: "cli",
	}
	switch {
	case v == approval.Overridden:
		a.Override = "do it otherwise"
	case v == approval.Answered:
		a.Text = "a"
	case v == approval.Approved && w.flow.Name == "always":
		a.Scope, a.Code = approval.Always, "6"
	}
	_, err := d.Decide(context.Background(), a)
	if err == nil {
		w.acknowledged = append(w.acknowledged, acknowledged{k.ID, v})
	}
	return err
}

// deciderStore is the store of a decider in another process.
type deciderStore struct {
	*ipc.Store
	w     *sim
	delay func() error // right before the decision is written; may be nil
	asked []byte       // the pending as first read, for noRecheck
}

func (s *deciderStore) Read(ctx context.Context, doc approval.Doc, k approval.Key) ([]byte, error) {
	if s.w.config.Mutant == noRecheck && doc == approval.DocRecord {
		return nil, store.ErrMissing
	}
	if s.w.config.Mutant != noRecheck || doc != approval.DocPending {
		return s.Store.Read(ctx, doc, k)
	}
	if s.asked == nil {
		b, err := s.Store.Read(ctx, doc, k)
		if err != nil {
			return nil, err
		}
		s.asked = b
	}
	return s.asked, nil
}

// Create records the approved arguments before it writes an approval: from then on
// the effect is legitimate, acknowledged or not.
func (s *deciderStore) Create(ctx context.Context, doc approval.Doc, k approval.Key, b []byte, how store.Mode, alongside ...func() error) error {
	if s.delay != nil {
		if err := s.delay(); err != nil {
			return err
		}
	}
	if strings.Contains(string(b), `"verdict":"approved"`) {
		if p, ok := s.w.disk.File(path.Join(layout.Pendings(workspace), k.ID+".json")); ok {
			s.w.approvedArgs[k.ID] = append(s.w.approvedArgs[k.ID], argsOf(p))
		}
	}
	return s.Store.Create(ctx, doc, k, b, how, alongside...)
}

func argsOf(doc []byte) string {
	fields, err := codec.Fields(doc)
	if err != nil {
		return "unreadable"
	}
	for _, f := range fields {
		if f.Name == "request_data" {
			return approval.Digest(f.Value)
		}
	}
	return "none"
}
