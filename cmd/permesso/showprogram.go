package main

import (
	"cmp"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// showProgram prints what the steps of a program that has ended did, then the program.
func (a *app) showProgram(about *approval.Pending, s chat.Style, result approval.Raw) {
	var out struct {
		Steps []struct {
			Step   int             `json:"step"`
			Status approval.Status `json:"status"`
			Result approval.Raw    `json:"result"`
			Error  string          `json:"error"`
		} `json:"steps"`
		Guarantees []struct{ Guarantee, State string } `json:"guarantees"`
		Undo       string                              `json:"undo"`
	}
	_ = json.Unmarshal(result, &out) // a program that did not run has none
	for i := range about.Plan.Steps {
		step := &about.Plan.Steps[i]
		text := chat.Escape(step.Tool) + " " + s.Result(about, step.Data)
		for _, ref := range step.Opaque {
			text += fmt.Sprintf(" %s = %q of the result of step %d", chat.Escape(ref.Arg), ref.At, ref.Step)
		}
		if i < len(out.Steps) {
			text += "\n          " + string(out.Steps[i].Status)
			if x := out.Steps[i]; x.Error != "" {
				text += ": " + s.OneLine(about, x.Error)
			} else if len(x.Result) > 0 && string(x.Result) != "null" && string(x.Result) != "{}" {
				text += " " + s.Result(about, x.Result)
			}
		}
		if i >= len(out.Steps) && step.Done() {
			text += "\n          has run while the plan was made, or in an earlier part: permesso show " + step.Of
		}
		a.printFact(fmt.Sprintf("step %d", i+1), text)
	}
	for _, g := range out.Guarantees {
		a.printFact(g.State, s.OneLine(about, g.Guarantee))
	}
	for i, text := range []string{about.Plan.Source, out.Undo} {
		for j, line := range s.Lines(about, text) {
			what := ""
			if j == 0 {
				what = []string{"program", "undo"}[i]
			}
			if text != "" {
				a.printFact(what, cmp.Or(line, " "))
			}
		}
	}
}
