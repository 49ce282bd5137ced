package gate_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/gate/gatetest"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/approval/submit"
	"github.com/permesso-dev/permesso/security/policy"
)

// TestProgramStopsAtFailure: a step that fails ends the run, unless the program says try_.
func TestProgramStopsAtFailure(t *testing.T) {
	h, k := programRig(t, options{}), key(1)
	h.failRuns("Execution failed: boom", func(job approval.Job) bool { return strings.Contains(string(job.Args), "two") })
	h.approveProgram(k, three)
	require.Equal(t, []string{"save approved", "save failed", "save not_run"}, h.statuses(k))
	require.Equal(t, "failed: Stopped: step 2 (save): Execution failed: boom. Of 3 steps 2 were started", h.outcome(k))
	require.Len(t, h.ran(), 2)
	require.Equal(t, "stopped", h.programOutcome(k).Main)

	k = key(2)
	h.approveProgram(k, strings.Replace(three, "tools.save(", "try_(tools.save, ", 1))
	require.Equal(t, []string{"save approved", "save failed", "save approved"}, h.statuses(k))
	require.Equal(t, "approved", h.outcome(k))
}

// TestProgramPassesResults: a result that has not come yet can be passed on, and the step that gets it runs with its value.
func TestProgramPassesResults(t *testing.T) {
	const source = `def main():
    r = tools.mail(to = ["bob@example.com"], body = "x")
    tools.save(path = "/tmp/x", content = r["%s"])
`
	h, k := programRig(t, options{rules: []policy.Rule{{
		Name: "secret", Tool: policy.Names{"save"}, Args: []policy.Condition{{Field: "content", Is: []string{"forbidden"}}}, Outcome: approval.Deny,
	}}}), key(1)
	h.ask(k, programRequest(k, fmt.Sprintf(source, "text")))
	require.Equal(t, []approval.ResultRef{{Arg: "content", Step: 1, At: "/text"}}, h.pending(k).Plan.Steps[1].Opaque)
	require.JSONEq(t, `{"path":"/tmp/x"}`, string(h.pending(k).Plan.Steps[1].Data))
	h.decide(decision(k, approval.Approved))
	h.step(k)
	require.Equal(t, `save {"content":"seen","path":"/tmp/x"}`, h.ran()[1])
	require.Equal(t, "approved", h.outcome(k))

	for name, c := range map[string]struct{ member, result, says string }{
		"no such member":    {"none", `{"text":"x"}`, "has no such text"},
		"no text":           {"n", `{"n":7}`, "has no such text"},
		"policy denies it":  {"text", `{"text":"forbidden"}`, "secret"},
		"the step failed":   {"text", "", "which failed"},
		"fits no more":      {"text", `{"text":["a"]}`, "has no such text"},
		"a pointer's signs": {"a/b~c", `{"a":{"b~c":"x"}}`, "has no such text"},
	} {
		t.Run(name, func(t *testing.T) {
			h, k := programRig(t, h.options), key(1)
			h.executor.do = func(approval.Job) approval.Effect {
				if c.result == "" {
					return approval.Effect{Error: "Execution failed: boom"}
				}
				return approval.Effect{Result: approval.Raw(c.result)}
			}
			text := fmt.Sprintf(source, c.member)
			if c.result == "" {
				text = strings.Replace(strings.Replace(text, "tools.mail(", "try_(tools.mail, ", 1), `["text"]`, `.value["text"]`, 1)
			}
			h.approveProgram(k, text)
			require.Contains(t, h.outcome(k), "failed: Stopped: step 2 (save): ")
			require.Contains(t, h.outcome(k), c.says)
			require.Len(t, h.ran(), 1)
		})
	}
}

