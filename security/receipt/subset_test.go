package receipt_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/receipt"
)

const approvedArgs = `{"to":["ann","bob","bob",{"a":1}],"text":"hi","dry_run":true,"cc":["eve"]}`

func subsetFacts() approval.ReceiptFacts {
	f := testFacts()
	f.Tool, f.ArgsSHA256, f.ArgsSubset = "", approval.Digest([]byte(approvedArgs)), `["to"]`
	return f
}

// A receipt covers what was approved, or less of the lists that it names, and nothing else.
func TestCheckSubset(t *testing.T) {
	f, err := testVerifier(t).Parse(issue(t, subsetFacts()))
	require.NoError(t, err)
	require.Equal(t, `["to"]`, f.ArgsSubset)
	with := func(to string) string { return `{"to":` + to + `,"text":"hi","dry_run":true,"cc":["eve"]}` }
	for _, used := range []string{
		approvedArgs, with(`["ann"]`), with(`["bob","bob"]`), with(`[ "ann" , {"a":1} ]`),
		`{"cc":["eve"],"dry_run":true,"text":"hi","to":["bob"]}`,
	} {
		require.NoError(t, receipt.CheckSubset(f, []byte(approvedArgs), []byte(used)), used)
	}
	for why, used := range map[string]string{
		"another element":             with(`["ann","mallory"]`),
		"an element too often":        with(`["ann","ann"]`),
		"another order":               with(`["bob","ann"]`),
		"no element":                  with(`[]`),
		"no list":                     with(`"ann"`),
		"null":                        with(`null`),
		"the same, written otherwise": with(`["\u0061nn"]`),
		"a part of an element":        with(`[{}]`),
		"a member is missing":         `{"to":["ann"],"text":"hi","cc":["eve"]}`,
		"another value":               `{"to":["ann"],"text":"ho","dry_run":true,"cc":["eve"]}`,
		"a list that is not named":    `{"to":["ann"],"text":"hi","dry_run":true,"cc":[]}`,
		"an additional member":        `{"to":["ann"],"text":"hi","dry_run":true,"cc":["eve"],"x":1}`,
		"another name instead":        `{"to":["ann"],"text":"hi","dry_runs":true,"cc":["eve"]}`,
		"a name twice":                `{"to":["ann"],"to":["ann"],"text":"hi","dry_run":true,"cc":["eve"]}`,
		"two objects":                 with(`["ann"]`) + with(`["ann"]`),
		"no object":                   `["ann"]`,
		"nothing":                     ``,
	} {
		require.ErrorIs(t, receipt.CheckSubset(f, []byte(approvedArgs), []byte(used)), receipt.ErrOther, why)
	}
	require.ErrorIs(t, receipt.CheckSubset(f, []byte(with(`["ann"]`)), []byte(with(`["ann"]`))), receipt.ErrOther, "that was not approved")
	for _, names := range []string{"", "to", `["cc"]`} {
		f.ArgsSubset = names
		require.ErrorIs(t, receipt.CheckSubset(f, []byte(approvedArgs), []byte(with(`["ann"]`))), receipt.ErrOther, names)
	}
	f = subsetFacts()
	f.Tool = "x_post"
	require.ErrorIs(t, receipt.CheckSubset(f, []byte(approvedArgs), []byte(approvedArgs)), receipt.ErrOther, "a tool's receipt covers no part")
}

// No receipt for a tool covers a part of its arguments, so the executor never takes one: it
// asks for the approved arguments of its tool.
func TestToolsHaveNoSubset(t *testing.T) {
	f := subsetFacts()
	f.Tool = "x_post"
	signer, err := receipt.NewSigner(testPrivate)
	require.NoError(t, err)
	_, err = signer.Issue(f)
	require.ErrorContains(t, err, "args_subset or program_sha256 in a receipt for a tool")
	f.ArgsSubset, f.ProgramSHA256 = "", approval.Digest([]byte("def main(): pass"))
	_, err = signer.Issue(f)
	require.ErrorContains(t, err, "args_subset or program_sha256 in a receipt for a tool")

	text := issue(t, subsetFacts())
	body, _, _ := strings.Cut(text, "\n\n")
	for why, changed := range map[string]string{
		"a tool":        strings.Replace(body, `tool: ""`, "tool: x_post", 1),
		"nothing":       strings.Replace(body, `args_subset: ["to"]`, `args_subset: ""`, 1),
		"another place": strings.Replace(body, "\nargs_subset: [\"to\"]", "", 1) + "\nargs_subset: [\"to\"]",
		"twice":         strings.Replace(body, "args_subset: [\"to\"]\n", "args_subset: [\"to\"]\nargs_subset: [\"to\"]\n", 1),
	} {
		require.NotEqual(t, body, changed, why)
		_, err := testVerifier(t).Parse(sign(t, changed+"\n"))
		require.ErrorIs(t, err, receipt.ErrInvalid, why)
	}
	part := approval.Digest([]byte(`{"to":["ann"],"text":"hi","dry_run":true,"cc":["eve"]}`))
	for _, tool := range []string{"x_post", ""} {
		require.ErrorIs(t, testVerifier(t).Verify(text, f.Workspace, f.RequestID, tool, part), receipt.ErrOther)
	}
	require.ErrorIs(t, testVerifier(t).Verify(text, f.Workspace, f.RequestID, "x_post", f.ArgsSHA256), receipt.ErrOther)
}
