package config

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

var envPattern = pattern(`^[A-Za-z_][A-Za-z0-9_]*$`)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func capabilities() []string {
	var names []string
	for _, c := range approval.Capabilities() {
		names = append(names, c.Name)
	}
	return names
}

func (s *section) tools() {
	s.each("tools", "write [tools.NAME]", func(name string, sub *section) {
		if !approval.ValidToolName(name) {
			sub.fail(sub.node.key, "", "", "tool %s: a name is 1 to 64 of A-Z a-z 0-9 _ . : and -", quote(name))
		}
		tool := approval.Tool{
			Name:          name,
			Capability:    sub.oneOf("capability", "", capabilities()),
			ActionType:    sub.actionType(),
			Verb:          sub.verb(),
			Summary:       sub.line("summary", 1000),
			Target:        sub.line("target", 1000),
			Reversibility: approval.Reversibility(sub.oneOf("reversibility", "", []string{"reversible", "partial", "irreversible"})),
			Territory:     sub.oneOf("territory", "none", []string{"none", "session", "permanent"}),
			Trust:         sub.trust(),
			Cost:          sub.number("cost", 0, 0, 1<<53, "a whole number, in units of your own"),
			Program:       sub.program(),
			Facts:         sub.facts(),
			Handler:       sub.handler(),
		}
		if tool.Target == "" {
			tool.Target = hostOf(tool.Handler.HTTP.URL)
		}
		s.cfg.Tools[name] = tool
		sub.rejectUnknown()
	})
}

func (s *section) actionType() string {
	n := s.get("action_type", text, "")
	if n == nil || approval.ValidActionType(n.text) {
		return textOf(n)
	}
	s.fail(n.val, "action_type", didYouMean(n.text, approval.ActionTypes(), ""), "action_type must be %s, or custom:NAME", strings.Join(approval.ActionTypes(), ", "))
	return ""
}

func textOf(n *node) string {
	if n == nil {
		return ""
	}
	return n.text
}

// verb is a string, or a table of strings by language. English is required: it is
// the fallback.
func (s *section) verb() map[string]string {
	const maxLen = 200
	if n := s.node.children["verb"]; n == nil || n.kind != table {
		if v := s.line("verb", maxLen); v != "" {
			return map[string]string{"en": v}
		}
		return nil
	}
	sub := s.table("verb", "")
	verbs := map[string]string{}
	for _, lang := range chat.Languages() {
		if v := sub.line(lang, maxLen); v != "" {
			verbs[lang] = v
		}
	}
	if !sub.has("en") {
		sub.fail(sub.node.key, "", `verb = { en = "post", it = "pubblichi" }`, "verb has no English form, which is the fallback")
	}
	sub.rejectUnknown()
	return verbs
}

// trust reads the four properties. `trust = false` sets all four, so it must not be
// combined with one of them.
func (s *section) trust() approval.Trust {
	t := approval.Trust{
		PublicSource:    s.property("public_source"),
		SecretData:      s.property("secret_data"),
		PublicSink:      s.property("public_sink"),
		DangerousWrites: s.property("dangerous_writes"),
	}
	n := s.get("trust", boolean, "trust = false clears the four properties")
	switch {
	case n == nil:
		return t
	case n.text != "false":
		s.fail(n.val, "trust", "set the properties: public_source, secret_data, public_sink, dangerous_writes", "trust can only be false")
	case t != (approval.Trust{}):
		s.fail(n.key, "trust", "remove one of them", "trust = false must not be combined with one of the properties")
	}
	return approval.Trust{PublicSource: "false", SecretData: "false", PublicSink: "false", DangerousWrites: "false"}
}

func (s *section) property(key string) approval.Property {
	n := s.node.children[key]
	if n != nil && n.kind == boolean {
		s.known = append(s.known, key)
		s.recordValue(key, n)
		return approval.Property(n.text)
	}
	const hint = `true, false or "forbidden"`
	n = s.get(key, text, hint)
	if n == nil {
		return ""
	}
	if n.text != "forbidden" {
		s.fail(n.val, key, didYouMean(n.text, []string{"forbidden"}, "write true and false without quotes"), `%s must be %s`, key, hint)
	}
	return "forbidden" // the strictest value, in case the issue is overlooked
}

// handler reads the handler of a tool. Without one, nothing runs.
func (s *section) handler() approval.Handler {
	h := approval.Handler{Kind: approval.HandlerNone}
	sub := s.table("handler", `handler = { kind = "command", argv = ["/usr/bin/true"] }`)
	if sub == nil {
		return h
	}
	before := len(s.issues)
	h.Kind = sub.handlerKind()
	h.Argv = sub.argv(h.Kind)
	h.Dir = sub.dir()
	h.Env = sub.environment()
	h.Timeout = sub.duration("timeout", 0, time.Millisecond, 24*time.Hour)
	h.MaxOutput = sub.size("max_output", 0, 1<<10, 64<<20)
	h.Idempotent = sub.flag("idempotent", false)
	h.HTTP = sub.http(h.Kind)
	sub.rejectOtherKinds(h.Kind)
	sub.rejectUnknown()
	if len(s.issues) == before {
		sub.checkHandler(h)
	}
	return h
}

func (s *section) handlerKind() string {
	n := s.get("kind", text, "")
	switch {
	case n == nil && !s.has("kind"):
		s.fail(s.node.key, "kind", `kind = "command" or "http", or "none" to run nothing`, "handler has no kind")
	case n == nil:
	case n.text == "mcp":
		s.fail(n.val, "kind", "", "kind %s is not available yet: use command, http or none", quote(n.text))
	case s.checkAllowed(n, "kind", []string{approval.HandlerCommand, approval.HandlerHTTP, approval.HandlerNone}):
		return n.text
	}
	return ""
}

func (s *section) argv(kind string) []string {
	const hint = `a list with the program's absolute path first: argv = ["/usr/bin/env", "true"]`
	items := s.texts("argv", hint)
	if len(items) == 0 {
		// If argv is not an array, texts has reported it.
		if n := s.node.children["argv"]; kind == approval.HandlerCommand && (n == nil || n.kind == array && len(n.items) == 0) {
			s.fail(s.node.key, "argv", hint, "a command needs argv")
		}
		return nil
	}
	var argv []string
	for i, n := range items {
		switch {
		case strings.ContainsRune(n.text, 0):
			s.fail(n.val, "argv", "", "argv must not contain NUL")
		case i == 0 && !filepath.IsAbs(n.text):
			s.fail(n.val, "argv", "PATH is not searched and no shell runs", "argv must begin with the absolute path of a program")
		case i == 0 && strings.ContainsAny(n.text, "{}"):
			s.fail(n.val, "argv", "", "the program must not depend on the request")
		}
		argv = append(argv, n.text)
	}
	return argv
}

func (s *section) dir() string {
	n := s.get("dir", text, "")
	if n == nil {
		return ""
	}
	if !filepath.IsAbs(n.text) || strings.ContainsAny(n.text, "\x00{}") {
		s.fail(n.val, "dir", "remove it to run in a new empty folder each time", "dir must be an absolute path")
	}
	return n.text
}

// environment reads names of variables. It does not quote an invalid one, which may
// be TOKEN=….
func (s *section) environment() []string {
	const hint = `names only: env = ["LANG"]; the values come from the daemon's environment`
	var names []string
	for _, n := range s.texts("env", hint) {
		if !envPattern().MatchString(n.text) {
			s.fail(n.val, "env", hint, "env must hold names of variables")
			continue
		}
		names = append(names, n.text)
	}
	return names
}
