package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// testCase is one case of a policy test.
type testCase struct {
	Name      string         `json:"name"`
	Workspace string         `json:"workspace"`
	Taints    []string       `json:"taints"` // taints of its client
	Request   jsontext.Value `json:"request"`
	Expect    string         `json:"expect"` // allow, ask or deny
	Rule      string         `json:"rule"`   // "": any rule
}

func (a *app) policyTestCmd() *cobra.Command {
	return &cobra.Command{
		Use: "test FILE", Short: "Test the policy with requests and expected outcomes", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, pos []string) error { return a.policyTest(pos[0]) },
	}
}

// testResult is one result of policy test --json.
type testResult struct {
	Name    string            `json:"name"`
	OK      bool              `json:"ok"`
	Expect  string            `json:"expect"`
	Got     string            `json:"got"`
	Rule    string            `json:"rule"`
	Reasons []approval.Reason `json:"reasons"`
}

func (a *app) policyTest(file string) error {
	h, err := home.Load(a.Console)
	if err != nil {
		return err
	}
	b, err := a.ReadFile(file)
	if err != nil {
		return err
	}
	all, err := readCases(b)
	if err != nil {
		return console.Fail(console.ExitError, "permesso policy test --help shows the format", "%s: %w", file, err)
	}
	failed := 0
	for _, c := range all {
		o, err := runCase(h, c)
		if err != nil {
			return console.Fail(console.ExitError, "", "%s: case %q: %w", file, c.Name, err)
		}
		if !o.OK {
			failed++
		}
		a.printOutcome(o)
	}
	if failed > 0 {
		return console.Fail(console.ExitError, "permesso policy explain REQUEST.json shows the reasons", "%d of %d cases differ", failed, len(all))
	}
	if !a.JSON {
		fmt.Fprintf(a.Out, "%d cases, all as expected\n", len(all))
	}
	return nil
}

func readCases(b []byte) ([]testCase, error) {
	d := jsontext.NewDecoder(bytes.NewReader(b))
	var all []testCase
	for {
		var c testCase
		v, err := d.ReadValue()
		if err != nil {
			if len(bytes.TrimSpace(b[d.InputOffset():])) > 0 {
				return nil, errors.New("not a sequence of JSON objects")
			}
			break
		}
		if err := json.Unmarshal(v, &c, json.RejectUnknownMembers(true)); err != nil {
			return nil, fmt.Errorf("case %d: %w", len(all)+1, err)
		}
		c.Name = cmp.Or(c.Name, fmt.Sprint("case ", len(all)+1))
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, errors.New("no test case in the file")
	}
	return all, nil
}

func runCase(h *home.Home, c testCase) (testResult, error) {
	var want approval.Outcome
	if err := want.UnmarshalText([]byte(c.Expect)); err != nil {
		return testResult{}, fmt.Errorf("expect: %w", err)
	}
	ws, err := control.ChooseWorkspace(h, c.Workspace)
	if err != nil {
		return testResult{}, err
	}
	f, err := factsOf(h, ws, c.Request)
	if err != nil {
		return testResult{}, err
	}
	m, err := h.NewMemory(nil, zerolog.Nop())
	if err != nil {
		return testResult{}, err
	}
	m.Learn(event.Entry{Event: event.AutoApproved, Workspace: ws, SessionID: f.SessionID, Time: f.Now, Taints: c.Taints})
	r := m.Judge(f)
	return testResult{
		Name: c.Name, OK: r.Outcome == want && (c.Rule == "" || c.Rule == r.Rule),
		Expect: want.String(), Got: r.Outcome.String(), Rule: r.Rule, Reasons: r.Reasons,
	}, nil
}

func (a *app) printOutcome(o testResult) {
	if a.JSON {
		_ = a.Print(o, "")
		return
	}
	if o.OK {
		fmt.Fprintf(a.Out, "ok    %s\n", chat.Escape(o.Name))
		return
	}
	fmt.Fprintf(a.Out, "DIFF  %s: expected %s, got %s by %s\n", chat.Escape(o.Name), o.Expect, o.Got, chat.Escape(o.Rule))
	for _, r := range reasonTexts(o.Reasons) {
		fmt.Fprintf(a.Out, "      %s\n", r)
	}
}

func (a *app) policySimulateCmd() *cobra.Command {
	var n int
	c := &cobra.Command{
		Use: "simulate", Short: "Evaluate recent requests with the current policy", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.simulate(cmd.Context(), n) },
	}
	c.Flags().IntVarP(&n, "last", "n", 100, "evaluate the last `N` records")
	return c
}

// simulated is one difference.
type simulated struct {
	RequestID string            `json:"request_id"`
	Workspace string            `json:"workspace"`
	Tool      string            `json:"tool_name"`
	Then      approval.Outcome  `json:"then"`
	Now       approval.Outcome  `json:"now"`
	Rule      string            `json:"rule"`
	Reasons   []approval.Reason `json:"reasons"`
}

func (a *app) simulate(ctx context.Context, n int) error {
	h, m, err := home.ReadMemory(a.Console)
	if err != nil {
		return err
	}
	if m.Keys == nil {
		return console.Fail(console.ExitError, "run permesso serve and submit requests", "no records in %s: no daemon has run there", h.Layout.Home)
	}
	v := h.Viewer(m.Keys)
	found, _, logErr := v.Requests(read.Query{Limit: n, Match: (*read.Request).Ended})
	judged, differ := 0, 0
	for _, x := range found {
		k := x.Key
		r, then, err := v.RequestAndRuling(ctx, k)
		if err != nil || r == nil || then == nil || then.Rule == "gate" {
			continue // malformed, or refused before the policy was evaluated
		}
		judged++
		f := gate.FactsOf(home.SettingsOf(h.Config), k.Workspace, r, time.Now())
		now := m.Judge(f)
		if now.Outcome == then.Outcome {
			continue
		}
		differ++
		x := simulated{k.ID, k.Workspace, r.ToolName, then.Outcome, now.Outcome, now.Rule, now.Reasons}
		if err := a.Print(x, fmt.Sprintf("%s %s %s: %s then, %s now by %s\n      %s", approval.ShortID(k.ID), k.Workspace,
			chat.Escape(f.Tool), then.Outcome, now.Outcome, chat.Escape(now.Rule), strings.Join(reasonTexts(now.Reasons), "; "))); err != nil {
			return err
		}
	}
	if !a.JSON {
		fmt.Fprintf(a.Out, "%d of %d requests would be ruled differently\n", differ, judged)
	}
	return console.VerifyFirst(logErr)
}