// TestProgramNeedsResult: where a program looks at a result, its plan ends. The rest is another question, once.
func TestProgramNeedsResult(t *testing.T) {
	const source = `def main():
    r = tools.mail(to = ["bob@example.com"], body = "x")
    if r["text"] == "seen":
        tools.save(path = "/tmp/x", content = r["id"])
`
	h, k := programRig(t, options{}), key(1)
	h.ask(k, programRequest(k, source))
	require.Equal(t, &approval.Needs{Step: 1, Line: 3}, h.pending(k).Plan.Needs)
	h.decide(decision(k, approval.Approved))
	h.step(k)
	out := h.programOutcome(k)
	require.Equal(t, "needs", out.Main)
	require.Equal(t, approval.ContinuationID(k.ID), out.NextRequestID)
	require.Contains(t, out.Undo, `tools["unmail"](`, "the rest may never come")

	next := approval.Key{Workspace: personal, ID: out.NextRequestID}
	more := `"continues":"` + k.ID + `"`
	for name, wrong := range map[string]string{
		"another program": programRequest(next, source+"\n# changed\n", more),
		"no such request": strings.ReplaceAll(programRequest(next, source, more), k.ID, key(7).ID),
	} {
		t.Run(name, func(t *testing.T) {
			r := programRig(t, options{})
			r.approveProgram(k, source)
			n := next
			if name == "no such request" {
				n.ID = approval.ContinuationID(key(7).ID)
				wrong = strings.ReplaceAll(wrong, next.ID, n.ID)
			}
			r.writeRequest(n, wrong)
			r.step(n)
			require.Contains(t, r.outcome(n), "auto_rejected: ")
			require.Contains(t, r.outcome(n), "cannot go on")
		})
	}

	h.ask(next, programRequest(next, source, more))
	plan := h.pending(next).Plan
	require.Len(t, plan.Steps, 2)
	require.Equal(t, k.ID, plan.Steps[0].Of)
	require.NotEmpty(t, plan.Steps[0].ResultSHA256)
	require.JSONEq(t, `{"content":"step-1","path":"/tmp/x"}`, string(plan.Steps[1].Data))
	require.Len(t, h.ran(), 1, "what has run is not run again")
	h.decide(decision(next, approval.Approved))
	h.step(next)
	require.Equal(t, "approved", h.outcome(next))
	require.Len(t, h.ran(), 2)
	require.Equal(t, []string{"mail approved", "save approved"}, h.statuses(next))
	require.NotNil(t, h.record(next.StepKey(2)))
	require.Nil(t, h.record(next.StepKey(1)))
	require.Empty(t, h.programOutcome(next).NextRequestID)

	last := approval.Key{Workspace: personal, ID: approval.ContinuationID(next.ID)}
	h.writeRequest(last, programRequest(last, source, `"continues":"`+next.ID+`"`))
	h.step(last)
	require.Contains(t, h.outcome(last), "it has run to its end")
}

// TestProgramDiverges: the first call that is not the plan's next ends the run, and has not run.
func TestProgramDiverges(t *testing.T) {
	for name, c := range map[string]struct{ other, says string }{
		"another argument": {strings.Replace(three, `"two"`, `"twain"`, 1), "diverged at step 2"},
		"one call less":    {strings.Replace(three, `, "three"`, "", 1), "diverged at step 3"},
		"one call more":    {strings.Replace(three, `"three"`, `"three", "four"`, 1), "diverged at step 4"},
		"another line":     {"\n" + three, "diverged at step 1"},
		"an error":         {strings.Replace(three, `"three"`, `3`, 1), "diverged at step 3"},
		"with try_":        {strings.Replace(three, "tools.save(", "try_(tools.save, ", 1), "diverged at step 1"},
	} {
		t.Run(name, func(t *testing.T) {
			h, k := programRig(t, options{}), key(1)
			h.planner.change = func(n int, job *approval.ProgramJob) {
				if n > 1 {
					job.Source = c.other
				}
			}
			h.approveProgram(k, three)
			require.Contains(t, h.outcome(k), "failed: Stopped: "+c.says)
			for i, args := range h.ran() {
				require.Equal(t, fmt.Sprintf(`save {"content":%q,"path":"/tmp/%s"}`, []string{"one", "two", "three"}[i], []string{"one", "two", "three"}[i]), args)
			}
		})
	}
}

