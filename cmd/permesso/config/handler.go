package config

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// The keys that only one kind of handler has.
var (
	commandKeys = []string{"argv", "dir", "env"}
	httpKeys    = []string{"method", "url", "body", "body_args", "headers", "secret_headers", "allow_private", "ca_file", "status"}
)

// http reads the HTTP request of a handler. CheckHandler checks it.
func (s *section) http(kind string) approval.HTTP {
	h := approval.HTTP{
		Method:        s.requiredText("method", kind, `method = "POST"`),
		URL:           s.requiredText("url", kind, `url = "https://api.example.org/v1/posts/{id}"`),
		Body:          textOf(s.get("body", text, `JSON with {field} instead of values: body = '{"text":{text}}'`)),
		BodyArgs:      s.flag("body_args", false),
		Headers:       s.headers("headers", `headers = { Accept = "application/json" }`),
		SecretHeaders: s.headers("secret_headers", `secret_headers = { Authorization = "Bearer /path/of/the/token" }`),
		CAFile:        textOf(s.get("ca_file", text, "")),
		Status:        s.codes(),
	}
	for _, n := range s.texts("allow_private", `allow_private = ["10.1.2.3", "internal.example"]`) {
		h.AllowPrivate = append(h.AllowPrivate, n.text)
	}
	return h
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

// requiredText returns a setting that an http handler needs.
func (s *section) requiredText(key, kind, hint string) string {
	n := s.get(key, text, hint)
	if n == nil && kind == approval.HandlerHTTP && !s.has(key) {
		s.fail(s.node.key, key, hint, "an http handler needs %s", key)
	}
	return textOf(n)
}

// headers returns strings by name. Issues never quote them: they may be secrets.
func (s *section) headers(key, hint string) map[string]string {
	sub := s.table(key, hint)
	if sub == nil || len(sub.node.order) == 0 {
		return nil
	}
	values := map[string]string{}
	for _, name := range sub.node.order {
		if n := sub.get(name, text, hint); n != nil {
			values[name] = n.text
		}
	}
	return values
}

func (s *section) codes() []int {
	const hint = "a list of numbers: status = [200, 201]"
	n := s.get("status", array, hint)
	if n == nil {
		return nil
	}
	var codes []int
	for _, item := range n.items {
		code, err := strconv.Atoi(item.text)
		if item.kind != integer || err != nil || code < 200 || code > 599 {
			s.fail(item.val, "status", hint, "status must hold codes from 200 to 599")
			return nil
		}
		codes = append(codes, code)
	}
	return codes
}

// rejectOtherKinds reports keys that belong to another kind of handler.
func (s *section) rejectOtherKinds(kind string) {
	for _, key := range s.node.order {
		belongs := ""
		switch {
		case kind == "" || key == "kind" || !slices.Contains(s.known, key):
		case slices.Contains(httpKeys, key):
			belongs = approval.HandlerHTTP
		case slices.Contains(commandKeys, key) || kind == approval.HandlerNone:
			belongs = approval.HandlerCommand
		default:
			continue
		}
		switch {
		case belongs == "" || belongs == kind:
		case kind == approval.HandlerNone:
			s.fail(s.node.children[key].key, key, "", "%s belongs to kind %q; \"none\" runs nothing", key, belongs)
		default:
			s.fail(s.node.children[key].key, key, "", "%s belongs to kind %q", key, belongs)
		}
	}
}

func (s *section) checkHandler(h approval.Handler) {
	if s.check == nil || h.Kind == approval.HandlerNone {
		return
	}
	err := s.check(h)
	if err == nil {
		return
	}
	key := "argv"
	var at interface {
		error
		ConfigKey() string
	}
	if errors.As(err, &at) {
		key = at.ConfigKey()
	}
	s.fail(s.position(key), key, "", "%s", visible(err.Error()))
}

// position returns the position of a dotted key's value, or of the part that exists.
func (s *section) position(key string) pos {
	n := s.node
	for part := range strings.SplitSeq(key, ".") {
		child := n.children[part]
		if child == nil {
			break
		}
		n = child
	}
	if n == s.node {
		return n.key
	}
	return n.val
}
