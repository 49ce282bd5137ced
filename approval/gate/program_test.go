package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/gate/gatetest"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/approval/submit"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/policy"
)

// programTools are the tools of these tests. Policy asks about mail and save, and allows look.
func programTools() map[string]approval.Tool {
	tool := func(name string, args map[string]approval.Argument) approval.Tool {
		return approval.Tool{Name: name, Args: args, Trust: gatetest.Harmless(), Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/bin/" + name}}}
	}
	mail := tool("mail", map[string]approval.Argument{"to": {Type: facts.TypeRecipients}, "body": {}})
	mail.Undo = "unmail"
	look := tool("look", map[string]approval.Argument{"at": {}})
	look.Reads = true
	return map[string]approval.Tool{
		"mail": mail, "look": look, "unmail": tool("unmail", map[string]approval.Argument{"id": {}, "to": {Type: facts.TypeRecipients}}),
		"save": tool("save", map[string]approval.Argument{"path": {Type: facts.TypePath}, "content": {}}),
	}
}

func programRig(t testing.TB, o options) *rig {
	o.frozenClock, o.inline, o.tools = true, true, programTools()
	o.rules = append(o.rules, policy.Rule{Name: "look", Tool: policy.Names{"look"}, Outcome: approval.Allow})
	h := newRig(t, o)
	h.executor.do = func(job approval.Job) approval.Effect {
		return approval.Effect{Result: approval.Raw(fmt.Sprintf(`{"id":%q,"text":"seen","n":7}`, job.RequestID[strings.IndexByte(job.RequestID, '.')+1:]))}
	}
	return h
}

// programRequest is a request of a program.
func programRequest(k approval.Key, source string, more ...string) string {
	return fmt.Sprintf(`{"request_id":%q,"program":%s%s}`, k.ID, codec.Quote(source), strings.Join(append([]string{""}, more...), ","))
}

// programOutcome is the part of a response that describes the run of a program.
type programOutcome struct {
	Main  string `json:"main"`
	Steps []struct {
		Step   int             `json:"step"`
		Tool   string          `json:"tool"`
		Status string          `json:"status"`
		Result json.RawMessage `json:"result"`
		Error  string          `json:"error"`
	} `json:"steps"`
	Guarantees []struct {
		Guarantee string `json:"guarantee"`
		State     string `json:"state"`
	} `json:"guarantees"`
	NextRequestID string `json:"next_request_id"`
	Undo          string `json:"undo"`
}

func (h *rig) programOutcome(k approval.Key) (out programOutcome) {
	h.t.Helper()
	r := h.response(k)
	require.NotNil(h.t, r)
	require.NoError(h.t, json.Unmarshal(r.Result, &out), "%s", r.Result)
	return out
}

// statuses are those of the steps.
func (h *rig) statuses(k approval.Key) (all []string) {
	for _, s := range h.programOutcome(k).Steps {
		all = append(all, s.Tool+" "+s.Status)
	}
	return all
}

// ran lists the arguments that the executor got, in order.
func (h *rig) ran() (all []string) {
	h.executor.mu.Lock()
	defer h.executor.mu.Unlock()
	for _, job := range h.executor.jobs {
		all = append(all, job.Tool.Name+" "+string(job.Args))
	}
	return all
}

// approveProgram asks for a program, approves it, and lets it run.
func (h *rig) approveProgram(k approval.Key, source string) {
	h.t.Helper()
	h.ask(k, programRequest(k, source))
	h.decide(decision(k, approval.Approved))
	h.step(k)
	require.True(h.t, h.isSettled(k), "%s", h.outcome(k))
}

const mailToBob = `def main():
    guarantee(tools.mail.only(to = ["bob@example.com"]), at_most(tools.mail, 1), none(tools.save))
    tools.mail(to = ["bob@example.com"], body = "hello")
`

// TestProgramToBob is the example of a predecessor: proved, asked, run, and its receipt verified.
func TestProgramToBob(t *testing.T) {
	h, k := programRig(t, options{}), key(1)
	h.ask(k, programRequest(k, mailToBob))
	p := h.pending(k)
	require.Equal(t, approval.ActionProgram, p.ActionType)
	require.Equal(t, approval.HandlerProgram, p.Runs.Kind)
	require.Equal(t, approval.Irreversible, p.Reversibility)
	require.Len(t, p.Plan.Steps, 1)
	require.JSONEq(t, `{"body":"hello","to":["bob@example.com"]}`, string(p.Plan.Steps[0].Data))
	for _, g := range p.Plan.Guarantees {
		require.Equal(t, approval.GuaranteeProved, g.State, "%s", g)
	}
	require.Empty(t, h.ran(), "a plan has no effect")

	h.decide(decision(k, approval.Approved))
	h.step(k)
	require.True(t, h.isSettled(k))
	require.Equal(t, "approved", h.outcome(k))
	require.Equal(t, []string{`mail {"body":"hello","to":["bob@example.com"]}`}, h.ran())
	out := h.programOutcome(k)
	require.Equal(t, "returned", out.Main)
	require.Len(t, out.Guarantees, 3)
	require.JSONEq(t, `{"id":"step-1","text":"seen","n":7}`, string(out.Steps[0].Result))

	r := h.response(k)
	require.Equal(t, &approval.ProgramReceipt{RequestID: k.ID, Receipt: *r.Receipt, SHA256: p.Plan.SHA256()}, h.executor.jobs[0].Program)
	f, err := h.Verifier.Parse(*r.Receipt)
	require.NoError(t, err)
	require.Equal(t, approval.Digest([]byte(mailToBob)), f.ProgramSHA256)
	require.Equal(t, p.Plan.SHA256(), f.ArgsSHA256)
	require.Equal(t, "ann", f.By)
	require.NoError(t, h.Verifier.Verify(*r.Receipt, personal, k.ID, "", p.Plan.SHA256()))
	require.Error(t, h.Verifier.Verify(*r.Receipt, personal, key(2).ID, "", p.Plan.SHA256()), "for another request")

	step := h.record(k.StepKey(1))
	require.Equal(t, approval.StatusApproved, step.Status)
	require.True(t, step.Step.Equal(&p.Plan.Steps[0].Call))
	require.NoError(t, h.Verifier.Verify(step.Receipt, personal, k.StepKey(1).ID, "mail", approval.Digest(step.Step.Data)))
	require.Equal(t, []event.Kind{event.Requested, event.Approved, event.Executed}, h.history(k))
	require.Equal(t, []event.Kind{event.Approved, event.Executed}, h.history(k.StepKey(1)))
	require.False(t, h.has(approval.DocResponse, k.StepKey(1)), "no agent sees a step's own response")
	require.NoError(t, audit.Entries(ipc.OS(), h.layout.Audit(), func(e event.Entry) error {
		require.Equal(t, e.Event == event.Approved && e.RequestID == k.ID, e.Human, "%s of %s: a person has approved once", e.Event, e.RequestID)
		return nil
	}))
}

// TestRefusedPrograms are refused at once, without an effect and without a person, each with its line or its step.
func TestRefusedPrograms(t *testing.T) {
	for name, c := range map[string]struct{ source, says string }{
		"no main":                   {`x = 1`, "main"},
		"syntax":                    {"def main(:\n", "line 1"},
		"a call at module level":    {`r = tools.mail(to = ["bob@example.com"], body = "x")` + "\ndef main():\n    pass\n", "line 1"},
		"monkey-patching":           {"def main():\n    tools.mail = tools.look\n", "line 2"},
		"shadowing":                 {"tools = 1\ndef main():\n    pass\n", "line 1"},
		"an import":                 {"load(\"os\", \"system\")\ndef main():\n    pass\n", "line 1"},
		"reflection":                {"def main():\n    getattr(tools, \"__class__\")\n", "line 2"},
		"an unknown tool":           {"def main():\n    tools.mial()\n", "mail"},
		"a missing argument":        {"def main():\n    tools.mail(body = \"x\")\n", "to"},
		"an undeclared argument":    {"def main():\n    tools.mail(to = [\"a@b.c\"], body = \"x\", bcc = \"d@e.f\")\n", "bcc"},
		"a wrong type":              {"def main():\n    tools.mail(to = 7, body = \"x\")\n", "line 2"},
		"a refuted guarantee":       {"def main():\n    guarantee(at_most(tools.mail, 1))\n    tools.mail(to = [\"a@b.c\"], body = \"x\")\n    tools.mail(to = [\"a@b.c\"], body = \"y\")\n", "step=2"},
		"a step that policy denies": {"def main():\n    tools.mail(to = [\"a@b.c\"], body = \"x\")\n    tools.never()\n", "Denied by policy: program_step step=2 tool=never: rule_deny"},
		"a tool of the agent":       {"def main():\n    tools.mine()\n", "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			h, k := programRig(t, options{}), key(1)
			h.setTool("mine", approval.AgentTool("mine"))
			h.writeRequest(k, programRequest(k, c.source))
			h.step(k)
			require.True(t, h.isSettled(k))
			require.Contains(t, h.outcome(k), "auto_rejected: ")
			require.Contains(t, h.outcome(k), c.says)
			require.Empty(t, h.ran())
		})
	}
}

