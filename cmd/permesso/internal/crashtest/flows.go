package crashtest

import (
	"context"
	_ "embed"
	"strconv"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
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
	yield     func()                                          // other actors may run here; nil: there are none
}

// flow is a script for one run, or actors whose actions are interleaved.
type flow struct {
	Name   string
	Script []action            // in this order, one process at a time
	Actors map[string][]action // concurrent, interleaved at every operation

	actions   string  // as flows.txt has them
	generated *script // of a random program; nil: none
}

// passesRunBefore reports that RunBefore may pass in this flow.
func (f *flow) passesRunBefore() bool {
	return strings.HasSuffix(f.Name, "late") || strings.HasPrefix(f.Name, "deadline") || f.pauses() || f.has("prune")
}

// submits reports that requests come through Submit.
func (f *flow) submits() bool { return f.has("submit ") }

// decides reports that people decide.
func (f *flow) decides() bool { return f.has("decide ") || f.has("tap ") }

// remembers reports that an approval makes a grant.
func (f *flow) remembers() bool { return strings.HasPrefix(f.Name, "always") }

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
	case "program":
		return agent(programRequest(idA, what))
	case "submit":
		return submission(request(idA, tool, words))
	case "interrupt": // KIND FOLDER ACTION
		folder, do, _ := strings.Cut(words, " ")
		return interrupt(tool, folder, parseAction(do))
	case "noise":
		n, err := strconv.Atoi(what)
		if err != nil {
			panic(err)
		}
		return noise(n)
	case "wait":
		d, err := time.ParseDuration(what)
		if err != nil {
			panic(err)
		}
		return wait(d)
	}
	do := map[string]action{
		"question": agent(question(idA)), "malformed": agent(requestFile{idA, `{"request_id":"` + idA + `","surprise":1}`}),
		"decide approved": decision(approval.Approved, outside), "decide denied": decision(approval.Denied, outside),
		"decide answered": decision(approval.Answered, outside), "decide overridden": decision(approval.Overridden, outside),
		"tap approved": decision(approval.Approved, inside), "tap denied": decision(approval.Denied, inside),
		"stop": stop, "kill": kill, "checkpoint": makeCheckpoint, "show head": showHead,
		"decide too late": decideTooLate, "forge": forge,
		"cancel": cancel, "remove": remove, "withdraw": clientCancel,
		"step": step, "prune": prune, "pause": pauseAll, "resume": resumeAll,
	}[text]
	if do == nil {
		panic("flows.txt: unknown action: " + text)
	}
	return do
}
