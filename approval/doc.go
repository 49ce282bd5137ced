// Package approval holds what an approval is: the documents, their strict
// codec, their digests, and the one question that moves everything, Next. It
// is pure: no files, no network, no clock, no chat.
//
// # Documents
//
// One request is a handful of files that share its id. Each is written once
// and never edited; the state is which of them exist.
//
//	Q  request      requests/ID.json            the agent's words, untrusted
//	X  cancel       requests/ID.cancel          its content is never read
//	P  pending      pending_approvals/ID.json   a person is being asked
//	D  decision     approval_decisions/ID.json  the slot: first create wins
//	R  receipt      receipts/WS/ID.json         the claim: durable before the effect
//	C  record       records/WS/ID.json          the story, and the response's bytes
//	S  response     responses/ID.json           what the agent reads
//
// P, D, R and C end in a MAC; what does not verify is not the document.
//
// # Evidence
//
// What is known of a request besides its bytes stands in P as facts: what the gate
// reads out of them by itself, and what a proof says that came along. A proof is
// verified where a prover that the operator named has signed it for the program
// that would run; otherwise it is a claim, the agent's own words. EvidenceOf says
// which, ByDomain sorts all of it, and nobody judges it twice: cards and rules go
// by the same. What nothing speaks of is unknown, never safe.
//
// # States
//
// Next looks at the documents of one key and names the first row that fits.
// Documents that a row does not name may be there or not.
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
// A crash is no special case: after it the same question is asked of what is
// left.
package approval
