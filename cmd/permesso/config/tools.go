package config

import (
	"cmp"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval/codec"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/facts"
)

var envPattern = pattern(`^[A-Za-z_][A-Za-z0-9_]*$`)

const argvHint = `a list with the program's absolute path first: argv = ["/usr/bin/env", "true"]`

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func validEnv(name string) bool { return envPattern().MatchString(name) }

func validArgument(v string) bool {
	return v != "" && len(v) <= 200 && strconv.Quote(v) == `"`+v+`"`
}

func absoluteDir(v string) bool { return filepath.IsAbs(v) && !strings.ContainsAny(v, "\x00{}") }

func (s *section) tools() {
	s.toolAt = map[string]*section{}
	s.each("tools", func(name string, sub *section) { sub.tool(name, sub.handler()) })
	s.serverTools()
	for _, name := range sortedKeys(s.cfg.Tools) {
		undo, at := s.cfg.Tools[name].Undo, s.toolAt[name]
		if _, known := s.cfg.Tools[undo]; undo != "" && !known {
			at.fail(at.position("undo"), "undo", didYouMean(undo, sortedKeys(s.cfg.Tools), ""), "there is no tool %s", quote(undo))
		}
	}
}

// tool adds a tool to the configuration.
func (s *section) tool(name string, h approval.Handler) {
	if !approval.ValidToolName(name) {
		s.fail(s.node.key, "", "", "tool %s: a name is 1 to 64 of A-Z a-z 0-9 _ . : and -", quote(name))
	}
	tool := approval.Tool{
		Name: name, Capability: s.text("capability"), ActionType: s.text("action_type"), Verb: s.verb(),
		Summary: s.text("summary"), Target: s.text("target"),
		Reversibility: approval.Reversibility(s.text("reversibility")), Territory: s.text("territory"),
		Trust: s.trust(), Secrets: strings.TrimPrefix(s.text("secrets"), "ask"), Args: s.args(), Size: s.text("size"), Handler: h,
	}
	if h.Kind == approval.HandlerHTTP {
		tool.Target = cmp.Or(tool.Target, hostOf(h.HTTP.URL))
	}
	s.cost(&tool)
	s.checkArgs(tool)
	s.checkTrust(tool)
	if _, ok := s.row("reads"); ok { // of a tool that the host runs
		tool.Reads, tool.Undo = s.flag("reads"), s.text("undo")
		s.checkReads(tool)
	}
	s.cfg.Tools[name], s.toolAt[name] = tool, s
}

const readsHint = "remove reads = true"

// checkReads refuses a read that may write, for it runs before a person sees the program, and an inverse that is none.
func (s *section) checkReads(t approval.Tool) {
	writes := []string{"fs:write", "mail:send", "code:exec", "channel:out"}
	runs := []string{approval.HandlerCommand, approval.HandlerHTTP, approval.HandlerMCP}
	switch at := s.position("reads"); {
	case !t.Reads:
	case !slices.Contains(runs, t.Handler.Kind):
		s.fail(at, "reads", readsHint, "reads belongs to a tool that the host runs: its handler is command, http or mcp")
	case slices.Contains(writes, t.Capability):
		s.fail(at, "reads", readsHint, "a tool with capability %s writes, so it cannot be a read", t.Capability)
	case t.Trust.DangerousWrites == "true":
		s.fail(at, "reads", readsHint, "a tool with dangerous_writes = true cannot be a read")
	}
	switch at := s.position("undo"); {
	case t.Undo == "":
	case t.Reads:
		s.fail(at, "undo", "remove one of them", "a tool that only reads has nothing to undo")
	case t.Undo == t.Name:
		s.fail(at, "undo", "name another tool, or remove it", "tool %s cannot undo itself", quote(t.Name))
	}
}

const costHint = `a number in units of your own, such as 5 or "0.25", or the name of an amount argument: cost = "amount"`

