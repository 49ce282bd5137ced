package chat_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// The trifecta is said in people's words: what the agent has read, and where this goes.
func TestTrifectaInWords(t *testing.T) {
	for _, row := range []struct {
		language, want string
		args           []string
	}{
		{"en", "it has read a stranger's mail and your calendar; this would go out to x.com", []string{"strangers", "mail:read", "secrets", "calendar:read", "target", "x.com"}},
		{"en", "it has read a page of evil.example and your files (/home/ann/notes); this would go out", []string{"strangers", "network:http", "strangers_in", "evil.example", "secrets", "fs:read", "secrets_in", "/home/ann/notes"}},
		{"en", "it has read what web returned and what vault returned; this would go out to x.com", []string{"strangers", "tool web", "secrets", "tool vault", "target", "x.com"}},
		{"en", "it has read a page and what llm:online returned; this would go out", []string{"strangers", "network:http", "secrets", "llm:online"}},
		{"en", "it has read what strangers wrote and what must stay secret; this would go out", []string{"tool", "post"}},
		{"en", `it has read a page of "a; b" and your files; this would go out`, []string{"strangers", "network:http", "strangers_in", "a; b", "secrets", "fs:read"}},
		{"en", "it has read what web returned and what is private in it; this would go out", []string{"strangers", "tool web", "secrets", "tool web"}},
		{"en", "it has read what a command returned (first of 3 reads) and your files (/a) (first of 2 reads); this would go out", []string{
			"strangers", "code:exec", "strangers_n", "3", "secrets", "fs:read", "secrets_in", "/a", "secrets_n", "2",
		}},
		{"it", "ha letto la posta di un estraneo e il tuo calendario; questo uscirebbe verso x.com", []string{"strangers", "mail:read", "secrets", "calendar:read", "target", "x.com"}},
	} {
		said := chat.Style{Language: row.language}.Reasons(&approval.Pending{}, []approval.Reason{approval.Because("trifecta", row.args...)})
		require.Equal(t, []string{row.want}, said)
	}
}

// Why a grant is not offered is said as what it would not help against.
func TestGrantWouldNotHelp(t *testing.T) {
	for code, want := range map[string]string{
		"asked_anyway": "a grant would not help: it would still be asked because of what the agent will have read by then",
		"no_target": "a grant would not help: its target is no path or address that a grant could name; " +
			"the agent can give a plain one",
		"not_offered": "what a grant would cover was not worked out when it was asked; the agent can ask again",
	} {
		said := chat.Style{}.Reasons(&approval.Pending{}, []approval.Reason{approval.Because(code, "rule", "trifecta")})
		require.Equal(t, []string{want}, said)
	}
	said := chat.Style{}.Reasons(&approval.Pending{}, []approval.Reason{
		approval.Because("rule_despite", "tool", "x_post", "what", "trifecta"), approval.Because("clear_taints", "workspace", "home"),
		approval.Because("despite", "rule", "the team", "what", "secrets"), approval.Because("grant_tool_changed"),
	})
	require.Equal(t, []string{
		"a rule for x_post with despite = [\"trifecta\"] and every destination listed",
		"the operator can clear the taints: in the browser, or permesso session clear home",
		`rule "the team" allows it despite secrets`,
		"the tool has changed since a grant for this was given; it can be given anew",
	}, said)
}
