package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/daemon"
	"github.com/permesso-dev/permesso/ipc/client"
)

// forgeries are texts that an agent could write to mislead a reader of the log.
var forgeries = []string{
	"planted\n{\"level\":\"error\",\"message\":\"planted\"}",
	"planted\r\nplanted",
	"\x1b[2Jplanted\x1b[31m",
	"\u009b2Jplanted",
	`planted","by":"operator:root","x":"`,
	"planted\u2028planted\u202eplanted\u200b",
	"planted id=0000 by=root",
	"planted AKIAIOSFODNN7EXAMPLE",
	"planted\x00\xff\xfe",
}

// TestAgentsCannotForgeLogLines submits forged texts in every field to the real
// daemon and checks its log.
func TestAgentsCannotForgeLogLines(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"json", "console"} {
		t.Run(format, func(t *testing.T) {
			h := newRig(t, "default", fmt.Sprintf(`log_level = "debug"
log_format = %q
[workspaces.default]
limits = { pending = 200, ask_per_minute = 10000, per_minute = 10000 }
[tools.say]
dangerous_writes = true
public_source = false
secret_data = false
public_sink = false
handler = { kind = "command", argv = ["/bin/sh", "-c", 'mkdir -p "$1"; echo "$1" >&2; echo "$1"; exit 3', "sh", "{text}"] }
[tools.asks]
public_source = false
secret_data = false
public_sink = false
dangerous_writes = true
args = { text = "text" }
handler = { kind = "none" }
[[rules]]
match = { tool = "say" }
outcome = "allow"
`, format))
			d := h.serve()
			awaitFile(t, h.agent.Requests)
			for _, s := range forgeries {
				h.submitForged(s)
			}
			first := h.ask(`{"tool_name":"say","request_data":{"text":"planted"}}`)
			h.response(first)
			second := h.ask(`{"tool_name":"planted_AKIAIOSFODNN7EXAMPLE"}`)
			h.response(second)
			third := h.ask(`{"tool_name":"asks","request_data":{"text":"planted_AKIAIOSFODNN7EXAMPLE"},"title":"planted"}`)
			h.awaitPending("default", third)
			d.signal(1) // a reload, for its log lines
			d.stop()
			said := d.logged()
			require.Contains(t, said, first, "lines about a request contain its id")
			require.Contains(t, said, second)
			require.Contains(t, said, third)
			require.NotContains(t, strings.ToLower(said), "planted")
			require.NotContains(t, said, "AKIA")
			lines := strings.Split(strings.TrimSuffix(said, "\n"), "\n")
			for _, l := range lines {
				requireValidLine(t, format, l)
			}
		})
	}
}

// requireValidLine requires a line that only our own code can have written.
func requireValidLine(t *testing.T, format, line string) {
	t.Helper()
	require.True(t, utf8.ValidString(line))
	require.False(t, strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }), "%q", line)
	if format == "console" {
		require.Regexp(t, `^\d\d:\d\d:\d\d (DBG|INF|WRN|ERR) `, line)
		return
	}
	var fields map[string]any
	dec := json.NewDecoder(strings.NewReader(line))
	require.NoError(t, dec.Decode(&fields), line)
	require.False(t, dec.More(), line)
	for k := range fields {
		require.Contains(t, logKeys(t), k, line)
	}
}

// submitForged puts a text wherever an agent can write one.
func (h *rig) submitForged(text string) {
	h.t.Helper()
	quoted, err := json.Marshal(text)
	require.NoError(h.t, err)
	for _, form := range []string{
		`{"request_id":%[1]q,"tool_name":%[2]s}`,
		`{"request_id":%[1]q,"tool_name":"say","request_data":{"text":%[2]s,%[2]s:1}}`,
		`{"request_id":%[1]q,"tool_name":"say","request_data":{"text":%[2]s}}`,
		`{"request_id":%[1]q,"tool_name":"asks","request_data":{"text":%[2]s}}`,
		`{"request_id":%[1]q,"tool_name":"asks","request_data":{"text":""},"title":%[2]s,"preview":%[2]s,"rationale":%[2]s}`,
		`{"request_id":%[1]q,"tool_name":"say","request_data":{"text":""},"session_id":%[2]s}`,
		`{"request_id":%[1]q,"action_type":%[2]s}`,
		`{"request_id":%[2]s,"tool_name":"say"}`,
		`{"request_id":%[1]q,%[2]s:%[2]s}`,
		`%[2]s`,
	} {
		id := client.NewID()
		require.NoError(h.t, h.agent.Submit(id, fmt.Appendf(nil, form, id, quoted)))
	}
	name := strings.NewReplacer("/", "", "\x00", "").Replace(text)
	for _, suffix := range []string{".json", ".cancel", ""} {
		path := filepath.Join(h.agent.Requests, name+suffix)
		require.NoError(h.t, os.WriteFile(path, quoted, 0o644))
		// A folder cannot be removed as a file, so the daemon is likely to log it.
		dir := filepath.Join(h.agent.Requests, "d"+name+suffix)
		require.NoError(h.t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	id := client.NewID()
	require.NoError(h.t, os.Symlink(name, filepath.Join(h.agent.Requests, id+".json")))
	require.NoError(h.t, os.Mkdir(filepath.Join(h.agent.Requests, client.NewID()+".json"), 0o755))
}

// TestLogLines: zerolog does not escape these texts; our writer does.
func TestLogLines(t *testing.T) {
	for _, format := range []string{"json", "console"} {
		var b bytes.Buffer
		l, _ := daemon.NewLog(&b, "info", format)
		for _, s := range forgeries {
			b.Reset()
			l.Info().Str("ws", s).Str("err", "open "+s+": no").Msg("planted " + s)
			require.Equal(t, 1, strings.Count(b.String(), "\n"), "%q", b.String())
			requireValidLine(t, format, strings.TrimSuffix(b.String(), "\n"))
			if format == "json" {
				var got map[string]string
				require.NoError(t, json.Unmarshal(b.Bytes(), &got))
				require.Equal(t, strings.ToValidUTF8(s, "\ufffd"), strings.ReplaceAll(got["ws"], "\ufffd\ufffd", "\ufffd"), "nothing is lost")
			} else {
				unquoted := regexp.MustCompile(`"(\\.|[^"\\])*"`).ReplaceAllString(b.String(), "…")
				require.NotRegexp(t, ` (id|by|level)=`, unquoted, "a forged field")
			}
		}
	}
}
