package gate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
	tools := programTools()
	maps.Copy(tools, o.tools)
	o.frozenClock, o.inline, o.tools = true, true, tools
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

// beforeRuns does something before each run of the executor.
func (h *rig) beforeRuns(do func(job approval.Job)) {
	does := h.executor.do
	h.executor.do = func(job approval.Job) approval.Effect {
		do(job)
		return does(job)
	}
}

// failRuns lets the executor fail with some jobs.
func (h *rig) failRuns(text string, which func(job approval.Job) bool) {
	does := h.executor.do
	h.executor.do = func(job approval.Job) approval.Effect {
		if which(job) {
			return approval.Effect{Error: text}
		}
		return does(job)
	}
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
	for name, change := range map[string]func(s *approval.Step){
		"a changed result is not used":  func(s *approval.Step) { s.ResultSHA256 = approval.Digest([]byte("another")) },
		"a changed failure is not used": func(s *approval.Step) { s.Failed = "no such place" },
	} {
		t.Run(name, func(t *testing.T) {
			h, k := programRig(t, options{}), key(1)
			h.ask(k, programRequest(k, source))
			p := h.pending(k)
			change(&p.Plan.Steps[0])
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
	h.failRuns("Execution failed: no such place", func(job approval.Job) bool { return job.Tool.Name == "look" })
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
	const source = "def main():\n    guarantee(only_under(\"path\", %q), at_most(tools.save, 9))\n    tools.save(path = \"/in/a\", content = \"\")\n    tools.save(path = \"/in/%s/b\", content = \"\")\n"
	h.ask(k, programRequest(k, fmt.Sprintf(source, "/in", "other")))
	require.Equal(t, approval.GuaranteeProved, h.pending(k).Plan.Guarantees[0].State)
	k = key(2)
	h.ask(k, programRequest(k, fmt.Sprintf(source, "/in", "link")))
	require.Equal(t, map[string]string{"/in/link/b": "/etc/b"}, h.pending(k).Plan.Steps[1].Ruling.Links)
	require.Equal(t, approval.GuaranteeUnknown, h.pending(k).Plan.Guarantees[0].State)
	require.Equal(t, 2, h.pending(k).Plan.Guarantees[0].Step)
	require.Equal(t, approval.GuaranteeProved, h.pending(k).Plan.Guarantees[1].State, "it says nothing of paths")
	h.Policy.Resolve = func(name string) (string, error) { return strings.Replace(name, "/in/link", "/inner", 1), nil }
	k = key(3)
	h.ask(k, programRequest(k, fmt.Sprintf(source, "/in", "link")))
	require.Equal(t, approval.GuaranteeUnknown, h.pending(k).Plan.Guarantees[0].State)
	k = key(4)
	h.ask(k, programRequest(k, fmt.Sprintf(source, "/", "link")))
	require.Equal(t, approval.GuaranteeProved, h.pending(k).Plan.Guarantees[0].State, "all is below /")
}

// TestSecretsOfAProgram: people read where they are, in the program or in its preview.
func TestSecretsOfAProgram(t *testing.T) {
	for place, more := range map[string][]string{"program": nil, "preview": {`"preview":"all files"`}} {
		h, k := programRig(t, options{}), key(1)
		h.Policy.Scan = func(f *approval.Facts) []approval.Finding {
			if strings.Contains(f.Agent.Preview, "SECRET") {
				return []approval.Finding{{Kind: "secret", Where: "preview", Length: 6}}
			}
			return nil
		}
		h.ask(k, programRequest(k, "# SECRET\n"+three, more...))
		p := h.pending(k)
		for _, r := range []approval.Ruling{p.Ruling, p.Plan.Steps[0].Ruling} {
			require.Len(t, r.Secrets, 1)
			require.Equal(t, place, r.Secrets[0].Where)
			require.Equal(t, place, r.Reason("secret").Args["where"])
		}
	}
}

// TestReceiptOfAStep: of a tool that runs nothing on this host, the agent gets the receipt.
func TestReceiptOfAStep(t *testing.T) {
	h, k := programRig(t, options{}), key(1)
	none := programTools()["save"]
	none.Name, none.Handler = "mark", approval.Handler{Kind: approval.HandlerNone}
	h.setTool("mark", none)
	h.approveProgram(k, "def main():\n    tools.mark(path = \"/x\", content = \"\")\n    tools.save(path = \"/x\", content = \"\")\n")
	var out struct{ Steps []struct{ Receipt string } }
	require.NoError(t, json.Unmarshal(h.response(k).Result, &out))
	require.Contains(t, out.Steps[0].Receipt, "permesso receipt v1\n")
	require.Empty(t, out.Steps[1].Receipt)
}
