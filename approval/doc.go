// Package approval defines the documents of an approval, their digests, and the tools,
// workspaces and people that they name. It is pure: no files, no network, no clock, no
// chat.
//
// The packages below it are pure, too:
//
//	codec   strict JSON, which the documents are written in
//	move    chooses the next step from the documents that exist
//	facts   what is known of a request besides the agent's words
//	grant   what an agent may do without a new approval
//	apikey  keys for the HTTP API
//	event   the entries of the audit log
//	hints   what an operator can do about an error
//	store   what the gate needs of the place where documents are kept
//	submit  what a protocol says with a request
//	decide  what an entrance says with a decision, and how the gate refuses
//
// # Documents
//
// One request is a set of files that share its id. Each is written once and never
// edited. The state is which of them exist.
//
//	Q  request      requests/ID.json            written by the agent, untrusted
//	X  cancel       requests/ID.cancel          its content is never read
//	P  pending      pending_approvals/ID.json   a person is being asked
//	D  decision     approval_decisions/ID.json  the slot: first create wins
//	R  receipt      receipts/WS/ID.json         the claim: durable before the effect
//	C  record       records/WS/ID.json          the outcome, and the response's bytes
//	S  response     responses/ID.json           what the agent reads
//
// A step of a program has an R and a C of its own, under the program's id and .step-N. No
// agent can choose such an id.
//
// P, D, R and C end in a MAC. A file whose MAC does not verify is not the document.
//
// # Evidence
//
// P holds facts: what the gate itself derives from the request's bytes, and what
// the request's proof says. A proof is verified if a prover that the operator named
// has signed it for the program that would run; otherwise it is the agent's claim.
// facts.Of collects the facts and facts.ByDomain sorts them. Cards and rules both use
// that result. What no fact covers is unknown, never safe.
package approval
