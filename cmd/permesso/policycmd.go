package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/approval/grant"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/control"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/security/policy"
)

func (a *app) policyCmd() *cobra.Command {
	return console.Group(&cobra.Command{Use: "policy", Short: "Show, explain and test the policy"},
		a.policyRegistryCmd(), a.policyTableCmd(), a.policyCheckCmd(),
		a.policyExplainCmd(), a.policyTestCmd(), a.policySimulateCmd(), a.policyPresetCmd())
}

// registered is an item of policy registry --json.
type registered struct {
	Capability string        `json:"capability"`
	Sentence   string        `json:"sentence"`
	Critical   bool          `json:"critical"`
	Default    facts.AskMode `json:"default_approval"`
	TargetKind string        `json:"target_kind"`
	Trust      []string      `json:"trust"`
}

func (a *app) policyRegistryCmd() *cobra.Command {
	return &cobra.Command{
		Use: "registry", Short: "List the 13 capabilities", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all := registry()
			return a.Print(all, strings.TrimSuffix(registryText(all), "\n"))
		},
	}
}

func registry() (all []registered) {
	for _, c := range facts.Capabilities() {
		trust := append([]string{}, policy.Implied(c.Name)...)
		all = append(all, registered{c.Name, c.Sentence, c.Critical, c.Default, c.TargetKind, trust})
	}
	return all
}

// registryText has the sentence of each capability, and below it what the policy knows.
func registryText(all []registered) string {
	var b strings.Builder
	for _, r := range all {
		fmt.Fprintf(&b, "%-15s%s\n", r.Capability, r.Sentence)
		indent := strings.Repeat(" ", 15)
		fmt.Fprintf(&b, "%sdefault: %s; target: %s; critical: %s\n", indent, r.Default, r.TargetKind, yesNo(r.Critical))
		if len(r.Trust) > 0 {
			fmt.Fprintf(&b, "%strust: %s\n", indent, strings.Join(r.Trust, " "))
		}
	}
	return b.String()
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// tableRow is one row of the table, and an item of policy table --json.
type tableRow struct {
	Level string   `json:"level"`
	Allow []string `json:"allow"`
	Ask   []string `json:"ask"`
	Deny  []string `json:"deny"`
}

func (a *app) policyTableCmd() *cobra.Command {
	return &cobra.Command{
		Use: "table", Short: "Show what each autonomy level allows, asks and denies", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			rows := tableRows()
			return a.Print(rows, strings.TrimSuffix(tableText(rows), "\n"))
		},
	}
}

