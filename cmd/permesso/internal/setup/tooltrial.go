package setup

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/exec"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc/client"
)

// TrialResult is what a trial returned.
type TrialResult struct {
	Result approval.Raw `json:"result,omitempty"`
	Error  string       `json:"error,omitempty"`
}

// preview shows the card of a request with sample arguments, and runs it if the person
// agrees.
func (t *Tool) preview(ctx context.Context, p *prompter, asks bool) error {
	data := t.Try
	if data == "" {
		var err error
		if data, err = t.sample(); err != nil {
			return err
		}
	}
	if asks && t.Try == "" {
		if err := p.question(ctx, "\nWith which arguments does an agent call it, for example?", &data, func(s string) error {
			_, _, err := t.evaluate(s)
			return err
		}); err != nil {
			return err
		}
	}
	card, r, err := t.evaluate(data)
	if err != nil && t.Try == "" { // the sample is a guess
		fmt.Fprintf(t.Console.Err, "no card for the arguments %s: %v\nhint: --try JSON shows one, and runs the tool once\n", data, err)
		return nil
	}
	if err != nil {
		return console.Fail(console.ExitUsage, "--try takes the arguments as a JSON object", "%w", err)
	}
	t.result.Ruling = &r
	if !t.Console.JSON {
		fmt.Fprintf(t.Console.Out, "\nThe card for such a request in workspace %s:\n\n  %s\n\n%s\n", t.Workspace, strings.ReplaceAll(card, "\n", "\n  "), t.Ruling(r))
	}
	runs := t.Try != ""
	if asks && !runs && t.owns() {
		fmt.Fprintf(p.out, "\nRun it once now with these arguments, on this host as %s? [y/N] ", userName())
		line, err := p.line(ctx)
		if err != nil {
			return err
		}
		runs = strings.HasPrefix(strings.ToLower(line), "y")
	}
	if !runs {
		return nil
	}
	return t.try(ctx, approval.Raw(data))
}

// evaluate returns the card of a request, and its ruling. An error says what is wrong with the
// arguments.
func (t *Tool) evaluate(data string) (card string, r approval.Ruling, err error) {
	if _, err := codec.Fields(approval.Raw(data)); err != nil {
		return "", r, fmt.Errorf("arguments: %w", err)
	}
	request := approval.Request{RequestID: client.NewID(), ToolName: t.New.Name, RequestData: approval.Raw(data)}
	b, err := request.Encode()
	if err != nil {
		return "", r, err
	}
	draft, err := approval.ParseDraft(b)
	if err != nil {
		return "", r, err
	}
	live, err := t.settings()
	if err != nil {
		return "", r, err
	}
	settings, policy := live.Config()
	p, r := gate.Preview(settings, policy, t.Workspace, draft, time.Now(), home.NewHostFiles(t.home))
	if why := (chat.Words{}).Reasons(r.Reasons); p == nil && strings.HasPrefix(r.Reasons[0].Code, "argument_") {
		return "", r, errors.New(why)
	} else if p == nil {
		return "none: " + why, r, nil
	}
	style := chat.Style{Language: t.cfg.Workspaces[t.Workspace].Language, Zone: time.Local, Redact: home.NewRedaction(), Local: true}
	return style.Card(p).String(), r, nil
}

// settings are the configuration with the tool, and its policy with what the home remembers.
func (t *Tool) settings() (*home.Live, error) {
	_, m, err := home.ReadMemory(t.Console)
	if err != nil { // this user may edit the configuration, but not read the state
		if m, err = t.home.NewMemory(nil, zerolog.Nop()); err != nil {
			return nil, err
		}
	}
	s, err := m.Settings(t.cfg)
	if err != nil {
		return nil, err
	}
	live := &home.Live{}
	live.Set(s)
	return live, nil
}

// oneTrial permits one job.
type oneTrial struct{ workspace, id, tool, args string }

var errOtherJob = errors.New("not the job of this trial")

// Verify implements the runner's verifier.
func (o oneTrial) Verify(_, workspace, id, tool, args string) error {
	if (oneTrial{workspace, id, tool, args}) != o {
		return errOtherJob
	}
	return nil
}

// try runs the handler once, as the gate would.
func (t *Tool) try(ctx context.Context, data approval.Raw) (err error) {
	if !t.owns() {
		return console.Fail(console.ExitError, "try it with a request to the daemon", "no trial: the daemon runs as another user than %s", userName())
	}
	job := approval.Job{Workspace: t.Workspace, RequestID: client.NewID(), Tool: t.cfg.Tools[t.New.Name], Args: data}
	runner := &exec.Runner{Verifier: oneTrial{job.Workspace, job.RequestID, job.Tool.Name, approval.Digest(data)}, Log: zerolog.Nop()}
	defer func() { err = errors.Join(err, runner.Close()) }()
	effect := runner.Run(ctx, job)
	t.result.Trial = &TrialResult{effect.Result, effect.Error}
	text := "ran:    " + strings.ReplaceAll(console.OneLine(string(effect.Result)), `\\`, `\`) // JSON has its own escapes
	if effect.Error != "" {
		text = "failed: " + console.OneLine(effect.Error)
	}
	if !t.Console.JSON {
		fmt.Fprintln(t.Console.Out, text)
	}
	if effect.Error != "" && t.Try != "" {
		return console.Fail(console.ExitFailed, "nothing was written", "the trial failed")
	}
	return nil
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "this user"
}
