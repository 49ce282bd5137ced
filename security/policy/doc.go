// Package policy rules on requests: allow, ask a person, or deny.
//
// # The five questions
//
// Each request is checked against all five, and each result is in the ruling's
// reasons. The strictest result wins, regardless of order.
//
//	1  hard deny   a deny rule, a forbidden property, a hard limit
//	2  base        autonomy × capability in the table; without a capability
//	               trust alone decides. An ask rule raises an allow; an allow
//	               rule lifts an ask, also one from dangerous_writes, never a deny
//	3  trust       a write asks if it is dangerous, or if the client has read
//	               both public content and secret data and the tool writes to
//	               a public sink (the trifecta)
//	               A rule may state what the requests that it allows read and reach
//	4  secrets     a secret in the payload asks, unless its tool allows or denies it;
//	               an exhausted rate or budget asks, or denies
//	5  grants      lift an ask of the base and one from dangerous_writes alone
//
// Nothing lifts an ask from limits. One from the trifecta or from secrets is lifted only by
// an allow rule that says so and lists every destination. A capability with the default "always" is lifted only by a rule that names the
// tool and has a condition on each argument.
//
// A rule may also depend on what is proven: an allow applies if it is (when_proven),
// a deny or an ask unless it is (unless_proven). Only verified proofs and arguments
// that the gate read count, never the agent's claims. What is unknown is not proven.
// Such an allow lifts what a grant lifts and nothing else.
//
// # Conditions
//
// A condition is read by the declared type of its argument (condition.go; RULES.md says what
// each means). An allow is read narrowly: what could be read in two ways does not match. A
// deny and an ask are read widely: they match in every spelling. A condition that cannot be
// evaluated never makes the outcome milder: then an allow does not apply, an ask does, and a
// deny asks a person, whatever was granted. Engine.Resolve says where a path leads; a ruling
// is judged again right before its claim.
//
// # Memory
//
// Policy writes nothing. Its memory (taints, uses, rates, budgets, number of human
// approvals of each kind) is a fold over the audit log. Learn takes the entries in
// the log's order. What a claim consumes is in the claim's own entry, which is
// durable before the effect.
package policy