func tableRows() (rows []tableRow) {
	for _, level := range grant.Levels() {
		r := tableRow{level, []string{}, []string{}, []string{}}
		for _, c := range facts.Capabilities() {
			switch policy.Table(level, c.Name) {
			case approval.Allow:
				r.Allow = append(r.Allow, c.Name)
			case approval.Ask:
				r.Ask = append(r.Ask, c.Name)
			case approval.Deny:
				r.Deny = append(r.Deny, c.Name)
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// tableText has a row for each level, with a line for each outcome that occurs.
func tableText(rows []tableRow) string {
	var b strings.Builder
	for _, r := range rows {
		head := r.Level
		for _, x := range []struct {
			outcome approval.Outcome
			names   []string
		}{{approval.Allow, r.Allow}, {approval.Ask, r.Ask}, {approval.Deny, r.Deny}} {
			if len(x.names) > 0 {
				fmt.Fprintf(&b, "%-12s%-7s%s\n", head, x.outcome, strings.Join(x.names, " "))
				head = ""
			}
		}
	}
	return b.String()
}

// checkResult is what policy check --json prints.
type checkResult struct {
	Outcome    approval.Outcome  `json:"outcome"`
	Level      string            `json:"level"`
	Capability string            `json:"capability"`
	Rule       string            `json:"rule"`
	Reasons    []approval.Reason `json:"reasons"`
	Change     []approval.Reason `json:"change"`
}

func (a *app) policyCheckCmd() *cobra.Command {
	return &cobra.Command{
		Use: "check LEVEL CAPABILITY", Short: "Evaluate the table for a capability", Args: cobra.ExactArgs(2),
		ValidArgsFunction: completeLevelAndCapability,
		RunE: func(_ *cobra.Command, pos []string) error {
			level := strings.ToLower(pos[0])
			if !slices.Contains(grant.Levels(), level) {
				return console.Fail(console.ExitUsage, "use readonly, supervised or full", "%q is not an autonomy level", pos[0])
			}
			c, ok := facts.CapabilityNamed(pos[1])
			if !ok {
				return console.Fail(console.ExitUsage, "permesso policy registry lists the capabilities", "%q is not a capability", pos[1])
			}
			e := &policy.Engine{}
			r := e.Judge(approval.Facts{
				Autonomy: level, Tool: "check", KnownTool: true, Capability: c.Name, Now: time.Now(),
				Trust: approval.Trust{PublicSource: "false", SecretData: "false", PublicSink: "false", DangerousWrites: "false"},
			})
			return a.Print(checkResult{r.Outcome, level, c.Name, r.Rule, r.Reasons, r.Change}, r.Outcome.String())
		},
	}
}

func (a *app) policyExplainCmd() *cobra.Command {
	var workspace string
	c := &cobra.Command{
		Use: "explain REQUEST.json|ID", Short: "Explain the ruling on a request", Args: cobra.ExactArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		RunE:              func(cmd *cobra.Command, pos []string) error { return a.explain(cmd.Context(), pos[0], workspace) },
	}
	c.Flags().StringVar(&workspace, "workspace", "", "evaluate a request file in this `workspace` (default: the only one)")
	return c
}

// explanation is what policy explain --json prints.
type explanation struct {
	Workspace string           `json:"workspace"`
	Tool      string           `json:"tool_name"`
	Then      *approval.Ruling `json:"then,omitempty"` // the original ruling of a known request
	Now       *approval.Ruling `json:"now"`            // null: the request was refused at once, and is not kept
	Autonomy  string           `json:"autonomy"`
	Changes   []control.Change `json:"changes"` // after each of them the ruling is milder
}

func (a *app) explain(ctx context.Context, what, workspace string) error {
	h, m, err := home.ReadMemory(a.Console)
	if err != nil {
		return err
	}
	if workspace != "" {
		if err := console.CheckWorkspace(workspace, home.WorkspaceNames(h.Config)); err != nil {
			return err
		}
	}
	if b, err := a.ReadFile(what); err == nil {
		ws, err := control.ChooseWorkspace(h, workspace)
		if err != nil {
			return err
		}
		f, now, err := judgeFile(h, ws, b, m.Judge, home.NewHostFiles(h))
		if err != nil {
			return err
		}
		name := filepath.Base(what)
		return a.printExplained(explanation{ws, f.Tool, nil, &now, f.Autonomy, control.Changes(h, m, f, now, name)})
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return a.explainKnown(ctx, h, m, what)
}

// judgeFile returns the facts of a request, and its ruling if it came now. A nil host: see
// gate.Judge.
func judgeFile(
	h *home.Home, ws string, b []byte, judge func(approval.Facts) approval.Ruling, host gate.Host,
) (f approval.Facts, now approval.Ruling, err error) {
	r, err := approval.ParseDraft(b)
	if err != nil {
		return f, now, console.Fail(console.ExitError, "ipc/FORMAT.md describes a request", "%w", err)
	}
	f, now = gate.Judge(home.SettingsOf(h.Config), ws, r, time.Now(), judge, host)
	return f, now, nil
}

func (a *app) explainKnown(ctx context.Context, h *home.Home, m *home.Memory, typed string) error {
	if _, id := splitID(typed); m.Keys == nil || strings.Trim(id, "0123456789abcdef-") != "" {
		return console.Fail(console.ExitError, "give a request file, or an id after permesso serve has run", "%s: no such file", typed)
	}
	v := h.Viewer(m.Keys)
	k, err := find(ctx, func(ctx context.Context, ws, prefix string) ([]approval.Key, error) {
		if ws == "" {
			return v.Find(ctx, nil, prefix)
		}
		return v.Find(ctx, []string{ws}, prefix)
	}, typed)
	if err != nil {
		return err
	}
	r, then, err := v.RequestAndRuling(ctx, k)
	if err != nil {
		return err
	}
	if rec, err := v.Record(ctx, k); err == nil && rec != nil && rec.Outline != nil && then != nil {
		ws, _ := home.SettingsOf(h.Config).Workspace(k.Workspace)
		return a.printExplained(explanation{k.Workspace, rec.Outline.ToolName, then, nil, ws.Autonomy, []control.Change{}})
	}
	if r == nil {
		return console.Fail(console.ExitError, "permesso show "+k.ID, "no request of %s is stored that could be evaluated", k)
	}
	f, now := gate.Judge(home.SettingsOf(h.Config), k.Workspace, r, time.Now(), m.Judge, home.NewHostFiles(h))
	changes := control.Changes(h, m, f, now, approval.ShortID(k.ID))
	return a.printExplained(explanation{k.Workspace, f.Tool, then, &now, f.Autonomy, changes})
}

func (a *app) printExplained(x explanation) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s in %s (%s)", chat.Escape(cmp.Or(x.Tool, "release-only")), x.Workspace, x.Autonomy)
	switch {
	case x.Now == nil:
		b.WriteString("\nthen: " + rulingText(*x.Then))
		b.WriteString("\nnow:  not judged: a request that was refused at once is not kept; policy explain FILE judges it anew")
		return a.Print(x, b.String())
	case x.Then != nil:
		b.WriteString("\nthen: " + rulingText(*x.Then))
		b.WriteString("\nnow:  " + rulingText(*x.Now))
	default:
		b.WriteString("\n" + rulingText(*x.Now))
	}
	x.Now.Change = nil // these were not tried
	for _, c := range x.Changes {
		b.WriteString("\n" + changeText(c))
	}
	if len(x.Changes) == 0 && x.Now.Outcome != approval.Allow && x.Now.Rule != gate.NotEvaluated {
		b.WriteString("\nno single change of autonomy, rules, grants or taints allows it")
	}
	return a.Print(x, b.String())
}

// changeText says what a change leads to. A rule has several lines.
func changeText(c control.Change) string {
	would := "would be asked with "
	if c.Outcome == approval.Allow {
		would = "would be allowed with "
	}
	switch c.What {
	case "rule":
		return would + "this rule:\n      " + strings.ReplaceAll(c.How, "\n", "\n      ")
	case "grant", "taints":
		return strings.Replace(would, "with", "after", 1) + c.How
	}
	return would + chat.Escape(c.How)
}

// reasonTexts are reasons as the commands print them, escaped.
func reasonTexts(reasons []approval.Reason) []string {
	return chat.Style{}.Reasons(&approval.Pending{}, reasons)
}

// ruledBy names a rule. No one is asked about what the gate refuses without policy.
func ruledBy(rule string) string {
	if rule == gate.NotEvaluated {
		return rule + ", refused at once"
	}
	return chat.Escape(rule)
}

func rulingText(r approval.Ruling) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s by %s", r.Outcome, ruledBy(r.Rule))
	for _, s := range reasonTexts(r.Reasons) {
		b.WriteString("\n      " + s)
	}
	return b.String()
}

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

// testResult is an item of policy test --json.
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
	results := make([]testResult, 0, len(all))
	for _, c := range all {
		o, err := runCase(h, c)
		if err != nil {
			return console.Fail(console.ExitError, "", "%s: case %q: %w", file, c.Name, err)
		}
		if !o.OK {
			failed++
		}
		results = append(results, o)
	}
	if err := printList(a, results, resultText); err != nil {
		return err
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
	m, err := h.NewMemory(nil, zerolog.Nop())
	if err != nil {
		return testResult{}, err
	}
	_, r, err := judgeFile(h, ws, c.Request, func(f approval.Facts) approval.Ruling {
		m.Learn(event.Entry{Event: event.AutoApproved, Workspace: ws, SessionID: f.SessionID, Time: f.Now, Taints: c.Taints})
		return m.Judge(f)
	}, nil) // the programs may be on another host
	if err != nil {
		return testResult{}, err
	}
	return testResult{
		Name: c.Name, OK: r.Outcome == want && (c.Rule == "" || c.Rule == r.Rule),
		Expect: want.String(), Got: r.Outcome.String(), Rule: r.Rule, Reasons: r.Reasons,
	}, nil
}

func resultText(o testResult) string {
	if o.OK {
		return "ok    " + chat.Escape(o.Name)
	}
	text := fmt.Sprintf("DIFF  %s: expected %s, got %s by %s", chat.Escape(o.Name), o.Expect, o.Got, ruledBy(o.Rule))
	for _, r := range reasonTexts(o.Reasons) {
		text += "\n      " + r
	}
	return text
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

// simulated is one difference, an item of policy simulate --json.
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
	judged, refused, differ := 0, 0, []simulated{}
	for _, x := range found {
		k := x.Key
		f, then, now := control.Rejudge(ctx, v, home.SettingsOf(h.Config), k, m.Judge)
		if then == nil { // malformed, or refused at once: the request is not kept
			refused++
			continue
		}
		judged++
		if now.Outcome == then.Outcome {
			continue
		}
		differ = append(differ, simulated{k.ID, k.Workspace, f.Tool, then.Outcome, now.Outcome, now.Rule, now.Reasons})
	}
	err = printList(a, differ, func(x simulated) string {
		return fmt.Sprintf("%s %s %s: %s then, %s now by %s\n      %s", approval.ShortID(x.RequestID), x.Workspace,
			chat.Escape(x.Tool), x.Then, x.Now, ruledBy(x.Rule), strings.Join(reasonTexts(x.Reasons), "; "))
	})
	if !a.JSON {
		a.Say("%d of %d requests would be ruled differently", len(differ), judged)
		if refused > 0 {
			a.Say("%s not judged: a request that was refused at once is not kept", hints.Plural(refused, "request"))
		}
	}
	return cmp.Or(err, console.VerifyFirst(logErr))
}
