package ruletest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/ruletest"
)

// block is a part of the table: a configuration, and requests with what is expected.
type block struct {
	where, name string
	lines       map[string]string // by key
	rules       []string          // inline tables
	refused     bool              // the configuration has to be refused
	rows        []row
}

type row struct {
	where, want, value string
	now                time.Time
}

var (
	keyLine = regexp.MustCompile(`^(args|tool|tools|workspace|approvers|session|taints|reads|rule|allow|deny|ask|always_ask|refused): *(.*)$`)
	rowLine = regexp.MustCompile(`^(allow|deny|ask|stop)(?: +@(20\S+Z|20\S+:00))?(?: +(.*))?$`)
)

// readTable reads the files of testdata. A block begins with ##, keys end in a colon, and a
// row is an outcome and a value.
func readTable(t *testing.T, folder string) (all []*block) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	require.NoError(t, err)
	for _, name := range files {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		text := strings.ReplaceAll(string(b), "$T", folder)
		for i, line := range strings.Split(text, "\n") {
			where := fmt.Sprintf("%s:%d", name, i+1)
			if title, ok := strings.CutPrefix(line, "## "); ok {
				all = append(all, &block{where: where, name: title, lines: map[string]string{}})
			} else if line != "" && !strings.HasPrefix(line, "#") {
				require.NotEmpty(t, all, where)
				require.NoError(t, all[len(all)-1].add(where, line))
			}
		}
	}
	return all
}

func (b *block) add(where, line string) error {
	if m := keyLine.FindStringSubmatch(line); m != nil {
		switch key, value := m[1], m[2]; key {
		case "rule":
			b.rules = append(b.rules, "{ "+value+" }")
		case "allow", "deny", "ask", "always_ask":
			b.rules = append(b.rules, fmt.Sprintf(`{ outcome = %q, match = { tool = "t", args = { %s } } }`, key, value))
		case "refused":
			b.refused = true
			b.rules = append(b.rules, "{ "+value+" }")
		default:
			b.lines[key] = value
		}
		return nil
	}
	m := rowLine.FindStringSubmatch(line)
	if m == nil {
		return fmt.Errorf("%s: neither a key nor a row: %s", where, line)
	}
	r := row{where: where, want: m[1], value: m[3], now: noon}
	if m[2] != "" {
		var err error
		if r.now, err = time.Parse(time.RFC3339, m[2]); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
	}
	b.rows = append(b.rows, r)
	return nil
}

// noon is when requests come that need no other time.
var noon = time.Date(2026, 6, 3, 12, 0, 0, 0, time.UTC)

const (
	asksByItself   = "public_source = false, secret_data = false, public_sink = false, dangerous_writes = true"
	allowsByItself = "trust = false"
)

// allows reports whether a rule of the block is an allow.
func (b *block) allows() bool {
	return slices.ContainsFunc(b.rules, func(r string) bool { return strings.Contains(r, `outcome = "allow"`) })
}

// toml is the configuration: a tool that is asked about if there are allow rules, else one
// that everything allows, so that only the rules decide.
func (b *block) toml() string {
	rules := slices.Clone(b.rules)
	tool := b.lines["tool"]
	if tool == "" && b.allows() {
		tool = asksByItself
	} else if tool == "" {
		tool = allowsByItself
	}
	if !b.allows() {
		rules = append(rules, `{ outcome = "allow", match = { tool = "t" } }`)
	}
	if args := b.lines["args"]; args != "" {
		tool += ", args = { " + args + " }"
	}
	workspace := b.lines["workspace"]
	if workspace == "" {
		workspace = `autonomy = "supervised"`
	}
	return fmt.Sprintf("%s\nworkspaces = { personal = { %s } }\ntools = { t = { %s, handler = { kind = \"none\" } }%s }\nrules = [\n%s\n]\n",
		b.lines["approvers"], workspace, tool, b.lines["tools"], strings.Join(rules, ",\n"))
}

var firstName = regexp.MustCompile(`^"?([A-Za-z_.]+)"? *=`)

// first is the first argument that the block declares.
func (b *block) first() string {
	if m := firstName.FindStringSubmatch(b.lines["args"]); m != nil {
		return m[1]
	}
	return ""
}

