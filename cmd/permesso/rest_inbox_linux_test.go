package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/email"
	"github.com/permesso-dev/permesso/chat/email/mailserver"
)

// TestRestInbox asks by HTTP, has the card sent by real mail servers, and brings
// the answer back by HTTP.
func TestRestInbox(t *testing.T) {
	w := newTown(t, `log_level = "debug"`, "log_level = \"debug\"\nlisten = \"127.0.0.1:0\"")
	w.daemon.awaitLog("HTTP API listening")
	found := listensOn.FindStringSubmatch(w.daemon.said())
	require.NotNil(t, found)
	key := func(args ...string) *restClient {
		code, out, errs := w.run("", append([]string{"key", "create", "work"}, args...)...)
		require.Zero(t, code, errs)
		return &restClient{w.place, "http://" + found[1], out[:len(out)-1]}
	}
	agent, post := key(), key("--scope", "inbound", "--owner", "ann")
	bring := func(subject, body string) (int, map[string]any) {
		b, err := json.Marshal(map[string]string{"subject": subject, "body": body})
		require.NoError(t, err)
		return post.do("POST", "/v1/inbox/email-reply", string(b))
	}
	status, a := agent.do("POST", "/v1/approvals", `{"tool_name":"count","request_data":{"what":"sheep"},"channel":"email"}`)
	require.Equal(t, 201, status, "%v", a)
	id, _ := a["approval_id"].(string)
	card := w.mailTo(mailserver.Ann, id[len("appr_"):], itself)
	// Whoever brings only the text says what the reply's address would have said.
	_, token, _ := strings.Cut(card.header.Get("Reply-To"), "+")
	token, _, _ = strings.Cut(token, "@")
	subject := "Re: " + email.SubjectTag(id[len("appr_"):], token)

	status, a = bring("Re: something else", "1")
	require.Equal(t, 422, status, "%v", a)
	status, a = bring("Re: "+card.subject, "1")
	require.Equal(t, 404, status, "without the token: %v", a)
	status, a = bring(subject, "no, deny this")
	require.NotEqual(t, "approved", a["status"], "%d %v", status, a)
	_, a = agent.do("GET", "/v1/approvals/"+id, "")
	require.Equal(t, "pending", a["status"])
	status, a = bring(subject, "4 count them twice")
	require.Equal(t, 200, status, "%v\n%s", a, w.daemon.said())
	require.Equal(t, map[string]any{"status": "approved", "approval_id": id}, a)
	_, a = agent.do("GET", "/v1/approvals/"+id+"?wait=60", "")
	require.Equal(t, "approved", a["outcome"], "%v", a)
	require.Equal(t, "count them twice", a["decision"].(map[string]any)["note"])
	status, a = bring(subject, "3")
	require.Equal(t, 409, status, "%v", a)
}
