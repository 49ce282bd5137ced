package chat

import "github.com/permesso-dev/permesso/approval"

// DrainHints discards queued hints: one pass over the requests serves them all.
func DrainHints(changes <-chan approval.Key) {
	for {
		select {
		case _, open := <-changes:
			if !open {
				return
			}
		default:
			return
		}
	}
}
