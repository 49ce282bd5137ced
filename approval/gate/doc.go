// Package gate takes requests in, has them decided, runs what was approved, and
// writes the outcome. It wakes a key, loads its documents, asks move.Next for the
// next move, and makes that move. It repeats this until the key is settled or has to
// wait.
//
// # One request's way
//
// These functions take a request from its file to its response. Each is called by the
// one before it, or by those named, directly or through one helper. Policy allows (4),
// or a person is asked (5) and decides (6).
//
//  1. Gate.worker: takes a key from the queue, when the watcher, a timer, a decision or
//     the end of a run has woken it.
//  2. Gate.settleKey: loads the documents and asks move.Next, until the key waits.
//  3. Gate.intake: evaluates the request with one configuration.
//  4. Gate.allow: reserves space, a handler slot and what policy counts.
//  5. Gate.ask (from 3): writes the pending (P). Channels show it.
//  6. Decider.Decide (from outside): writes the decision (D), in this process or another.
//  7. Gate.claimDecided (from 2): checks that the approval may still run.
//  8. Gate.execute (from 4, 7): commits the claim (R) and its audit entry.
//  9. Gate.runHandler: runs the handler. Its outcome stays in memory.
//  10. Gate.writeOutcome (from 2): in the key's next step, writes the outcome.
//  11. Gate.end: commits the record (C), with the response's bytes in it, and shows the
//     response (S).
//
// Each step that does work loads the documents once: after (3) and (7) the gate knows
// what it wrote, and a running key waits without a load.
//
// # Order
//
// A move is one commit: its documents and audit entries are durable together, then they
// become visible, then anyone is told or the effect begins. Nothing else is synced. A crash
// before or after a commit leaves documents from which Next finds the correct next move:
//
//	ask      {P, entry}, then remove Q
//	decide   D in its slot; check that it still counts; {D}; then tell the approver
//	claim    {R, entry}; then the effect
//	end      {C, entry}, and S; then remove D R Q X, P last
//	step     of a program: {R, entry} under a key of its own; its effect; {C, entry}. Of a tool
//	         that runs nothing: {entry, C, entry}. See program.go
//	release  {claim's entry, C, entry}, and S: of a tool that runs nothing
//	expire   D in its slot, not durable; then end. The same for a cancelled request
//	settle   S from C; then remove the rest
//	prune    {entry}; a checkpoint; remove S, then C; a checkpoint; then the id is new.
//	         The same to make room: see quota.go
//
// If a commit fails, nothing has happened, and the key is retried later. An examination
// finds out whether the disk as a whole has failed: see degrade.go. After an error that
// wraps store.ErrRestart it is unknown what is durable: the gate stops, and a restart goes on
// with what is.
//
// Nothing runs without R, and R is written once. So nothing runs twice. A tool that runs
// nothing gives a receipt, which only C holds.
package gate
