// Package policy rules on requests: allow, ask a person, or deny.
//
// # The five questions
//
// Every one of them is answered for every request, and every answer stands in
// the ruling's reasons. The strictest wins; nothing is decided by what came
// first.
//
//	1  hard deny   a deny rule, a forbidden property, a hard limit
//	2  base        autonomy × capability in the table; without a capability
//	               trust alone decides. An ask rule raises an allow; an allow
//	               rule lifts an ask, also one from dangerous_writes, never a deny
//	3  trust       a write asks when it is dangerous, or when the client has read
//	               what strangers wrote and what they must not see, and the tool
//	               reaches strangers (the trifecta)
//	4  secrets     one in the payload asks. A rate or a budget used up asks
//	5  consent     lifts an ask of the base and one from dangerous_writes alone
//
// Nothing lifts an ask from the trifecta, from secrets or from limits. A
// capability whose default is always is lifted only by a rule that names the
// tool and says something about each of its arguments.
//
// A rule may also depend on what is proven: an allow where it is (when_proven), a
// deny or an ask unless it is (unless_proven). Only verified proofs count and what
// the gate itself read, never the agent's word, and what is unknown is not proven.
// Such an allow lifts what consent lifts and nothing else.
//
// A condition that cannot be evaluated never makes the outcome milder: an allow
// rule with one does not apply, a deny or ask rule does.
//
// # Memory
//
// Policy judges without writing. What it remembers (taints, uses, rates,
// budgets, how often people approved a kind of thing) is a fold over the audit
// log: Learn takes one entry, in the log's order, and what a claim consumes
// stands in the claim's own entry, which is durable before the effect.
package policy