// pausedProgram is an approved program whose workspace is paused while its second step runs.
func pausedProgram(t *testing.T) (*rig, approval.Key) {
	h, k := programRig(t, options{}), key(1)
	held := &guard{}
	h.gate.Pauses = held
	h.beforeRuns(func(job approval.Job) { held.paused = strings.Contains(string(job.Args), "two") })
	h.ask(k, programRequest(k, three))
	h.decide(decision(k, approval.Approved))
	h.step(k)
	return h, k
}

// changeSave gives the tool save another command.
func (h *rig) changeSave() {
	changed := programTools()["save"]
	changed.Handler.Argv = []string{"/bin/other"}
	h.setTool("save", changed)
}

// TestProgramGoesOn: after a stop in the middle, and after a pause, the run goes on behind its last step, and none runs
// twice.
func TestProgramGoesOn(t *testing.T) {
	h, k := pausedProgram(t)
	require.Equal(t, "none", h.outcome(k))
	require.Len(t, h.ran(), 2)
	h.clock.move(time.Minute)
	h.step(k)
	require.Len(t, h.ran(), 2, "it is paused")
	h.reopen()
	h.step(h.keys...)
	require.Equal(t, "approved", h.outcome(k))
	require.Len(t, h.ran(), 3)
	require.Equal(t, []string{"save approved", "save approved", "save approved"}, h.statuses(k))

	t.Run("not after its receipt has expired", func(t *testing.T) {
		h, k := programRig(t, options{}), key(1)
		h.beforeRuns(func(approval.Job) { h.clock.move(31 * time.Minute) })
		h.approveProgram(k, three)
		require.Contains(t, h.outcome(k), "failed: Stopped: step 3 (save): the run took too long")
		require.Len(t, h.ran(), 2)
	})
	t.Run("not with a changed tool", func(t *testing.T) {
		h, k := programRig(t, options{}), key(1)
		h.beforeRuns(func(approval.Job) { h.changeSave() })
		h.approveProgram(k, three)
		require.Contains(t, h.outcome(k), "failed: Stopped: step 2 (save): the tool changed, ask again")
		require.Len(t, h.ran(), 1)
	})
	t.Run("what ran counts, whatever changes then", func(t *testing.T) {
		for _, change := range []func(h *rig){
			func(h *rig) { h.setTool("save", approval.Tool{}) },
			(*rig).changeSave,
		} {
			h, k := pausedProgram(t)
			change(h)
			h.reopen()
			h.step(h.keys...)
			require.Equal(t, []string{"save approved", "save approved", "save not_run"}, h.statuses(k))
			require.Contains(t, h.outcome(k), "step 3 (save): the tool changed, ask again. Of 3 steps 2 were started")
		}
	})
	t.Run("not after a cancel", func(t *testing.T) {
		h, k := programRig(t, options{}), key(1)
		h.beforeRuns(func(approval.Job) { h.cancel(k) })
		h.approveProgram(k, three)
		require.Contains(t, h.outcome(k), "failed: Stopped: step 2 (save): cancelled by the agent")
		require.Len(t, h.ran(), 1)
	})
	t.Run("not with a tool that changed before", func(t *testing.T) {
		h, k := programRig(t, options{}), key(1)
		h.ask(k, programRequest(k, three))
		h.decide(decision(k, approval.Approved))
		h.setTool("save", approval.Tool{})
		h.step(k)
		require.Contains(t, h.outcome(k), "failed: ")
		require.Empty(t, h.ran())
	})
}

// guard is a pause guard that the test switches.
type guard struct{ paused bool }

// Enter implements gate.pauseGuard.
func (g *guard) Enter(string) bool { return !g.paused }

// Leave implements gate.pauseGuard.
func (g *guard) Leave(string) {}

