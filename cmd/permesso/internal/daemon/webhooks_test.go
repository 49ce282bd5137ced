package daemon

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc/httpapi"
)

func TestMaskView(t *testing.T) {
	const token = "ghp_1B4nfTyCkQ8hRv2LpXsW9eZ7aUdM3o0JgKiY"
	style := chat.Style{Language: "en", Redact: home.NewRedaction()}
	mask := func(text string) string { return style.Redacted(&approval.Pending{}, text) }
	masked := func(result string) string {
		v := &httpapi.Approval{ApprovalID: "appr_a7f3b2c1d4e5f6a7", Receipt: new("gate\n"), Result: httpapi.Anything{Value: jsontext.Value(result)}}
		maskView(v, mask)
		require.Nil(t, v.Receipt)
		require.True(t, v.Result.IsValid(), "%s", v.Result.Value)
		return string(v.Result.Value)
	}
	for _, same := range []string{`null`, `{"status":200,"body":"a\u003cb","n":1.50,"big":123456789012345678901234567890}`, `[true,"\n"]`} {
		require.JSONEq(t, same, masked(same))
	}
	require.Contains(t, masked(`{"n":123456789012345678901234567890}`), "123456789012345678901234567890", "numbers keep every digit")
	for why, hostile := range map[string]string{
		"a value": `{"a":"see ` + token + `"}`, "a name": `{"` + token + `":1}`, "two names": `{"` + token + `":1,"` + strings.ToUpper(token) + `":2}`,
		"escaped": `{"a":"\u0067hp_` + token[4:] + `"}`, "nested": `[[{"a":["` + token + `"]}]]`,
		"a name before it": `{"password":"Tr0ub4dor&3xyz!"}`,
	} {
		got := masked(hostile)
		require.NotContains(t, got, token, why)
		require.NotContains(t, got, "Tr0ub4dor", why)
	}
	require.Equal(t, `"not sent: it has 20002 bytes; GET /v1/approvals/appr_a7f3b2c1d4e5f6a7"`, masked(`"`+strings.Repeat("x", 20_000)+`"`))
	v := &httpapi.Approval{Error: new(token), Feedback: new(token), RequiredResponse: new(token), SessionID: new(token)}
	v.Decision.Choice = &httpapi.Choice{Note: new(token), Override: new(token)}
	maskView(v, mask)
	for _, text := range []*string{v.Error, v.Feedback, v.RequiredResponse, v.SessionID, v.Decision.Note, v.Decision.Override} {
		require.NotContains(t, *text, token)
	}
}
