package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/permesso-dev/permesso/approval"
)

// reader turns a tree into a Config and collects the issues.
type reader struct {
	cfg      *Config
	check    func(approval.Handler) error
	servedBy int
	issues   []Issue
}

// section reads one table. Each method takes a key and returns its value. If the
// value is invalid, it reports an issue and returns the default. A key is known if
// a method was called for it.
type section struct {
	*reader
	node  *node
	path  string
	known []string
}

func (r *reader) section(n *node, path string) *section {
	return &section{reader: r, node: n, path: path}
}

func (s *section) fullKey(key string) string {
	if s.path == "" || key == "" {
		return s.path + key
	}
	return s.path + "." + key
}

func (s *section) has(key string) bool { return s.node.children[key] != nil }

func (s *section) fail(at pos, key, hint, format string, args ...any) {
	s.issues = append(s.issues, Issue{at.line, at.col, s.fullKey(key), fmt.Sprintf(format, args...), hint})
}

func (s *section) warn(at pos, key, hint, format string, args ...any) {
	s.cfg.Warnings = append(s.cfg.Warnings, Issue{at.line, at.col, s.fullKey(key), fmt.Sprintf(format, args...), hint})
}

// get returns the value of key, nil if there is none of that kind.
func (s *section) get(key string, want kind, hint string) *node {
	s.known = append(s.known, key)
	n := s.node.children[key]
	if n == nil {
		s.recordUnset(key, want)
		return nil
	}
	if n.kind != want {
		s.fail(n.val, key, hint, "%s must be %s, not %s", key, want, n.kind)
		return nil
	}
	s.recordValue(key, n)
	return n
}

// table returns the section of the table key, nil if there is none.
func (s *section) table(key, hint string) *section {
	n := s.get(key, table, hint)
	if n == nil {
		return nil
	}
	return s.section(n, s.fullKey(key))
}

func (s *section) flag(key string, def bool) bool {
	n := s.get(key, boolean, "true or false, without quotes")
	if n == nil {
		s.setDefault(key, def)
		return def
	}
	return n.text == "true"
}

// line returns a text for display: printable, on one line.
func (s *section) line(key string, maxLen int) string {
	n := s.get(key, text, "")
	if n == nil {
		return ""
	}
	if n.text == "" || len(n.text) > maxLen || strings.ContainsFunc(n.text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		s.fail(n.val, key, "", "%s must be one line of 1 to %d bytes, without invisible characters", key, maxLen)
		return ""
	}
	return n.text
}

// oneOf returns one of the allowed words.
func (s *section) oneOf(key, def string, allowed []string) string {
	n := s.get(key, text, "one of "+list(allowed))
	if n == nil && def != "" {
		s.setDefault(key, def)
	}
	if n == nil || !s.checkAllowed(n, key, allowed) {
		return def
	}
	return n.text
}

// checkAllowed reports a value that is not allowed. It does not quote the value,
// which may be a secret.
func (s *section) checkAllowed(n *node, key string, allowed []string) bool {
	if slices.Contains(allowed, n.text) {
		return true
	}
	s.fail(n.val, key, didYouMean(n.text, allowed, ""), "%s must be %s", key, list(allowed))
	return false
}

func (s *section) duration(key string, def, least, most time.Duration) time.Duration {
	const hint = `write it with its unit: "30s", "5m", "1h30m"`
	n := s.get(key, text, hint)
	if n == nil {
		if def > 0 {
			s.setDefault(key, short(def))
		}
		return def
	}
	d, err := time.ParseDuration(n.text)
	if err != nil {
		s.fail(n.val, key, hint, "%s is not a duration", key)
		return def
	}
	if d < least || d > most {
		s.fail(n.val, key, "", "%s must be %s to %s", key, short(least), short(most))
		return def
	}
	return d
}