// args is the request_data of a row: an object, a value of the first argument as JSON, or
// its text as it stands there.
func (b *block) args(value string) map[string]any {
	if value == "" {
		return map[string]any{}
	}
	kind := b.declared()[b.first()].Type
	asJSON := strings.ContainsAny(value[:1], `{["`) && json.Valid([]byte(value)) ||
		slices.Contains([]string{"number", "amount", "bool"}, kind) && json.Valid([]byte(value))
	if !asJSON {
		return map[string]any{b.first(): value}
	}
	v := decoded(value)
	if m, ok := v.(map[string]any); ok {
		return m
	}
	return map[string]any{b.first(): v}
}

func decoded(text string) (v any) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		panic(err)
	}
	return v
}

// declared are the arguments of the block's tool.
func (b *block) declared() map[string]ruletest.Argument {
	var t struct{ Args map[string]any }
	mustTOML("args = { "+b.lines["args"]+" }", &t)
	all := map[string]ruletest.Argument{}
	for name, v := range t.Args {
		switch v := v.(type) {
		case string:
			all[name] = ruletest.Argument{Type: v}
		case map[string]any:
			kind, _ := v["type"].(string)
			currency, _ := v["currency"].(string)
			all[name] = ruletest.Argument{Type: kind, Currency: currency}
		}
	}
	return all
}

func mustTOML(text string, v any) {
	if err := toml.Unmarshal([]byte(text), v); err != nil {
		panic(fmt.Sprintf("%v in %s", err, text))
	}
}

// parsedRules are the rules as the checker takes them.
func (b *block) parsedRules() (all []ruletest.Rule) {
	var t struct {
		Rules []struct {
			Outcome string
			Match   map[string]any
		}
	}
	mustTOML("rules = [\n"+strings.Join(b.rules, ",\n")+"\n]", &t)
	for _, r := range t.Rules {
		all = append(all, ruletest.Rule{Outcome: r.Outcome, Match: r.Match})
	}
	return all
}

// isPlain reports a block that needs nothing but match, so that the checker knows it all.
func (b *block) isPlain() bool {
	rules := strings.Join(b.rules, "")
	return b.lines["tool"]+b.lines["tools"]+b.lines["workspace"]+b.lines["taints"] == "" &&
		!regexp.MustCompile(`despite|trust|proven|approver|client`).MatchString(rules)
}

// TestRuleTable compares each row with the engine, and with what the document says. What is
// denied is never allowed in any other spelling.
func TestRuleTable(t *testing.T) {
	folder := links(t)
	rows, other := 0, 0
	for _, b := range readTable(t, folder) {
		g, err := newRig(b.toml(), scanner)
		if b.refused {
			rows++
		}
		if b.refused != (err != nil) {
			t.Errorf("%s: %s: configuration: %v", b.where, b.name, err)
			continue
		}
		for _, r := range b.rows {
			rows++
			all := b.check(t, g, r)
			if len(all) == 0 {
				all = b.respelled(t, g, r, &other)
			}
			for i, why := range all {
				if i == 5 {
					t.Errorf("%s: and %d more", r.where, len(all)-i)
					break
				}
				t.Errorf("%s: %s: %s", r.where, b.name, why)
			}
		}
	}
	t.Logf("%d rows, %d other spellings", rows, other)
	require.GreaterOrEqual(t, rows, 250)
}

// check says how a row differs from the engine and from the checker.
func (b *block) check(t *testing.T, g *rig, r row) (all []string) {
	q := b.request(r)
	got := g.send(t, q)
	if !r.fits(got.outcome) {
		all = append(all, fmt.Sprintf("%s by %q, not %s: %s", got.outcome, got.ruling.Rule, r.want, q.requestData()))
	}
	if got.outcome == "ask" && got.ruling.Soft && !b.allows() && !b.onlyAsks() {
		all = append(all, "a grant could lift the ask: "+q.requestData())
	}
	if reads, ok := b.lines["reads"]; ok && r.want == "allow" {
		if got := slices.Sorted(slices.Values(got.ruling.Taints)); strings.Join(got, " ") != reads {
			all = append(all, fmt.Sprintf("it reads %v, not %s", got, reads))
		}
	}
	if seen := b.expected(q); b.isPlain() && !slices.ContainsFunc(seen, r.fits) {
		all = append(all, fmt.Sprintf("%v for the checker, not %s: %s", seen, r.want, q.requestData()))
	}
	return all
}

