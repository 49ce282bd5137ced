package gate_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/facts"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/security/policy"
)

const program = "send('bob@example.com')"

func prover() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32)) }

// requestWithProof is a request that runs program, with a signed proof that it mails
// to one person.
func requestWithProof(t *testing.T, k approval.Key, by ed25519.PrivateKey, recipient string) string {
	t.Helper()
	args, err := json.Marshal(map[string]string{"code": program})
	require.NoError(t, err)
	proof := `{"prover":"lab","tool":"script","args_sha256":"` + approval.Digest(args) + `","expires":"2099-01-01T00:00:00Z","program_sha256":"` + approval.Digest([]byte(program)) + `","effects":[{"domain":"email","op":"send","args":{ "recipient": "` + recipient + `" },"status":"proven"}]}`
	b, err := facts.ProofBytes(approval.Raw(proof))
	require.NoError(t, err)
	proof = proof[:len(proof)-1] + `,"signature":"` + base64.StdEncoding.EncodeToString(ed25519.Sign(by, b)) + `"}`
	return request(k, "script", string(args), `"proof":`+proof)
}

// The evidence is sealed in the pending or, if no person is asked, in the record. The
// log has it, too.
func TestEvidenceIsKept(t *testing.T) {
	mail := []policy.Clause{{Domain: "mail", Op: "send", Kind: policy.Only, Arg: "recipient", Values: []string{"bob@example.com"}}}
	boss := []policy.Clause{{Domain: "mail", Kind: policy.AtMost, Arg: "recipient", Values: []string{"ceo@example.com"}}}
	h := newRig(t, options{
		frozenClock: true, inline: true,
		tools: map[string]approval.Tool{"script": {
			Name: "script", Args: map[string]approval.Argument{"code": {Type: facts.TypeProgram}}, Handler: approval.Handler{Kind: approval.HandlerCommand, Argv: []string{"/bin/script"}},
		}},
		rules: []policy.Rule{
			{Name: "friends", Tool: policy.Names{"script"}, Outcome: approval.Allow, WhenProven: mail},
			{Name: "not the boss", Tool: policy.Names{"script"}, Outcome: approval.Deny, UnlessProven: boss},
		},
		provers: facts.Provers{"lab": prover().Public().(ed25519.PublicKey)},
	})
	allowed, asks, denied, claimed := key(1), key(2), key(3), key(4)
	h.writeRequest(allowed, requestWithProof(t, allowed, prover(), "bob@example.com"))
	_, err := h.submit(asks, requestWithProof(t, asks, prover(), "eve@example.com"), apiClient)
	require.NoError(t, err)
	h.writeDoc(approval.DocPending, denied, requestWithProof(t, denied, prover(), "ceo@example.com"))
	h.writeRequest(claimed, requestWithProof(t, claimed, ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, 32)), "bob@example.com"))
	h.reopen()
	h.step(h.keys...)

	const word = `proven clauses="mail send: every recipient is bob@example.com" prover=lab source=source_proof`
	rec := h.record(allowed)
	require.Equal(t, "auto_approved", h.outcome(allowed))
	require.Equal(t, "friends", rec.Ruling.Rule)
	require.Equal(t, word, rec.Ruling.Proven.String())
	require.Equal(t, rec.Receipt, *h.response(allowed).Receipt)
	require.True(t, rec.Facts.Proof.Verified)
	require.Equal(t, "lab", rec.Facts.Proof.Prover)
	require.Equal(t, approval.Raw(`{"recipient":"bob@example.com"}`), rec.Facts.Proof.Effects[0].Args)
	entry := h.entry(allowed, event.AutoApproved)
	require.Equal(t, "friends", entry.Rule)
	require.Equal(t, word, entry.Reason)
	require.Equal(t, approval.Digest([]byte(rec.Receipt)), entry.ReceiptSHA256)

	h.reopen() // it is readable after a restart
	p := h.pending(asks)
	require.NotNil(t, p)
	require.True(t, p.Facts.Proof.Verified, "verified, although no rule uses it")
	require.Contains(t, string(p.Proof), `{ "recipient": "eve@example.com" }`, "the request's own bytes")
	require.Contains(t, p.Facts.Host, approval.HostFact{Domain: "digest", Name: "args_sha256", Values: []string{approval.Digest(p.RequestData)}, From: "digest"})

	for k, why := range map[approval.Key]string{
		denied:  `rule_deny clause="mail: at most 0 to ceo@example.com" gap=gap_more rule="not the boss"`,
		claimed: `rule_deny clause="mail: at most 0 to ceo@example.com" gap=gap_claim rule="not the boss" why=proof_signature`,
	} {
		require.Equal(t, "auto_rejected: Denied by policy: "+why, h.outcome(k))
		require.Equal(t, "not the boss", h.record(k).Ruling.Rule)
		require.Nil(t, h.record(k).Facts, "the reason is kept")
		require.Nil(t, h.response(k).Receipt)
		require.Empty(t, h.executor.argsOf(k), "nothing ran")
	}
	require.Len(t, h.executor.argsOf(allowed), 1)

	h.decide(decision(asks, approval.Approved))
	h.step(asks)
	require.Equal(t, "approved", h.outcome(asks), "a person may approve despite the proof")
	require.Empty(t, h.entry(asks, event.Approved).Reason)
}

// Without a configured prover no proof is verified.
func TestProofWithoutProversIsUnverified(t *testing.T) {
	h := newRig(t, options{frozenClock: true, inline: true, tools: map[string]approval.Tool{"script": {Name: "script", Args: map[string]approval.Argument{"code": {Type: facts.TypeProgram}}}}})
	h.ask(key(1), requestWithProof(t, key(1), prover(), "bob@example.com"))
	require.Equal(t, "proof_unknown_prover", h.pending(key(1)).Facts.Proof.Why.String())
	h.ask(key(2), request(key(2), "script", `{"code":"x"}`, `"proof":{"anything":["you","like"]}`))
	require.Equal(t, `proof_unreadable error="unknown key \"anything\""`, h.pending(key(2)).Facts.Proof.Why.String())
	require.JSONEq(t, `{"anything":["you","like"]}`, string(h.pending(key(2)).Proof))
}

// entry returns the audit entry of one event of a request.
func (h *rig) entry(k approval.Key, kind event.Kind) (found event.Entry) {
	require.NoError(h.t, h.log.Sync())
	require.NoError(h.t, audit.Entries(ipc.OS(), h.layout.Audit(), func(e event.Entry) error {
		if e.Workspace == k.Workspace && e.RequestID == k.ID && e.Event == kind {
			found = e
		}
		return nil
	}))
	require.Equal(h.t, kind, found.Event)
	return found
}
