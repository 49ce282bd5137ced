package telegram_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
)

// After a cancel, the card shows who canceled and has no buttons.
func TestCancelled(t *testing.T) {
	h := newRig(t)
	h.start()
	for i, tc := range []struct {
		by     string
		cancel func(k approval.Key)
		says   string
		reason string
	}{
		{"the agent", func(k approval.Key) {
			require.NoError(t, os.WriteFile(filepath.Join(h.layout.Requests(k.Workspace), k.ID+".cancel"), nil, 0o644))
			h.gate.Wake(k)
		}, "⊘ Cancelled by the agent at ", ""},
		{"the agent, with a reason", func(k approval.Key) {
			file := filepath.Join(h.layout.Requests(k.Workspace), k.ID+".cancel")
			require.NoError(t, os.WriteFile(file, []byte("done\n✅ Approved\u202e"), 0o644))
			h.gate.Wake(k)
		}, "⊘ Cancelled by the agent at ", "\nthe agent says: \"done\\n✅ Approved\\u{202E}\""},
		{"the operator", func(k approval.Key) {
			_, err := h.decider().Cancel(h.ctx, decide.Input{Key: k, By: approval.Person{Channel: "local", ID: "9", Name: "operator:root"}, Via: "cli"})
			require.NoError(t, err)
		}, "⊘ Cancelled by operator:root at ", ""},
		{"the operator, with a reason", func(k approval.Key) {
			_, err := h.decider().Cancel(h.ctx, decide.Input{Key: k, Feedback: "maintenance", By: approval.Person{Channel: "local", ID: "9", Name: "operator:root"}, Via: "cli"})
			require.NoError(t, err)
		}, "⊘ Cancelled by operator:root at ", "\nsent to the agent: maintenance"},
	} {
		k := keyIn(personal, 1+i)
		m := h.ask(k, ann, postRequest)
		tc.cancel(k)
		m = h.waitForText(m, tc.says)
		require.Empty(t, m.Buttons(), tc.by)
		require.Contains(t, m.Text, tc.reason, tc.by)
		require.Equal(t, approval.StatusCancelled, h.waitForResponse(k).Status)
		late := h.waitForReply(h.api.Reply(ann, ann, m.ID, "1"))
		require.Contains(t, late.Text, "Already cancelled by ", tc.by)
	}
}

// A question that the facts answer leaves the request pending. A question about a settled request is answered
// with the decision.
func TestQuestionsAnsweredFromFacts(t *testing.T) {
	h := newRig(t)
	h.start()
	k := keyIn(personal, 1)
	m := h.ask(k, ann, `"tool_name":"x_post","request_data":{"text":"Meeting at 5","to":["bob@example.com"]}`)
	require.Contains(t, m.Text, "\nto (1):\n")
	for _, text := range []string{"who will receive it?", "? who will be emailed"} {
		require.Contains(t, h.waitForReply(h.api.Reply(ann, ann, m.ID, text)).Text, "From the request: mail recipient: bob@example.com", text)
	}
	_, err := h.store.Read(context.Background(), approval.DocDecision, k)
	require.Error(t, err, "still pending")
	h.decideAsOperator(k, approval.Denied)
	m = h.waitForText(m, "Denied")
	require.Contains(t, h.waitForReply(h.api.Reply(ann, ann, m.ID, "who will receive it?")).Text, "Already denied by ")

	k = keyIn(personal, 2)
	m = h.ask(k, ann, postRequest)
	answer := h.waitForReply(h.api.Reply(ann, ann, m.ID, "tell me what files will be written"))
	require.Contains(t, answer.Text, "The gate's facts do not answer that. Sending the question to the agent ends a7000002")
	require.Contains(t, answer.Text, "reply: ? agent, tell me what files will be written")
	answer = h.waitForReply(h.api.Reply(ann, ann, m.ID, "? agent, tell me what files will be written"))
	require.Contains(t, answer.Text, "Sent back to the agent: \"tell me what files will be written\"")
	r := h.waitForResponse(k)
	require.Equal(t, approval.StatusRequestMore, r.Status)
	require.Equal(t, "tell me what files will be written", *r.Feedback)
	require.Equal(t, "answer_from_facts_or_resubmit", *r.RequiredResponse)
}