// respelled says in which other spellings a request is allowed that a deny or ask matches.
func (b *block) respelled(t *testing.T, g *rig, r row, n *int) (allowed []string) {
	if r.want == "allow" || r.want == "stop" || r.want == "ask" && !b.onlyAsks() {
		return nil
	}
	q := b.request(r)
	all := b.spellings(q)
	if r.want == "deny" && len(all) < 10 {
		allowed = append(allowed, fmt.Sprintf("only %d spellings", len(all)))
	}
	for _, other := range all {
		*n++
		if g.send(t, other).outcome == "allow" && !b.isOtherFile(q, other) {
			allowed = append(allowed, "allowed: "+other.requestData()+", not: "+q.requestData())
		}
	}
	return allowed
}

// onlyAsks reports a block whose rules ask.
func (b *block) onlyAsks() bool {
	return !slices.ContainsFunc(b.rules, func(r string) bool { return !strings.Contains(r, `ask"`) })
}

// fits reports an outcome that a row expects. To stop is to deny or to ask.
func (r row) fits(outcome string) bool {
	return outcome == r.want || r.want == "stop" && outcome != "allow"
}

// isOtherFile reports a path whose letters differ in case, where links are not the same.
func (b *block) isOtherFile(q, other request) bool {
	return b.declared()[b.first()].Type == "path" && strings.EqualFold(q.requestData(), strings.NewReplacer("[", "", "]", "").Replace(other.requestData())) &&
		slices.Contains(b.expected(other), "allow")
}

// expected are the outcomes that the document allows.
func (b *block) expected(q request) []string {
	return expected(b.parsedRules(), !b.allows(), q.seen(b.declared()))
}

// expected are the outcomes that the document allows for a request, if only the rules decide:
// without one it is allowed or asked about.
func expected(rules []ruletest.Rule, allowed bool, q ruletest.Request) []string {
	deny, ask, allow := ruletest.No, ruletest.No, ruletest.No
	if allowed {
		allow = ruletest.Yes
	}
	for _, r := range rules {
		switch a := r.Applies(q); r.Outcome {
		case "deny":
			deny = ruletest.Strictest(deny, a)
		case "allow":
			allow = ruletest.Strictest(allow, a)
		default:
			ask = ruletest.Strictest(ask, a)
		}
	}
	return outcomes(deny, ask, allow)
}

// outcomes are those that follow from what applies.
func outcomes(deny, ask, allow ruletest.Answer) (all []string) {
	if deny.Has(ruletest.Yes) {
		all = append(all, "deny")
	}
	if deny.Has(ruletest.Unknown) || deny.Has(ruletest.No) && (ask != ruletest.No || allow.Has(ruletest.No)) {
		all = append(all, "ask")
	}
	if deny.Has(ruletest.No) && ask.Has(ruletest.No) && allow.Has(ruletest.Yes) {
		all = append(all, "allow")
	}
	return all
}

// request is a request for the tool t.
type request struct {
	args          map[string]any
	data          string // request_data in another spelling; "": args
	tool, session string
	prose         bool
	taints        []string
	now           time.Time
}

func (b *block) request(r row) request {
	session := b.lines["session"]
	if session == "" {
		session = "s1"
	}
	return request{args: b.args(r.value), tool: "t", session: session, now: r.now, taints: strings.Fields(b.lines["taints"])}
}

func (q request) requestData() string {
	if q.data != "" {
		return q.data
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(q.args); err != nil {
		panic(err)
	}
	return strings.TrimSpace(b.String())
}

func (q request) json() string {
	more := ""
	if q.prose {
		more = `,"title":"a","preview":"b","rationale":"c"`
	}
	return fmt.Sprintf(`{"tool_name":%q,"session_id":%q%s,"request_data":%s}`, q.tool, q.session, more, q.requestData())
}

// seen is the request as the checker takes it.
func (q request) seen(declared map[string]ruletest.Argument) ruletest.Request {
	return ruletest.Request{
		Tool: q.tool, Workspace: "personal", Session: q.session, Client: "ws:personal",
		Declared: declared, Args: q.args, Now: q.now.In(time.Local),
	}
}

// with is the request with another value of an argument.
func (q request) with(name string, value any) request {
	q.args = maps.Clone(q.args)
	q.args[name] = value
	return q
}

func (q request) without(name string) request {
	q.args = maps.Clone(q.args)
	delete(q.args, name)
	return q
}
