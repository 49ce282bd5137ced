package gate

import (
	"context"
	"fmt"
	"reflect"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/move"
)

// currentTool reads the tool once, so that the tool that is compared is the tool that
// runs, even if the configuration changes in between.
func (g *Gate) currentTool(p *approval.Pending) (approval.Tool, move.ToolState) {
	if p.Plan != nil {
		return approval.ProgramTool(), stepsState(g.settings(), p.Plan)
	}
	if p.ToolName == "" {
		return approval.Tool{}, move.ToolSame
	}
	tool, known := g.settings().Tool(p.ToolName)
	if !known && p.Runs.Unlisted {
		tool = approval.AgentTool(p.ToolName)
	}
	switch {
	case !known && !p.Runs.Unlisted:
		return tool, move.ToolGone
	case tool.SHA256() != p.ToolSHA256:
		return tool, move.ToolChanged
	}
	if p.Runs.Kind == "" && !tool.Runs() {
		return tool, move.ToolSame
	}
	if runs, why := fill(tool, known, p.RequestData); !why.IsZero() || !reflect.DeepEqual(runs, p.Runs) {
		// This version would run something else than was shown, or an earlier one showed no invocation.
		return tool, move.ToolChanged
	}
	return tool, move.ToolSame
}

// stepsState is the state of the tools that the steps of a plan need.
func stepsState(settings Settings, plan *approval.Plan) move.ToolState {
	for i := range plan.Steps {
		step := &plan.Steps[i]
		if step.Done() {
			continue
		}
		switch tool, known := settings.Tool(step.Tool); {
		case !known:
			return move.ToolGone
		case tool.SHA256() != step.ToolSHA256:
			return move.ToolChanged
		}
	}
	return move.ToolSame
}

// endTool ends an approved request whose tool is gone, or not the one that was
// approved.
func (g *Gate) endTool(ctx context.Context, s *state, m move.Move) error {
	if m == move.EndToolGone {
		return g.endDecided(ctx, s, approval.StatusFailed, fmt.Sprintf("Approved but tool '%s' is no longer available", s.pending.ToolName))
	}
	return g.endDecided(ctx, s, approval.StatusFailed, "the tool changed, ask again")
}
