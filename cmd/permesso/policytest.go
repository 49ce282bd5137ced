package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/chat"
)

// testCase is one line of a policy test: a request, and what is expected of it.
type testCase struct {
	Name      string         `json:"name"`
	Workspace string         `json:"workspace"`
	Taints    []string       `json:"taints"` // what its client has read before
	Request   jsontext.Value `json:"request"`
	Expect    string         `json:"expect"` // allow, ask or deny
	Rule      string         `json:"rule"`   // "": whichever
}

func (a *app) policyTestCmd() *cobra.Command {
	return &cobra.Command{
		Use: "test FILE", Short: "Judge requests and compare with what is expected; exit 1 on a difference", Args: cobra.ExactArgs(1),
		Long: "Judge requests and compare with what is expected. FILE (- is standard input) holds JSON objects, one after the other:\n" +
			`  {"name":"posting asks", "workspace":"personal", "request":{"tool_name":"x_post","request_data":{"text":"hi"}},` + "\n" +
			`   "taints":["corruption"], "expect":"ask", "rule":"table"}` + "\n" +
			"workspace, taints and rule may be left out. Grants and what the log remembers play no part: the configuration is tested.",
		RunE: func(_ *cobra.Command, pos []string) error { return a.policyTest(pos[0]) },
	}
}

// outcomeOf is one result of policy test --json.
type outcomeOf struct {
	Name    string            `json:"name"`
	OK      bool              `json:"ok"`
	Expect  string            `json:"expect"`
	Got     string            `json:"got"`
	Rule    string            `json:"rule"`
	Reasons []approval.Reason `json:"reasons"`
}

func (a *app) policyTest(file string) error {
	h, err := a.house()
	if err != nil {
		return err
	}
	b, err := a.readFile(file)
	if err != nil {
		return err
	}
	all, err := readCases(b)
	if err != nil {
		return fail(codeError, "permesso policy test --help shows the form", "%s: %w", file, err)
	}
	failed := 0
	for _, c := range all {
		o, err := h.try(c)
		if err != nil {
			return fail(codeError, "", "%s: case %q: %w", file, c.Name, err)
		}
		if !o.OK {
			failed++
		}
		a.printOutcome(o)
	}
	if failed > 0 {
		return fail(codeError, "permesso policy explain REQUEST.json says why", "%d of %d cases differ", failed, len(all))
	}
	if !a.json {
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
				return nil, errors.New("not JSON objects, one after the other")
			}
			break
		}
		if err := json.Unmarshal(v, &c, json.RejectUnknownMembers(true)); err != nil {
			return nil, fmt.Errorf("case %d: %w", len(all)+1, err)
		}
		if c.Name == "" {
			c.Name = fmt.Sprint("case ", len(all)+1)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, errors.New("it holds no case")
	}
	return all, nil
}

func (h *house) try(c testCase) (outcomeOf, error) {
	var want approval.Outcome
	if err := want.UnmarshalText([]byte(c.Expect)); err != nil {
		return outcomeOf{}, fmt.Errorf("expect: %w", err)
	}
	ws := c.Workspace
	if ws == "" {
		ws = firstWorkspace(h.cfg)
	}
	if _, ok := h.cfg.Workspaces[ws]; !ok {
		return outcomeOf{}, fmt.Errorf("no workspace '%s' in the configuration", ws)
	}
	f, err := h.factsOf(ws, c.Request)
	if err != nil {
		return outcomeOf{}, err
	}
	m, err := h.emptyMemory()
	if err != nil {
		return outcomeOf{}, err
	}
	m.Learn(approval.Entry{Event: approval.EventAutoApproved, Workspace: ws, SessionID: f.SessionID, Time: f.Now, Taints: c.Taints})
	r := m.Judge(f)
	return outcomeOf{
		Name: c.Name, OK: r.Outcome == want && (c.Rule == "" || c.Rule == r.Rule),
		Expect: want.String(), Got: r.Outcome.String(), Rule: r.Rule, Reasons: r.Reasons,
	}, nil
}

func (a *app) printOutcome(o outcomeOf) {
	if a.json {
		_ = a.print(o, "")
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
		Use: "simulate", Short: "Say what today's policy would have made of the last requests", Args: cobra.NoArgs,
		Long: "Say what today's policy would have made of the last requests: one line for each that it would rule otherwise.\n\n" +
			"What the log remembers of the time before each request plays no part: the configuration, today's grants and\n" +
			"today's taints are tried on the requests that records keep.",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return a.simulate(cmd.Context(), n) },
	}
	c.Flags().IntVarP(&n, "last", "n", 100, "the last `N` records")
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
	h, m, err := a.memory()
	if err != nil {
		return err
	}
	if m.keys == nil {
		return fail(codeError, "permesso serve, and let something be asked", "no gate lives in %s: there are no records", h.layout.Home)
	}
	keys, err := h.lastRecords(n)
	if err != nil {
		return err
	}
	v := h.viewer(m.keys)
	judged, differ := 0, 0
	for _, k := range keys {
		r, then, err := h.requestOf(ctx, v, k)
		if err != nil || r == nil || then == nil || then.Rule == "gate" {
			continue // malformed, or refused before policy was asked
		}
		judged++
		f := gate.FactsOf(settingsOf(h.cfg), k.Workspace, r, time.Now())
		now := m.Judge(f)
		if now.Outcome == then.Outcome {
			continue
		}
		differ++
		x := simulated{k.ID, k.Workspace, r.ToolName, then.Outcome, now.Outcome, now.Rule, now.Reasons}
		if err := a.print(x, fmt.Sprintf("%s %s %s: %s then, %s now by %s\n      %s", approval.ShortID(k.ID), k.Workspace,
			chat.Escape(f.Tool), then.Outcome, now.Outcome, chat.Escape(now.Rule), strings.Join(reasonTexts(now.Reasons), "; "))); err != nil {
			return err
		}
	}
	if !a.json {
		fmt.Fprintf(a.Out, "%d of %d requests would be ruled otherwise\n", differ, judged)
	}
	return nil
}

// lastRecords are the keys of the n newest records, newest first.
func (h *house) lastRecords(n int) ([]approval.Key, error) {
	type aged struct {
		key approval.Key
		at  time.Time
	}
	var all []aged
	names, err := h.store.Workspaces()
	if err != nil {
		return nil, err
	}
	for _, ws := range names {
		ids, _, err := h.store.List(approval.DocRecord, ws)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if info, err := h.fs.Stat(filepath.Join(h.layout.Records(ws), id+".json")); err == nil {
				all = append(all, aged{approval.Key{Workspace: ws, ID: id}, info.ModTime()})
			}
		}
	}
	slices.SortFunc(all, func(a, b aged) int { return b.at.Compare(a.at) })
	var keys []approval.Key
	for _, r := range all[:min(n, len(all))] {
		keys = append(keys, r.key)
	}
	return keys, nil
}