// TestProgramIsUndecided: without an approval nothing of a program runs.
func TestProgramIsUndecided(t *testing.T) {
	h := programRig(t, options{})
	for i, v := range []approval.Verdict{approval.Denied, approval.Overridden, approval.RequestMore} {
		k := key(i + 1)
		h.ask(k, programRequest(k, three))
		a := decision(k, v)
		if a.Feedback = "why?"; v == approval.Overridden {
			a.Feedback, a.Override = "", "two files only"
		}
		h.decide(a)
		h.step(k)
		require.True(t, h.isSettled(k))
	}
	k := key(9)
	h.ask(k, programRequest(k, three))
	h.clock.move(2 * time.Hour)
	h.step(k)
	require.Contains(t, h.outcome(k), "expired")
	require.Empty(t, h.ran())
}

// TestProgramUndo: a run that stopped offers a program that undoes what ran, the last first.
func TestProgramUndo(t *testing.T) {
	h, k := programRig(t, options{}), key(1)
	h.failRuns("Execution failed: disk full", func(job approval.Job) bool {
		return job.Tool.Name == "save" || strings.Contains(string(job.Args), "lost@")
	})
	h.approveProgram(k, `def main():
    try_(tools.mail, to = ["lost@example.com"], body = "x")
    for who in ["a@example.com", "b@example.com"]:
        tools.mail(to = [who], body = "x")
    tools.save(path = "/tmp/x", content = "x")
`)
	undo := h.programOutcome(k).Undo
	require.NotEmpty(t, undo)
	k = key(2)
	h.approveProgram(k, undo)
	require.Equal(t, []string{`unmail {"id":"step-3","to":["b@example.com"]}`, `unmail {"id":"step-2","to":["a@example.com"]}`}, h.ran()[4:])
	require.Empty(t, h.programOutcome(k).Undo)

	h.executor.do = func(job approval.Job) approval.Effect {
		if job.Tool.Name == "save" {
			return approval.Effect{Error: "Execution failed: disk full"}
		}
		return approval.Effect{Result: approval.Raw(`{}`)}
	}
	k = key(3)
	h.approveProgram(k, "def main():\n    tools.mail(to = [\"a@b.c\"], body = \"x\")\n    tools.save(path = \"/x\", content = \"x\")\n")
	require.Empty(t, h.programOutcome(k).Undo, "its result does not have what the inverse needs")

	save := programTools()["save"]
	save.Undo = "unsave"
	h.setTool("save", save)
	h.setTool("unsave", approval.Tool{Name: "unsave", Args: map[string]approval.Argument{"path": {Type: facts.TypePath}}, Trust: gatetest.Harmless(), Handler: save.Handler})
	h.executor.do = func(job approval.Job) approval.Effect {
		if strings.Contains(string(job.Args), "lost") {
			return approval.Effect{Error: "Execution failed: disk full"}
		}
		return approval.Effect{Result: approval.Raw(`{}`)}
	}
	k = key(4)
	h.approveProgram(k, "def main():\n    try_(tools.save, path = \"/lost\", content = \"\")\n    tools.save(path = \"/x\", content = \"\")\n    tools.save(path = \"/lost\", content = \"\")\n")
	require.Equal(t, "def main():\n    tools[\"unsave\"](path = \"/x\")  # step 2\n", h.programOutcome(k).Undo, "what failed is not undone")
}

// TestProgramCommits: a step of a tool that runs nothing is one commit, any other has two.
func TestProgramCommits(t *testing.T) {
	r := &recorder{}
	h, k := programRig(t, options{store: func(s store.Store) store.Store { r.Store = s; return r }}), key(1)
	h.ask(k, programRequest(k, "def main():\n    for i in range(100):\n        tools.note(n = i)\n    tools.save(path = \"/tmp/x\", content = \"x\")\n"))
	h.decide(decision(k, approval.Approved))
	r.take()
	h.step(k)
	require.Equal(t, "approved", h.outcome(k))
	var commits []string
	for _, did := range r.take() {
		if strings.HasPrefix(did, "commit ") {
			commits = append(commits, did)
		}
	}
	require.Equal(t, "commit receipt approved", commits[0])
	require.Equal(t, "commit approved record released", commits[1])
	require.Equal(t, []string{"commit receipt approved", "commit record executed", "commit record executed (response)"}, commits[101:])
	require.Len(t, commits, 1+100+2+1)
	require.NotEmpty(t, h.record(k.StepKey(100)).Receipt)
}