// short formats a duration without zero parts: 24h, not 24h0m0s.
func short(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

func (s *section) number(key string, def, least, most int64, hint string) int64 {
	n := s.get(key, integer, hint)
	if n == nil {
		if def > 0 {
			s.setDefault(key, def)
		}
		return def
	}
	v, err := strconv.ParseInt(n.text, 0, 64)
	if err != nil || v < least || v > most {
		s.fail(n.val, key, hint, "%s must be %d to %d", key, least, most)
		return def
	}
	return v
}

var sizePattern = pattern(`^([0-9]{1,9})(B|KiB|MiB)$`)

// size returns a number of bytes, written as a number or with a unit.
func (s *section) size(key string, def, least, most int) int {
	const hint = `write it with its unit: "256KiB", "1MiB"`
	if n := s.node.children[key]; n != nil && n.kind == integer {
		return int(s.number(key, int64(def), int64(least), int64(most), hint))
	}
	n := s.get(key, text, hint)
	if n == nil {
		if def > 0 {
			s.setDefault(key, int64(def))
		}
		return def
	}
	m := sizePattern().FindStringSubmatch(n.text)
	if m == nil {
		s.fail(n.val, key, hint, "%s is not a size", key)
		return def
	}
	v, _ := strconv.Atoi(m[1]) // nine digits at most
	v <<= map[string]int{"B": 0, "KiB": 10, "MiB": 20}[m[2]]
	if v < least || v > most {
		s.fail(n.val, key, "", "%s must be %d to %d bytes", key, least, most)
		return def
	}
	return v
}

// texts returns the strings of an array, nil if the key is missing or its value is
// not an array of strings.
func (s *section) texts(key, hint string) []*node {
	n := s.get(key, array, hint)
	if n == nil {
		return nil
	}
	out := make([]*node, 0, len(n.items))
	for _, item := range n.items {
		if item.kind != text {
			s.fail(item.val, key, hint, "%s must hold strings, not %s", key, item.kind)
			return nil
		}
		out = append(out, item)
	}
	return out
}

// each visits the tables below key, in the order of the file.
func (s *section) each(key, hint string, visit func(name string, sub *section)) {
	all := s.table(key, hint)
	if all == nil {
		return
	}
	for _, name := range all.node.order {
		n := all.node.children[name]
		switch {
		case n.kind != table && secret(name):
			all.inlineSecret(n, name)
		case n.kind != table:
			all.fail(n.key, name, hint, "%s in [%s] must be a table, not %s", quote(name), key, n.kind)
		default:
			visit(name, s.section(n, s.fullKey(key)+"."+name))
		}
	}
}

// rejectUnknown reports every key for which no method was called.
func (s *section) rejectUnknown() {
	for _, key := range s.node.order {
		if slices.Contains(s.known, key) {
			continue
		}
		n := s.node.children[key]
		if secret(key) {
			s.inlineSecret(n, key)
			continue
		}
		s.fail(n.key, key, didYouMean(key, s.known, whereKeyBelongs(key, s.path)), "unknown key %s", quote(key))
	}
}

func (s *section) inlineSecret(n *node, key string) {
	s.fail(n.key, key, fmt.Sprintf("put it into a separate file that only the daemon can read: %s_file = \"/path\"", key),
		"%s: secrets are not allowed in this file", key)
}

// secret reports whether the name of a key stands for a secret.
func secret(key string) bool {
	key = strings.ToLower(key)
	for _, word := range []string{"token", "password", "passwd", "passphrase", "secret", "api_key", "apikey", "private_key"} {
		if key == word || strings.HasSuffix(key, "_"+word) {
			return true
		}
	}
	return false
}

// whereKeyBelongs tells in which table an unknown key is known. It is only for
// hints.
func whereKeyBelongs(key, path string) string {
	places := []struct{ where, keys string }{
		{"at the top of the file, before the first [table]", "gate run_before log_level log_format socket listen listen_hosts ui"},
		{"in [workspaces.NAME]", "autonomy approvers principal channels approval_timeout approval_timeout_max quiet_hours night_timeout limits agent_uid contains_secrets admin binds_sessions sessions email_ceiling ask_above deny_above budget_session budget_day"},
		{"in limits of [workspaces.NAME]", "pending ask_per_minute per_minute request_size running"},
		{"in [approvers.NAME]", "email local"},
		{"in [tools.NAME]", "capability action_type verb summary target reversibility territory trust public_source secret_data public_sink dangerous_writes cost program facts handler"},
		{"in [provers.NAME]", "public_key public_key_file"},
		{"in handler of [tools.NAME]", "kind timeout max_output idempotent argv dir env method url body body_args headers secret_headers allow_private ca_file status"},
		{"in [[rules]]", "match outcome reason when_proven unless_proven"},
		{"in [channels.email]", "from smtp imap maildir authserv_id dkim trust_relay sub_addressing follow_up dns"},
		{"in [retention]", "responses records"},
		{"in [channels.telegram]", "token_file server_url webhook feed"},
		{"in telegram of [workspaces.NAME]", "chat_id thread_id"},
	}
	for _, p := range places {
		if slices.Contains(strings.Fields(p.keys), key) {
			return "it belongs " + p.where
		}
	}
	if key == "home" && path == "" {
		return "set the state folder with --home or PERMESSO_HOME"
	}
	return ""
}