// TestProgramRequestIsStrict: of tool, action type and program a request has one.
func TestProgramRequestIsStrict(t *testing.T) {
	k := key(1)
	for _, more := range []string{`"tool_name":"mail"`, `"action_type":"exec_cmd"`, `"type":"question","title":"x"`, `"request_data":{"a":1}`, `"execution":"agent"`, `"continues":"` + key(2).ID + `"`} {
		_, err := approval.ParseRequest([]byte(programRequest(k, mailToBob, more)), k.ID)
		require.ErrorIs(t, err, approval.ErrMalformed, more)
	}
	_, err := approval.ParseRequest([]byte(programRequest(k, strings.Repeat("#", approval.MaxProgram+1))), k.ID)
	require.ErrorIs(t, err, approval.ErrMalformed)
	_, err = approval.ParseRequest([]byte(fmt.Sprintf(`{"request_id":%q,"action_type":"exec_cmd","continues":%q}`, k.ID, key(2).ID)), k.ID)
	require.ErrorIs(t, err, approval.ErrMalformed)
}

const three = `def main():
    for t in ["one", "two", "three"]:
        tools.save(path = "/tmp/" + t, content = t)
`

// TestProgramStopsAtFailure: a step that fails ends the run, unless the program says try_.
func TestProgramStopsAtFailure(t *testing.T) {
	h, k := programRig(t, options{}), key(1)
	does := h.executor.do
	h.executor.do = func(job approval.Job) approval.Effect {
		if strings.Contains(string(job.Args), "two") {
			return approval.Effect{Error: "Execution failed: boom"}
		}
		return does(job)
	}
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

// TestProgramReads: a read that policy allows runs while the plan is made, once, and its result is pinned.
func TestProgramReads(t *testing.T) {
	const source = `def main():
    for name in tools.look(at = "team")["text"].elems():
        tools.save(path = "/tmp/" + name, content = name)
    tools.look(at = "later")
`
	h, k := programRig(t, options{}), key(1)
	h.ask(k, programRequest(k, source))
	plan := h.pending(k).Plan
	require.Len(t, plan.Steps, 6)
	require.True(t, plan.Steps[0].Done())
	require.False(t, plan.Steps[5].Done(), "a read behind a write sees what that did")
	require.Equal(t, []string{`look {"at":"team"}`}, h.ran())
	require.Equal(t, approval.StatusAutoApproved, h.record(k.StepKey(1)).Status)
	require.Equal(t, []event.Kind{event.AutoApproved, event.Executed}, h.history(k.StepKey(1)))
	h.reopen()
	h.decide(decision(k, approval.Approved))
	h.step(k)
	require.Equal(t, "approved", h.outcome(k))
	require.Len(t, h.ran(), 6)

	t.Run("not allowed", func(t *testing.T) {
		h, k := programRig(t, options{rules: []policy.Rule{{Name: "ask", Tool: policy.Names{"look"}, Outcome: approval.Ask}}}), key(1)
		h.ask(k, programRequest(k, source))
		require.Equal(t, &approval.Needs{Step: 1, Line: 2}, h.pending(k).Plan.Needs)
		require.Empty(t, h.ran())
	})
	t.Run("another program under the id", func(t *testing.T) {
		h, k := programRig(t, options{}), key(1)
		h.writeRequest(k, programRequest(k, "def main():\n    tools.look(at = \"a\")\n    tools.never()\n"))
		h.step(k) // refused, with a step that has run
		require.Contains(t, h.outcome(k), "auto_rejected")
		require.NotNil(t, h.record(k.StepKey(1)))
		h.writeRequest(k, programRequest(k, "def main():\n    tools.look(at = \"b\")\n"))
		h.step(k)
		require.Equal(t, []string{`look {"at":"a"}`}, h.ran())
	})
	t.Run("a changed result is not used", func(t *testing.T) {
		h, k := programRig(t, options{}), key(1)
		h.ask(k, programRequest(k, source))
		p := h.pending(k)
		p.Plan.Steps[0].ResultSHA256 = approval.Digest([]byte("another"))
		body, err := p.Encode()
		require.NoError(t, err)
		put := store.Put(approval.DocPending, k, h.key.Seal(approval.DocPending, k, body))
		put.Mode = store.Replace
		require.NoError(t, h.store.Commit(t.Context(), put))
		h.decide(decision(k, approval.Approved))
		h.step(k)
		require.Contains(t, h.outcome(k), "failed: Stopped: diverged at step 1")
		require.Len(t, h.ran(), 1)
	})
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

// TestProgramGoesOn: after a stop in the middle, and after a pause, the run goes on behind its last step, and none runs
// twice.
func TestProgramGoesOn(t *testing.T) {
	h, k := programRig(t, options{}), key(1)
	held := &guard{}
	h.gate.Pauses = held
	does := h.executor.do
	h.executor.do = func(job approval.Job) approval.Effect {
		held.paused = strings.Contains(string(job.Args), "two")
		return does(job)
	}
	h.ask(k, programRequest(k, three))
	h.decide(decision(k, approval.Approved))
	h.step(k)
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
		h.executor.do = func(job approval.Job) approval.Effect {
			h.clock.move(31 * time.Minute)
			return does(job)
		}
		h.approveProgram(k, three)
		require.Contains(t, h.outcome(k), "failed: Stopped: step 3 (save): the run took too long")
		require.Len(t, h.ran(), 2)
	})
	t.Run("not with a changed tool", func(t *testing.T) {
		h, k := programRig(t, options{}), key(1)
		h.executor.do = func(job approval.Job) approval.Effect {
			changed := programTools()["save"]
			changed.Handler.Argv = []string{"/bin/other"}
			h.setTool("save", changed)
			return does(job)
		}
		h.approveProgram(k, three)
		require.Contains(t, h.outcome(k), "failed: Stopped: step 2 (save): the tool changed, ask again")
		require.Len(t, h.ran(), 1)
	})
	t.Run("what ran counts, whatever changes then", func(t *testing.T) {
		for _, change := range []func(h *rig){
			func(h *rig) { h.setTool("save", approval.Tool{}) },
			func(h *rig) {
				changed := programTools()["save"]
				changed.Handler.Argv = []string{"/bin/other"}
				h.setTool("save", changed)
			},
		} {
			h, k := programRig(t, options{}), key(1)
			held := &guard{}
			h.gate.Pauses = held
			h.executor.do = func(job approval.Job) approval.Effect {
				held.paused = strings.Contains(string(job.Args), "two")
				return does(job)
			}
			h.ask(k, programRequest(k, three))
			h.decide(decision(k, approval.Approved))
			h.step(k)
			change(h)
			h.reopen()
			h.step(h.keys...)
			require.Equal(t, []string{"save approved", "save approved", "save not_run"}, h.statuses(k))
			require.Contains(t, h.outcome(k), "step 3 (save): the tool changed, ask again. Of 3 steps 2 were started")
		}
	})
	t.Run("not against a deny that came later", func(t *testing.T) {
		h, k := programRig(t, options{}), key(1)
		h.executor.do = func(job approval.Job) approval.Effect {
			require.NoError(t, h.Policy.Load(policy.Config{Rules: []policy.Rule{{Name: "stop", Tool: policy.Names{"save"}, Outcome: approval.Deny}}}))
			return does(job)
		}
		h.approveProgram(k, three)
		require.Contains(t, h.outcome(k), "failed: Stopped: step 2 (save): rule_deny rule=stop")
		require.Len(t, h.ran(), 1)
	})
	t.Run("not after a cancel", func(t *testing.T) {
		h, k := programRig(t, options{}), key(1)
		h.executor.do = func(job approval.Job) approval.Effect {
			h.cancel(k)
			return does(job)
		}
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
	does := h.executor.do
	h.executor.do = func(job approval.Job) approval.Effect {
		if job.Tool.Name == "save" || strings.Contains(string(job.Args), "lost@") {
			return approval.Effect{Error: "Execution failed: disk full"}
		}
		return does(job)
	}
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

// TestProgramByPolicy: a program whose steps policy allows runs without a person, one is enough to ask, and what an approval
// remembers is exactly this program with exactly this plan.
func TestProgramByPolicy(t *testing.T) {
	h, k := programRig(t, options{}), key(1)
	const auto = "def main():\n    tools.auto(a = 1)\n    tools.auto(a = 2)\n"
	h.writeRequest(k, programRequest(k, auto))
	h.step(k)
	require.Equal(t, "auto_approved", h.outcome(k))
	require.Equal(t, []string{`auto {"a":1}`, `auto {"a":2}`}, h.ran())
	require.NotNil(t, h.record(k).Plan)
	require.Equal(t, []event.Kind{event.AutoApproved, event.Executed}, h.history(k))
	require.Equal(t, []event.Kind{event.AutoApproved, event.Executed}, h.history(k.StepKey(2)))
	_, err := h.Verifier.Parse(*h.response(k).Receipt)
	require.NoError(t, err)
	k = key(2)
	h.ask(k, programRequest(k, auto+"    tools.save(path = \"/tmp/x\", content = \"x\")\n"))
	require.Len(t, h.ran(), 2)
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

// TestProgramGoesOnAfterResults: the parts that follow make the earlier calls again with the values that are known by now,
// those that were opaque included, and each part names the one that has run a step.
func TestProgramGoesOnAfterResults(t *testing.T) {
	const source = `def main():
    a = tools.mail(to = ["a@example.com"], body = "one")
    tools.save(path = "/tmp/a", content = a["text"])
    if a["n"] == 7:
        b = tools.mail(to = ["b@example.com"], body = a["id"])
        if b["n"] == 7:
            tools.mail(to = ["c@example.com"], body = a["id"] + b["id"])
`
	h, k := programRig(t, options{}), key(1)
	h.approveProgram(k, source)
	second := approval.Key{Workspace: personal, ID: h.programOutcome(k).NextRequestID}
	h.ask(second, programRequest(second, source, `"continues":"`+k.ID+`"`))
	require.JSONEq(t, `{"content":"seen","path":"/tmp/a"}`, string(h.pending(second).Plan.Steps[1].Data))
	h.decide(decision(second, approval.Approved))
	h.step(second)
	third := approval.Key{Workspace: personal, ID: h.programOutcome(second).NextRequestID}
	h.ask(third, programRequest(third, source, `"continues":"`+second.ID+`"`))
	var of []string
	for _, s := range h.pending(third).Plan.Steps {
		of = append(of, s.Of)
	}
	require.Equal(t, []string{k.ID, k.ID, second.ID, ""}, of)
	h.decide(decision(third, approval.Approved))
	h.step(third)
	require.Equal(t, "returned", h.programOutcome(third).Main, h.outcome(third))
	require.Equal(t, []string{
		`mail {"body":"one","to":["a@example.com"]}`, `save {"content":"seen","path":"/tmp/a"}`,
		`mail {"body":"step-1","to":["b@example.com"]}`, `mail {"body":"step-1step-3","to":["c@example.com"]}`,
	}, h.ran())
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

// TestPlanOfHostileEvaluations: what an evaluation says is not trusted.
func TestPlanOfHostileEvaluations(t *testing.T) {
	call := func(tool string, opaque ...approval.ResultRef) approval.Call {
		return approval.Call{Tool: tool, Data: approval.Raw(`{}`), Opaque: opaque, Line: 1}
	}
	many := make([]approval.Call, approval.MaxSteps+1)
	for i := range many {
		many[i] = call("auto")
	}
	for name, calls := range map[string][]approval.Call{
		"an unknown tool":     {call("none")},
		"a tool of the agent": {call("mine")},
		"too many calls":      many,
	} {
		t.Run(name, func(t *testing.T) {
			h, k := programRig(t, options{}), key(1)
			h.setTool("mine", approval.AgentTool("mine"))
			h.planner.custom = func(ask func(approval.Call) (approval.Answer, error)) (e approval.Evaluation, err error) {
				for _, c := range calls {
					if _, err = ask(c); err != nil {
						return e, err
					}
				}
				return e, nil
			}
			h.writeRequest(k, programRequest(k, "hostile"))
			h.step(k)
			require.Contains(t, h.outcome(k), "auto_rejected: ")
			require.Contains(t, h.outcome(k), "this tool cannot be called")
			require.Empty(t, h.ran())
		})
	}
	h, k := programRig(t, options{}), key(1)
	h.planner.custom = func(ask func(approval.Call) (approval.Answer, error)) (e approval.Evaluation, err error) {
		_, err = ask(call("auto", approval.ResultRef{Arg: "a", Step: 9}))
		return e, err
	}
	h.writeRequest(k, programRequest(k, "hostile"))
	h.step(k)
	if h.has(approval.DocPending, k) {
		h.decide(decision(k, approval.Approved))
		h.step(k)
	}
	require.Contains(t, h.outcome(k), "which has not run")
	require.Empty(t, h.ran())
}

// host is a host on which nothing can run.
type host struct{}

func (host) Ready(approval.Handler) error     { return errors.New("the program is missing") }
func (host) Size(string) (int64, error)       { return 0, fs.ErrNotExist }
func (host) Text(string, int) (string, error) { return "", fs.ErrNotExist }

// TestProgramThatCannotRun is refused before a person is asked.
func TestProgramThatCannotRun(t *testing.T) {
	h, k := programRig(t, options{}), key(1)
	h.gate.Host = host{}
	h.writeRequest(k, programRequest(k, three))
	h.step(k)
	require.Contains(t, h.outcome(k), "auto_rejected: ")
	require.Contains(t, h.outcome(k), "the program is missing")

	h, k = programRig(t, options{}), key(1)
	h.gate.Planner = nil
	h.writeRequest(k, programRequest(k, three))
	h.step(k)
	require.Contains(t, h.outcome(k), "programs cannot be evaluated")
}

// TestPreviewOfAProgram: a preview runs nothing, also no read, and keeps nothing.
func TestPreviewOfAProgram(t *testing.T) {
	h, k := programRig(t, options{}), key(1)
	r, err := approval.ParseRequest([]byte(programRequest(k, "def main():\n    tools.save(path = \"/tmp/x\", content = tools.look(at = \"x\")[\"text\"])\n")), k.ID)
	require.NoError(t, err)
	p, ruling, err := gate.PreviewProgram(t.Context(), h, h.Policy, &h.planner, personal, r, h.clock.now(), nil, nil)
	require.NoError(t, err)
	require.Equal(t, approval.Ask, ruling.Outcome)
	require.Len(t, p.Plan.Steps, 2)
	require.Equal(t, "look", p.Plan.Steps[0].Tool)
	require.NotEmpty(t, p.Plan.Steps[1].Opaque, "the read has not run")
	require.Empty(t, h.ran())
	require.Nil(t, h.record(k.StepKey(1)))
	r.Program = "def main(:"
	p, ruling, err = gate.PreviewProgram(t.Context(), h, h.Policy, &h.planner, personal, r, h.clock.now(), nil, nil)
	require.NoError(t, err)
	require.Nil(t, p)
	require.Equal(t, approval.Deny, ruling.Outcome)
}

// TestReadThatFails: a read that fails while the plan is made ends the program, unless it says try_.
func TestReadThatFails(t *testing.T) {
	h, k := programRig(t, options{}), key(1)
	does := h.executor.do
	h.executor.do = func(job approval.Job) approval.Effect {
		if job.Tool.Name == "look" {
			return approval.Effect{Error: "Execution failed: no such place"}
		}
		return does(job)
	}
	h.writeRequest(k, programRequest(k, "def main():\n    tools.look(at = \"x\")\n    tools.auto()\n"))
	h.step(k)
	require.Contains(t, h.outcome(k), "auto_rejected: ")
	require.Contains(t, h.outcome(k), "step 1 (look): Execution failed: no such place")
	k = key(2)
	h.ask(k, programRequest(k, "def main():\n    r = try_(tools.look, at = \"x\")\n    if not r.ok:\n        tools.save(path = \"/x\", content = r.error)\n"))
	require.Equal(t, "Execution failed: no such place", h.pending(k).Plan.Steps[0].Failed)
	h.setTool("look", approval.Tool{}) // what has run needs no tool any more
	h.decide(decision(k, approval.Approved))
	h.step(k)
	require.Equal(t, "approved", h.outcome(k))
	require.Equal(t, []string{"look failed", "save approved"}, h.statuses(k))
}

// TestWhatPolicyLearnsOfAProgram: its steps that have not run, whether they are all, arguments that are not known, and the
// secrets of its text.
func TestWhatPolicyLearnsOfAProgram(t *testing.T) {
	allow := policy.Rule{Name: "one", Tool: policy.Names{"run"}, Program: "true", MaxSteps: 1, Outcome: approval.Allow}
	known := policy.Rule{Name: "known", Tool: policy.Names{"save"}, Args: []policy.Condition{{Field: "content", Contains: "a", Optional: true}}, Outcome: approval.Allow}
	once := policy.Rule{Name: "once", Tool: policy.Names{"save"}, Program: "true", MaxCalls: 1, Args: []policy.Condition{{Field: "content", Is: []string{"b"}}}, Outcome: approval.Allow}
	for name, c := range map[string]struct {
		source string
		asks   bool
	}{
		"one step":             {"def main():\n    tools.run()\n", false},
		"and one that has run": {"def main():\n    tools.look(at = \"x\")\n    tools.run()\n", false},
		"two steps":            {"def main():\n    tools.run()\n    tools.run()\n", true},
		"not all of it":        {"def main():\n    if tools.run()[\"n\"] == 1:\n        pass\n", true},
		"two calls of a tool":  {"def main():\n    tools.look(at = \"x\")\n    tools.save(path = \"/y\", content = \"b\")\n    tools.save(path = \"/y\", content = \"b\")\n", true},
		"one call of each":     {"def main():\n    tools.look(at = \"x\")\n    tools.auto()\n    tools.save(path = \"/y\", content = \"b\")\n", false},
		"a known text":         {"def main():\n    tools.save(path = \"/x\", content = \"a\")\n", false},
		"an opaque text":       {"def main():\n    r = tools.auto()\n    tools.save(path = \"/x\", content = r[\"text\"])\n", true},
		"a secret":             {"# SECRET\ndef main():\n    tools.run()\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			h, k := programRig(t, options{rules: []policy.Rule{allow, known, once}}), key(1)
			h.Policy.Scan = func(f *approval.Facts) []approval.Finding {
				if strings.Contains(f.Agent.Preview, "SECRET") {
					return []approval.Finding{{Kind: "secret", Where: "preview", Length: 6}}
				}
				return nil
			}
			h.writeRequest(k, programRequest(k, c.source))
			h.step(k)
			require.Equal(t, c.asks, h.has(approval.DocPending, k), h.outcome(k))
		})
	}
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
	does := h.executor.do
	h.executor.do = func(job approval.Job) approval.Effect {
		require.NoError(t, h.Policy.Load(policy.Config{Limits: map[string]policy.Limits{personal: {Deny: map[string]policy.Rate{"": {Burst: 1, Per: time.Hour}}}}}))
		_, refused := h.Policy.Reserve(approval.Facts{RequestID: key(7).ID, Workspace: personal, Tool: "run", KnownTool: true, Now: h.clock.now()}, approval.Ruling{}, true)
		require.Nil(t, refused)
		return does(job)
	}
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

// TestProvenProgramRuns: what a rule requires is checked over all steps, and is still known when each is claimed.
func TestProvenProgramRuns(t *testing.T) {
	rule := policy.Rule{Name: "proven", Tool: policy.Names{"post"}, Outcome: approval.Allow, WhenProven: []policy.Clause{{Domain: "mail", Kind: policy.AtMost, Max: 2}}}
	h := programRig(t, options{rules: []policy.Rule{rule}})
	post := h.tools["mail"]
	post.Name, post.Capability, post.Args = "post", "mail:read", map[string]approval.Argument{"to": {Type: facts.TypeRecipients}}
	h.setTool("post", post)
	const source = "def main():\n    for who in [%s]:\n        tools.post(to = [who])\n"
	k := key(1)
	h.writeRequest(k, programRequest(k, fmt.Sprintf(source, `"a@b.c", "d@b.c"`)))
	h.step(k)
	require.Equal(t, "auto_approved", h.outcome(k))
	require.Len(t, h.ran(), 2)
	k = key(2)
	h.ask(k, programRequest(k, fmt.Sprintf(source, `"a@b.c", "d@b.c", "e@b.c"`)))
}

// TestPlansAreLimited: a flood of bad programs costs a bounded number of evaluations, and one that waits for its refusal is
// not evaluated again.
func TestPlansAreLimited(t *testing.T) {
	h := programRig(t, options{limits: approval.Limits{AskPerMinute: 3, PerMinute: 2}})
	for i := range 6 {
		k := key(i + 1)
		h.writeRequest(k, programRequest(k, "def main(:\n"))
		h.step(k)
		h.step(k)
	}
	require.Equal(t, 3, h.planner.evaluations)
	h.clock.move(10 * time.Minute)
	for i := range 6 {
		h.step(key(i + 1))
	}
	require.Contains(t, h.outcome(key(1)), "auto_rejected: program_error")
	require.LessOrEqual(t, h.planner.evaluations, 6)
}

// TestGuaranteeOfLinkedPaths: a path that leads out of a folder is not proved to be below it.
func TestGuaranteeOfLinkedPaths(t *testing.T) {
	h, k := programRig(t, options{}), key(1)
	h.Policy.Resolve = func(name string) (string, error) { return strings.Replace(name, "/in/link", "/etc", 1), nil }
	const source = "def main():\n    guarantee(only_under(\"path\", \"/in\"))\n    tools.save(path = \"/in/a\", content = \"\")\n    tools.save(path = \"/in/%s/b\", content = \"\")\n"
	h.ask(k, programRequest(k, fmt.Sprintf(source, "other")))
	require.Equal(t, approval.GuaranteeProved, h.pending(k).Plan.Guarantees[0].State)
	k = key(2)
	h.ask(k, programRequest(k, fmt.Sprintf(source, "link")))
	require.Equal(t, map[string]string{"/in/link/b": "/etc/b"}, h.pending(k).Plan.Steps[1].Ruling.Links)
	require.Equal(t, approval.GuaranteeUnknown, h.pending(k).Plan.Guarantees[0].State)
	require.Equal(t, 2, h.pending(k).Plan.Guarantees[0].Step)
}