// TestProgramUsesLimits: each step counts, in the order of the program.
func TestProgramUsesLimits(t *testing.T) {
	h := programRig(t, options{})
	require.NoError(t, h.Policy.Load(policy.Config{
		Rules:  []policy.Rule{{Name: "auto", Tool: policy.Names{"auto"}, Outcome: approval.Allow}},
		Limits: map[string]policy.Limits{personal: {Deny: map[string]policy.Rate{"": {Burst: 3, Per: time.Hour}}}},
	}))
	k := key(1)
	h.writeRequest(k, programRequest(k, "def main():\n    for i in range(4):\n        tools.auto(a = i)\n"))
	h.step(k)
	require.Contains(t, h.outcome(k), "auto_rejected: ")
	require.Contains(t, h.outcome(k), "rate_deny_bare")
	require.Empty(t, h.ran())
	k = key(2)
	h.writeRequest(k, programRequest(k, "def main():\n    for i in range(3):\n        tools.auto(a = i)\n"))
	h.step(k)
	require.Equal(t, "auto_approved", h.outcome(k))
}

// TestProgramThatGoesOnOtherwise: a part that follows another one makes the same calls, for the same client.
func TestProgramThatGoesOnOtherwise(t *testing.T) {
	const source = "def main():\n    a = tools.mail(to = [\"a@b.c\"], body = \"x\")\n    if a[\"n\"] == 7:\n        tools.save(path = \"/x\", content = \"x\")\n"
	for name, c := range map[string]struct {
		change func(*approval.ProgramJob)
		says   string
	}{
		"another call":   {func(job *approval.ProgramJob) { job.Source = strings.Replace(source, `"x")`, `"y")`, 1) }, "step 1 is not what it was before"},
		"no call at all": {func(job *approval.ProgramJob) { job.Source = "def main():\n    pass\n" }, "does not make the calls again"},
	} {
		t.Run(name, func(t *testing.T) {
			h, k := programRig(t, options{}), key(1)
			h.approveProgram(k, source)
			h.planner.change = func(_ int, job *approval.ProgramJob) { c.change(job) }
			next := approval.Key{Workspace: personal, ID: approval.ContinuationID(k.ID)}
			h.writeRequest(next, programRequest(next, source, `"continues":"`+k.ID+`"`))
			h.step(next)
			require.Contains(t, h.outcome(next), c.says)
			require.Len(t, h.ran(), 1)
		})
	}
	h, k := programRig(t, options{}), key(1)
	h.approveProgram(k, source)
	next := approval.Key{Workspace: personal, ID: approval.ContinuationID(k.ID)}
	body := programRequest(next, source, `"continues":"`+k.ID+`"`)
	_, err := h.gate.Submit(t.Context(), next, []byte(body), submit.Origin{ClientID: "another"})
	require.ErrorIs(t, err, submit.ErrIDTaken)
	h.ask(next, body) // its own client goes on all the same

	h, k = programRig(t, options{}), key(2)
	_, err = h.gate.Submit(t.Context(), k, []byte(programRequest(k, source)), submit.Origin{ClientID: "another"})
	require.NoError(t, err)
	h.decide(decision(k, approval.Approved))
	h.step(k)
	foreign := approval.Key{Workspace: personal, ID: approval.ContinuationID(k.ID)}
	h.writeRequest(foreign, programRequest(foreign, source, `"continues":"`+k.ID+`"`))
	h.step(foreign)
	require.Equal(t, "none", h.outcome(foreign))
	require.Contains(t, h.refusals(personal), "another request under a used ID")
	_, err = h.gate.Submit(t.Context(), foreign, []byte(programRequest(foreign, source, `"continues":"`+k.ID+`"`)), submit.Origin{ClientID: "another"})
	require.NoError(t, err)
	require.True(t, h.has(approval.DocPending, foreign))

	h, k = programRig(t, options{}), key(1)
	h.executor.do = func(approval.Job) approval.Effect { return approval.Effect{Error: "Execution failed: boom"} }
	h.approveProgram(k, source)
	require.Contains(t, h.outcome(k), "failed: ")
	require.Empty(t, h.programOutcome(k).NextRequestID)
	h.writeRequest(next, programRequest(next, source, `"continues":"`+k.ID+`"`))
	h.step(next)
	require.Contains(t, h.outcome(next), "it is no program of this client that has run")
}