// cost reads a number, or the name of the argument that is the cost. A budget cannot add
// several currencies.
func (s *section) cost(t *approval.Tool) {
	text := s.text("cost")
	if c, ok := codec.ParseCost(text); ok || text == "" {
		t.Cost = c
		if text == "" {
			t.Cost = 0
		}
		return
	}
	a, declared := t.Args[text]
	switch at := s.position("cost"); {
	case !declared || a.Type != facts.TypeAmount:
		s.fail(at, "cost", costHint, "cost must be a number, or an argument of type amount")
	case a.Optional:
		s.fail(at, "cost", "remove optional = true of "+text, "cost is the amount of an argument that may be absent")
	case a.Currency != "" && !facts.IsCurrency(a.Currency):
		s.fail(at, "cost", `state the currency: { type = "amount", currency = "EUR" }`, "a budget cannot add different currencies: the currency of %s is chosen by the agent", quote(text))
	}
	t.CostArg = text
}

// toolCostType is a number, or a name.
func toolCostType() valueType {
	t := valueType{kinds: []kind{integer, text}, text: "number, or the name of an argument", schema: schema{"type": []string{"integer", "string"}}}
	t.read = func(s *section, k Key, n *node) any {
		if n.kind == integer && !isCost(n.text) {
			s.fail(n.val, k.Name, costHint, "%s must be 0 to %d", k.Name, maxUnits)
			return nil
		}
		return n.text
	}
	return t
}

// maxUnits bounds the numbers of a configuration, so that sums of them can be compared.
const maxUnits = 1_000_000_000

func isCost(text string) bool {
	c, ok := codec.ParseCost(text)
	return ok && c <= codec.Units(maxUnits)
}

// costType is a cost above 0, for budgets.
func costType() valueType {
	t := valueType{kinds: []kind{integer, text}, text: "number, also as text with decimals", schema: schema{"type": []string{"integer", "string"}}}
	t.read = func(s *section, k Key, n *node) any {
		c, _ := codec.ParseCost(n.text)
		if !isCost(n.text) || c <= 0 {
			s.fail(n.val, k.Name, budgetHint, "%s must be a number above 0, at most %d", k.Name, maxUnits)
			return nil
		}
		return c
	}
	return t
}

func actionTypeType() valueType {
	t := anyText()
	t.text = "one of " + strings.Join(approval.ActionTypes(), ", ") + ", or custom:NAME"
	t.read = func(s *section, k Key, n *node) any {
		if approval.ValidActionType(n.text) {
			return n.text
		}
		s.fail(n.val, k.Name, didYouMean(n.text, approval.ActionTypes(), ""), "action_type must be %s, or custom:NAME", strings.Join(approval.ActionTypes(), ", "))
		return nil
	}
	return t
}

// verbType is a string, or a table of strings by language.
func verbType() valueType {
	t := line(200)
	t.kinds, t.text = []kind{text, table}, "one line, or a table of them by language"
	return t
}

// verb returns the verbs by language. English is required: it is the fallback.
func (s *section) verb() map[string]string {
	if v := s.text("verb"); v != "" {
		return map[string]string{"en": v}
	}
	sub := s.table("verb")
	if sub == nil {
		return nil
	}
	if !sub.has("en") {
		sub.fail(sub.node.key, "", `verb = { en = "post", it = "pubblichi" }`, "verb has no English form, which is the fallback")
	}
	return values[string](s, "verb")
}

// propertyType is a property of a tool for trust.
func propertyType() valueType {
	return valueType{
		kinds: []kind{text, boolean}, text: `true, false or "forbidden"`, schema: schema{"enum": []any{true, false, "forbidden"}},
		read: func(s *section, k Key, n *node) any {
			if n.kind == text && n.text != "forbidden" {
				s.fail(n.val, k.Name, didYouMean(n.text, []string{"forbidden"}, "write true and false without quotes"), `%s must be true, false or "forbidden"`, k.Name)
				return nil
			}
			return n.text
		},
	}
}

