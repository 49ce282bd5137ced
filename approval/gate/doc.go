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
//  8. Gate.execute (from 4, 7): writes the claim (R) and its audit entry.
//  9. Gate.runHandler: runs the handler. Its outcome stays in memory.
//  10. Gate.writeOutcome (from 2): in the key's next step, writes the outcome.
//  11. Gate.end: writes the record (C), with the response's bytes in it.
//  12. Gate.showResponse: makes the response (S) visible, then durable.
//
// Each step that does work loads the documents once: after (3) and (7) the gate knows
// what it wrote, and a running key waits without a load.
//
// # Order
//
// Each move is a few writes in a fixed order. A crash between any two of them leaves
// documents from which Next finds the correct next move:
//
//	ask     P durable, then remove Q
//	claim   R and the audit entry durable, in parallel; then the effect
//	end     C durable, then S visible
//	settle  S durable, then remove D R Q X, P last
//	decide  D durable, then check for C, then tell the approver
//	prune   the removal of S D R Q X P durable, then C's removal durable, then the id is new
//
// If a move fails, its key is retried later. An examination finds out whether the
// disk as a whole has failed: see degrade.go.
//
// Nothing runs without R, and R is written once. So nothing runs twice. Documents
// that are visible after a kill may not be durable yet. So the whole file system is
// synced before Start.
package gate
