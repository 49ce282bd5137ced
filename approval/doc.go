// Package approval defines the documents of an approval, their strict codec,
// their digests, and Next, which chooses the next step. It is pure: no files, no
// network, no clock, no chat.
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
// P, D, R and C end in a MAC. A file whose MAC does not verify is not the document.
//
// # Evidence
//
// P holds facts: what the gate itself derives from the request's bytes, and what
// the request's proof says. A proof is verified if a prover that the operator named
// has signed it for the program that would run; otherwise it is the agent's claim.
// EvidenceOf collects the facts and ByDomain sorts them. Cards and rules both use
// that result. What no fact covers is unknown, never safe.
//
// # States
//
// Next looks at the documents of one key and names the first row that fits.
// Documents that a row does not name may be present or not.
//
//	row  files  when                                        move
//	1    C      P D R Q X left, or S missing or torn        settle
//	            (once its retention is over, S may be gone)
//	2    R      running here                                wait
//	3    R      not running here                            end interrupted; an idempotent tool
//	                                                        without a second claim: run once more
//	4    P D    D not valid, or another P's                 reject D, the slot is free again
//	5    P D    approved, now <= run_before, tool unchanged claim, run, end
//	            tool gone or changed                        end failed
//	6    P D    approved, later than run_before             end expired
//	7    P D    any other verdict                           end with it
//	8    P Q    same bytes                                  drop Q
//	            other bytes                                 reject Q
//	9    P X                                                decide cancelled
//	10   P      now >= expires_at                           decide expired
//	11   P                                                  wait for expires_at
//	12   Q      incomplete, first seen less than 2 s ago    wait
//	13   Q      (or a P without a seal, from a host program) intake
//	14   D                                                  reject D
//	15   X                                                  drop X
//	16   nothing, or settled                                rest
//
// Recovery after a crash is the same: Next is called with the documents that exist.
package approval