// TestStepOfAnotherProgram: what another program has left under an id is not taken for a step of this one.
func TestStepOfAnotherProgram(t *testing.T) {
	for _, doc := range []approval.Doc{approval.DocRecord, approval.DocClaim} {
		t.Run(string(doc), func(t *testing.T) {
			h, k := programRig(t, options{}), key(1)
			h.ask(k, programRequest(k, three))
			step := h.pending(k).Plan.Steps[1]
			claim := &approval.Claim{Version: 1, RequestID: k.StepKey(1).ID, Workspace: personal, ClaimedAt: h.clock.now(), Step: &step}
			body, err := claim.Encode()
			if doc == approval.DocRecord {
				response := approval.Response{Version: 1, RequestID: k.StepKey(1).ID, Status: approval.StatusApproved, RespondedAt: h.clock.now()}
				text, encodeErr := response.Encode()
				require.NoError(t, encodeErr)
				body, err = (&approval.Record{Version: 1, RequestID: k.StepKey(1).ID, Workspace: personal, Status: approval.StatusApproved, RequestedAt: h.clock.now(), EndedAt: h.clock.now(), Response: text, Step: &step}).Encode()
			}
			require.NoError(t, err)
			require.NoError(t, h.store.Commit(t.Context(), store.Put(doc, k.StepKey(1), h.key.Seal(doc, k.StepKey(1), body))))
			h.decide(decision(k, approval.Approved))
			h.step(k)
			require.Contains(t, h.outcome(k), "another program has used this id")
			require.Empty(t, h.ran())
		})
	}
}

// TestStepOverALimit: a limit that is reached while the program runs ends it.
func TestStepOverALimit(t *testing.T) {
	h, k := programRig(t, options{}), key(1)
	h.beforeRuns(func(approval.Job) {
		require.NoError(t, h.Policy.Load(policy.Config{Limits: map[string]policy.Limits{personal: {Deny: map[string]policy.Rate{"": {Burst: 1, Per: time.Hour}}}}}))
		_, refused := h.Policy.Reserve(approval.Facts{RequestID: key(7).ID, Workspace: personal, Tool: "run", KnownTool: true, Now: h.clock.now()}, approval.Ruling{}, true)
		require.Nil(t, refused)
	})
	h.approveProgram(k, three)
	require.Contains(t, h.outcome(k), "failed: Stopped: step 2 (save): ")
	require.Contains(t, h.outcome(k), "rate_deny_bare")
	require.Len(t, h.ran(), 1)
}

// TestOutcomeOfAStepIsWrittenLater: a step whose record cannot be written has run, and does not run again.
func TestOutcomeOfAStepIsWrittenLater(t *testing.T) {
	f := &failingRecords{}
	h, k := programRig(t, options{store: func(s store.Store) store.Store { f.Store = s; return f }}), key(1)
	h.ask(k, programRequest(k, three))
	h.decide(decision(k, approval.Approved))
	f.fails = 2
	for range 4 {
		h.step(k)
		h.clock.move(2 * time.Second)
	}
	require.Equal(t, "approved", h.outcome(k))
	require.Len(t, h.ran(), 3)
	require.Zero(t, f.fails)
}

// failingRecords fails to write some records of steps.
type failingRecords struct {
	store.Store
	fails int
}

