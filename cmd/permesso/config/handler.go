package config

import (
	"cmp"
	"errors"
	"strconv"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// http reads the HTTP request of a handler. CheckHandler checks it.
func (s *section) http(kind string) approval.HTTP {
	if kind == approval.HandlerHTTP {
		for _, key := range []string{"method", "url"} {
			row, _ := s.row(key)
			s.require(s.node.key, row.Hint, "an http handler needs %s", key)
		}
	}
	h := approval.HTTP{
		Method: s.text("method"), URL: s.text("url"), Body: s.text("body"), BodyArgs: s.flag("body_args"),
		Headers: s.textMap("headers"), SecretHeaders: s.textMap("secret_headers"),
		AllowPrivate: s.texts("allow_private"), CAFile: s.text("ca_file"),
	}
	for _, n := range s.items("status") {
		code, _ := strconv.Atoi(n.text) // in range
		h.Status = append(h.Status, code)
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

// rejectOtherKinds reports keys that belong to another kind of handler.
func (s *section) rejectOtherKinds(kind string) {
	for _, key := range s.node.order {
		row, known := s.row(key)
		belongs, more := row.handler, ""
		if kind == approval.HandlerNone {
			belongs, more = cmp.Or(belongs, approval.HandlerCommand), `; "none" runs nothing`
		}
		if known && kind != "" && key != "kind" && belongs != "" && belongs != kind {
			s.fail(s.node.children[key].key, key, "", "%s belongs to kind %q%s", key, belongs, more)
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
