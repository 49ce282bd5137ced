package crashtest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/program"
)

// planner evaluates in this process: an evaluation has no effect that a crash could split.
type planner struct{}

// Evaluate implements gate.planner.
func (planner) Evaluate(ctx context.Context, job approval.ProgramJob, call func(approval.Call) (approval.Answer, error)) (approval.Evaluation, error) {
	return program.Evaluate(ctx, job, call)
}

// script is a program, with the texts that its steps must run with.
type script struct {
	source string
	texts  []string
	reads  int // the first steps, which run while the plan is made

	runs    int  // of a random program, how many steps run when nothing crashes
	allowed bool // by policy
}

// readTool only reads, and policy allows it.
const readTool = "reads"

// scripts are the programs of flows.txt. Every step gives {"done": true, "text": its text}.
var scripts = map[string]script{
	"asked": {source: `def main():
    for t in ["one", "two"]:
        tools.run(text = t)
    tools.auto(text = "three")
`, texts: []string{"one", "two", "three"}},
	"auto": {source: `def main():
    a = tools.auto(text = "one")
    tools.auto(text = a["text"])
`, texts: []string{"one", "one"}, allowed: true},
	"reads": {source: `def main():
    a = tools.reads(text = "x")
    b = tools.reads(text = a["text"] + "y")
    tools.run(text = b["text"] + "z")
`, texts: []string{"x", "xy", "xyz"}, reads: 2},
	"stops": {source: `def main():
    try_(tools.fails, text = "one")
    tools.run(text = "two")
    tools.fails(text = "three")
    tools.run(text = "four")
`, texts: []string{"one", "two", "three", "four"}},
	"again": {source: `def main():
    tools.again(text = "one")
    tools.task(text = "two")
    tools.run(text = "three")
`, texts: []string{"one", "two", "three"}},
	"needs": {source: `def main():
    a = tools.run(text = "one")
    if a["text"] == "one":
        tools.run(text = "two")
`, texts: []string{"one"}},
}

// programRequest asks for one of the scripts.
func programRequest(id, name string) requestFile {
	s, ok := scripts[name]
	if !ok {
		panic("flows.txt: unknown program: " + name)
	}
	return requestFile{id, fmt.Sprintf(`{"request_id":%q,"program":%s}`, id, codec.Quote(s.source))}
}

// script is the program that the flow asks for; nil: none.
func (f *flow) script() *script {
	if f.generated != nil {
		return f.generated
	}
	_, rest, ok := strings.Cut(f.actions, "program ")
	name, _, _ := strings.Cut(rest, ";")
	if s, known := scripts[name]; ok && known {
		return &s
	}
	return nil
}

// stepEffects are the effects of a program, by step: which texts ran.
func (w *sim) stepEffects(id string) map[int][]effect {
	steps := map[int][]effect{}
	for _, e := range w.effects {
		if parent, n := approval.CutStep(e.id); parent == id && n > 0 {
			steps[n] = append(steps[n], e)
		}
	}
	return steps
}

// checkProgram checks that the effects of a program are a prefix of its plan, each at most once, and that its record says
// which. rec is nil if there is none.
func (w *sim) checkProgram(id string, rec *approval.Record, violate func(string, ...any)) {
	s := w.flow.script()
	if s == nil {
		return
	}
	steps, last := w.stepEffects(id), 0
	approved := len(w.approvedArgs[id]) > 0 || s.allowed
	for n, list := range steps {
		last = max(last, n)
		switch {
		case s.runs > 0 && n > s.runs:
			violate("I1 step %d ran, and the program has stopped before", n)
		case n > len(s.texts) || list[0].args != approval.Digest([]byte(`{"text":"`+s.texts[n-1]+`"}`)):
			violate("I1 step %d ran with other arguments", n)
		case !approved && n > s.reads:
			violate("I1 step %d ran without an approval", n)
		case len(list) > 1 && (len(list) > 2 || list[0].key == "" || list[0] != list[1]):
			violate("I2 %d effects of step %d", len(list), n)
		}
	}
	order := 0
	for _, e := range w.effects {
		if parent, n := approval.CutStep(e.id); parent == id && n > 0 {
			if n < order {
				violate("I2 step %d ran after step %d", n, order)
			}
			order = n
		}
	}
	if last != len(steps) {
		violate("I1 the steps that ran are no prefix of the plan: %d of %d", len(steps), last)
	}
	if rec == nil {
		return
	}
	w.checkSteps(rec, steps, s.reads, violate)
}

// checkSteps compares what the response says of the steps with their effects.
func (w *sim) checkSteps(rec *approval.Record, steps map[int][]effect, reads int, violate func(string, ...any)) {
	var result struct {
		Steps []struct {
			Step   int    `json:"step"`
			Status string `json:"status"`
		} `json:"steps"`
	}
	resp, err := approval.ParseResponse(rec.Response)
	if err != nil {
		violate("I5 the response of a program cannot be read: %v", err)
		return
	}
	ran := rec.Status == approval.StatusApproved || rec.Status == approval.StatusAutoApproved
	if resp.Result.Kind() != '{' {
		if ran || len(steps) > reads {
			violate("I6 %s says nothing of its steps", rec.Status)
		}
		return
	}
	if err := json.Unmarshal(resp.Result, &result); err != nil {
		violate("I5 the result of a program cannot be read: %v", err)
		return
	}
	for _, x := range result.Steps {
		began := len(steps[x.Step]) > 0
		switch {
		case slices.Contains([]string{"approved", "auto_approved"}, x.Status) != began && !slices.Contains([]string{"failed", "interrupted"}, x.Status):
			violate("I6 step %d is %s, and its effects are %v", x.Step, x.Status, steps[x.Step])
		case ran && x.Status == "not_run":
			violate("I1 %s, and step %d has not run", rec.Status, x.Step)
		}
		w.checkTask(approval.Key{ID: rec.RequestID}.StepKey(x.Step).ID, approval.Status(x.Status), violate)
	}
	if rec.Status == approval.StatusInterrupted && !slices.ContainsFunc(result.Steps, func(x struct {
		Step   int    `json:"step"`
		Status string `json:"status"`
	},
	) bool {
		return x.Status == "interrupted"
	}) {
		violate("I6 interrupted at no step")
	}
}