// releaseTrust reads what requests without a tool read and write.
func (s *section) releaseTrust() (t approval.Trust) {
	return s.properties("release_trust")
}

// properties reads what a table says that requests read and reach.
func (s *section) properties(key string) (t approval.Trust) {
	if sub := s.table(key); sub != nil {
		t.PublicSource = approval.Property(sub.text("public_source"))
		t.SecretData = approval.Property(sub.text("secret_data"))
		t.PublicSink = approval.Property(sub.text("public_sink"))
	}
	return t
}

// trust reads the four properties. `trust = false` sets all four, so it must not be
// combined with one of them.
func (s *section) trust() approval.Trust {
	property := func(key string) approval.Property { return approval.Property(s.text(key)) }
	t := approval.Trust{
		PublicSource: property("public_source"), SecretData: property("secret_data"),
		PublicSink: property("public_sink"), DangerousWrites: property("dangerous_writes"),
	}
	switch n := s.node.children["trust"]; {
	case n == nil:
		return t
	case s.flag("trust"):
		s.fail(n.val, "trust", "set the properties: public_source, secret_data, public_sink, dangerous_writes", "trust can only be false")
	case t != (approval.Trust{}):
		s.fail(n.key, "trust", "remove one of them", "trust = false must not be combined with one of the properties")
	}
	return approval.Trust{PublicSource: "false", SecretData: "false", PublicSink: "false", DangerousWrites: "false"}
}

// properties are the keys of the four trust properties.
var properties = []string{"public_source", "secret_data", "public_sink", "dangerous_writes"}

// checkTrust refuses a tool that does not state what it reads and writes: policy does
// not guess. Of a tool that was refused already, the statement may be the mistake.
func (s *section) checkTrust(t approval.Tool) {
	missing := slices.DeleteFunc(slices.Clone(properties), s.has)
	switch {
	case s.isRefused():
	case s.has("capability") || s.has("trust") || len(missing) == 0:
	case len(missing) < len(properties):
		hint := "add to [" + s.path + "]:\n" + assignments(missing, "true")
		s.fail(s.node.key, "", hint, "tool %s states no %s", quote(t.Name), list(missing))
	default:
		s.fail(s.node.key, "", trustHint(s.path, t), "tool %s states neither its capability nor its trust", quote(t.Name))
	}
}

// trustHint shows the lines to paste, one choice after the other.
func trustHint(path string, t approval.Tool) string {
	likely := likelyCapability(t)
	others := slices.DeleteFunc(Capabilities(), func(name string) bool { return name == likely })
	return "add to [" + path + "] one of:\n" +
		"capability = " + quote(likely) + "  # or " + strings.Join(others, ", ") + "\n" +
		"trust = false  # if it reads no secrets and nothing from strangers, and writes nothing public or dangerous\n" +
		"or all four, each true, false or \"forbidden\":\n" + assignments(properties, "true")
}

func assignments(keys []string, value string) string {
	return strings.Join(keys, " = "+value+"\n") + " = " + value
}

// likelyCapability is the capability that fits best what is configured of a tool.
func likelyCapability(t approval.Tool) string {
	switch {
	case t.ActionType == "write_file":
		return "fs:write"
	case t.ActionType == "send_message":
		return "channel:out"
	case t.ActionType == "http_request" || t.Handler.Kind == approval.HandlerHTTP:
		return "network:http"
	}
	return "code:exec"
}

// handler reads the handler of a tool. Without one, nothing runs.
func (s *section) handler() approval.Handler {
	sub := s.table("handler")
	if sub == nil {
		return approval.Handler{Kind: approval.HandlerNone}
	}
	h := approval.Handler{
		Kind: sub.text("kind"), Argv: sub.texts("argv"), Dir: sub.text("dir"), Env: sub.texts("env"),
		Timeout: sub.duration("timeout"), MaxOutput: int(sub.number("max_output")), Idempotent: sub.flag("idempotent"),
		MaxMemory: sub.number("max_memory"), MaxProcesses: int(sub.number("max_processes")),
	}
	if !sub.has("kind") {
		sub.fail(sub.node.key, "kind", `kind = "command", "http" or "mcp", "agent" if the agent executes it, or "none" to run nothing`, "handler has no kind")
	}
	if h.Kind == approval.HandlerCommand {
		sub.checkArgv()
	}
	h.HTTP = sub.http(h.Kind)
	sub.rejectOtherKinds(h.Kind)
	if h.Kind == approval.HandlerMCP {
		h = sub.callServer(h)
	} else if !sub.failed {
		sub.checkHandler(h)
	}
	return h
}