func (f *failingRecords) Commit(ctx context.Context, ops ...store.Op) error {
	for _, op := range ops {
		if _, n := approval.CutStep(op.Key.ID); n > 0 && op.Doc == approval.DocRecord && f.fails > 0 {
			f.fails--
			return errors.New("disk error")
		}
	}
	return f.Store.Commit(ctx, ops...)
}

// TestValueThatFitsNoMore: a value that comes from a step is checked as if it had been written in the request.
func TestValueThatFitsNoMore(t *testing.T) {
	h, k := programRig(t, options{}), key(1)
	get := h.tools["save"]
	get.Name, get.Args = "get", map[string]approval.Argument{"name": {}}
	get.Handler = approval.Handler{Kind: approval.HandlerHTTP, HTTP: approval.HTTP{Method: "POST", URL: "https://x.example/{name}"}}
	h.setTool("get", get)
	h.executor.do = func(approval.Job) approval.Effect { return approval.Effect{Result: approval.Raw(`{"text":".."}`)} }
	h.approveProgram(k, "def main():\n    r = tools.save(path = \"/x\", content = \"x\")\n    tools.get(name = r[\"text\"])\n")
	require.Contains(t, h.outcome(k), "failed: Stopped: step 2 (get): ")
	require.Len(t, h.ran(), 1)
}

// TestLongResults: a response has the results of the first steps, as many as fit.
func TestLongResults(t *testing.T) {
	h, k := programRig(t, options{}), key(1)
	h.executor.do = func(approval.Job) approval.Effect {
		return approval.Effect{Result: approval.Raw(`{"text":"` + strings.Repeat("x", 100<<10) + `"}`)}
	}
	h.approveProgram(k, three)
	out := h.programOutcome(k)
	require.Greater(t, len(out.Steps[1].Result), 100<<10)
	require.Equal(t, "null", string(out.Steps[2].Result))
	require.Contains(t, string(h.response(k).Result), `"result_omitted":true`)
	require.Equal(t, "approved", out.Steps[2].Status)
}

// TestStepsAreKeptWhileTheirProgramRuns: a prune removes the records of steps with their age, and never of a program that
// has not ended.
func TestStepsAreKeptWhileTheirProgramRuns(t *testing.T) {
	h, k := programRig(t, options{timeout: 300 * 24 * time.Hour}), key(1)
	h.ask(k, programRequest(k, "def main():\n    tools.look(at = \"x\")\n    tools.save(path = \"/x\", content = \"x\")\n"))
	h.clock.move(100 * 24 * time.Hour)
	old := h.clock.now().Add(-99 * 24 * time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(h.layout.Records(personal), k.StepKey(1).ID+".json"), old, old))
	_, err := h.gate.Prune(t.Context(), nil)
	require.NoError(t, err)
	require.NotNil(t, h.record(k.StepKey(1)))
	h.decide(decision(k, approval.Denied))
	h.step(k)
	_, err = h.gate.Prune(t.Context(), nil)
	require.NoError(t, err)
	require.Nil(t, h.record(k.StepKey(1)))
	require.NotNil(t, h.record(k))
}

// TestProgramObeysTheConfigurationOfNow: a rule or a tool that changes while a program runs counts for the steps that follow,
// as the daemon hands out a fixed policy for each configuration.
func TestProgramObeysTheConfigurationOfNow(t *testing.T) {
	for name, change := range map[string]func(h *rig) (gate.Settings, gate.Policy){
		"step 2 (save): rule_deny rule=stop":         func(h *rig) (gate.Settings, gate.Policy) { return h, h.fixedPolicy(deny("save")) },
		"step 2 (save): the tool changed, ask again": func(h *rig) (gate.Settings, gate.Policy) { return withoutTools{h}, h.Policy },
	} {
		t.Run(name, func(t *testing.T) {
			h, k := programRig(t, options{}), key(1)
			h.reloadInStep(1, func() (gate.Settings, gate.Policy) { return change(h) })
			h.approveProgram(k, three)
			require.Contains(t, h.outcome(k), "failed: Stopped: "+name)
			require.Len(t, h.ran(), 1)
		})
	}
}