func handlerKindType() valueType {
	t := word(approval.HandlerCommand, approval.HandlerHTTP, approval.HandlerMCP, approval.HandlerAgent, approval.HandlerNone)
	t.hint = ""
	return t
}

func (s *section) checkArgv() {
	// If argv is not an array, its type has been reported.
	n := s.node.children["argv"]
	if n == nil || n.kind == array && len(n.items) == 0 {
		s.fail(s.node.key, "argv", argvHint, "a command needs argv")
	}
	for i, n := range s.items("argv") {
		switch {
		case strings.ContainsRune(n.text, 0):
			s.fail(n.val, "argv", "", "argv must not contain NUL")
		case i == 0 && !filepath.IsAbs(n.text):
			s.fail(n.val, "argv", "PATH is not searched and no shell runs", "argv must begin with the absolute path of a program")
		case i == 0 && strings.ContainsAny(n.text, "{}"):
			s.fail(n.val, "argv", "", "the program must not depend on the request")
		}
	}
}

// http reads the HTTP request of a handler. CheckHandler checks it.
func (s *section) http(kind string) approval.HTTP {
	if kind == approval.HandlerHTTP {
		for _, key := range []string{"method", "url"} {
			row, _ := s.row(key)
			s.require(s.node.key, row.Hint, "an http handler needs %s", key)
		}
	}
	h := s.httpServer()
	h.Method, h.Body, h.BodyArgs = s.text("method"), s.text("body"), s.flag("body_args")
	for _, n := range s.items("status") {
		code, _ := strconv.Atoi(n.text) // in range
		h.Status = append(h.Status, code)
	}
	return h
}

// httpServer reads where requests go, and their headers.
func (s *section) httpServer() approval.HTTP {
	return approval.HTTP{
		URL: s.text("url"), Headers: values[string](s, "headers"), SecretHeaders: values[string](s, "secret_headers"),
		AllowPrivate: s.texts("allow_private"), CAFile: s.text("ca_file"),
	}
}

// hostOf returns the host of a URL template. It is the default target of a tool.
func hostOf(template string) string {
	_, rest, found := strings.Cut(template, "://")
	host, _, complete := strings.Cut(rest, "/")
	if !found || !complete {
		return ""
	}
	return host
}

// rejectOtherKinds reports keys that belong to another kind of handler.
func (s *section) rejectOtherKinds(kind string) {
	for _, key := range s.node.order {
		row, known := s.row(key)
		belongs, more := row.handler, ""
		if kind == approval.HandlerNone || kind == approval.HandlerAgent {
			belongs, more = cmp.Or(belongs, approval.HandlerCommand), "; "+quote(kind)+" runs nothing"
		}
		if known && kind != "" && key != "kind" && belongs != "" && belongs != kind {
			s.fail(s.node.children[key].key, key, "", "%s belongs to kind %q%s", key, belongs, more)
		}
	}
}

func (s *section) checkHandler(h approval.Handler) {
	if s.check == nil || h.Kind == approval.HandlerNone || h.Kind == approval.HandlerAgent {
		return
	}
	err := s.check(h)
	if err == nil {
		return
	}
	key := "argv"
	type keyed interface {
		error
		ConfigKey() string
	}
	if at, ok := errors.AsType[keyed](err); ok {
		key = at.ConfigKey()
	}
	s.fail(s.position(key), key, "", "%s", visible(err.Error()))
}