// TestPlanObeysTheConfigurationOfNow: the same while a program is planned.
func TestPlanObeysTheConfigurationOfNow(t *testing.T) {
	const twice = "def main():\n    a = tools.look(at = \"/a\")\n    if a[\"n\"] == 7:\n        b = tools.look(at = \"/b\")\n        tools.mail(to = [\"a@b.c\"], body = b[\"text\"])\n"
	for name, change := range map[string]func(h *rig) (gate.Settings, gate.Policy){
		"rule_deny rule=stop": func(h *rig) (gate.Settings, gate.Policy) { return h, h.fixedPolicy(deny("look")) },
		"program_error":       func(h *rig) (gate.Settings, gate.Policy) { return withoutTools{h}, h.Policy },
	} {
		t.Run(name, func(t *testing.T) {
			h, k := programRig(t, options{}), key(1)
			h.reloadInStep(1, func() (gate.Settings, gate.Policy) { return change(h) })
			h.writeRequest(k, programRequest(k, twice))
			h.step(k)
			h.step(k)
			require.Contains(t, h.outcome(k), name)
			require.Equal(t, []string{`look {"at":"/a"}`}, h.ran())
		})
	}
}

func deny(tool string) policy.Rule {
	return policy.Rule{Name: "stop", Tool: policy.Names{tool}, Outcome: approval.Deny}
}

// fixedPolicy is a policy that no later reload changes, like the daemon's: the rig's rules with one before them.
func (h *rig) fixedPolicy(first policy.Rule) gate.Policy {
	h.t.Helper()
	allow := policy.Rule{Name: "look", Tool: policy.Names{"look"}, Outcome: approval.Allow}
	view, err := h.Policy.Try(policy.Config{Rules: []policy.Rule{first, allow}})
	require.NoError(h.t, err)
	return fixedPolicy{view, h.Policy}
}

type fixedPolicy struct {
	*policy.View
	engine *policy.Engine
}

func (p fixedPolicy) Recurrence(workspace, action, capability string) int {
	return p.engine.Recurrence(workspace, action, capability)
}

// reloadInStep gives the gate a fixed policy, and another configuration from the n-th run of the executor on.
func (h *rig) reloadInStep(n int, change func() (gate.Settings, gate.Policy)) {
	h.t.Helper()
	settings, judge := gate.Settings(h), h.fixedPolicy(deny("nothing"))
	h.gate.Config = func() (gate.Settings, gate.Policy) { return settings, judge }
	runs := 0
	h.beforeRuns(func(approval.Job) {
		if runs++; runs == n {
			settings, judge = change()
		}
	})
}

// withoutTools are settings without any tool.
type withoutTools struct{ *rig }

func (withoutTools) Tool(string) (approval.Tool, bool) { return approval.Tool{}, false }

// TestProgramLeftByAStop: a stopping gate begins no step, and the next start goes on with it.
func TestProgramLeftByAStop(t *testing.T) {
	h, k := programRig(t, withProbeTool(options{})), key(1)
	inside, open := make(chan struct{}), make(chan struct{})
	h.beforeRuns(func(job approval.Job) {
		if job.RequestID == k.StepKey(1).ID {
			close(inside)
			<-open
		}
	})
	h.ask(k, programRequest(k, three))
	h.decide(decision(k, approval.Approved))
	h.run(0)
	h.gate.Wake(k)
	<-inside
	wait := h.beginStop()
	close(open)
	wait()
	require.Empty(t, h.executor.argsOf(k.StepKey(2)))
	require.False(t, h.isSettled(k))
	require.False(t, h.has(approval.DocClaim, k.StepKey(2)))

	h.reopen()
	h.run(0)
	h.waitResponse(k, 5*time.Second)
	require.Equal(t, []string{"save approved", "save approved", "save approved"}, h.statuses(k))
	for step := 1; step <= 3; step++ {
		require.Len(t, h.executor.argsOf(k.StepKey(step)), 1)
	}
}
