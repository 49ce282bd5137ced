package web

import (
	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
)

// Words are the texts that the code chooses.
type Words = words

// Files are the templates and the static files.
var Files = files

// SessionRoutes lists the patterns of the routes that need a session.
func SessionRoutes() (patterns []string) {
	for _, r := range sessionRoutes() {
		patterns = append(patterns, r.pattern)
	}
	return patterns
}

// RemovedBetween adds requests to an empty list and removes them, each with a revision of its
// own, and returns the ids of those that existed at one revision and were removed up to another.
func RemovedBetween(ids []string, rev, to int64) (removed []string) {
	f := &pendingCache{}
	f.init()
	keys := make([]approval.Key, len(ids))
	for n, id := range ids {
		keys[n] = approval.Key{Workspace: "default", ID: id}
		f.put(approval.StoredPending{Pending: &approval.Pending{RequestID: id, SourceGroup: "default"}, SHA256: id})
	}
	for _, k := range keys {
		f.drop(k)
	}
	list, _ := f.removedBetween(rev, to)
	for _, i := range list {
		removed = append(removed, i.Pending.RequestID)
	}
	return removed
}

// BlockTexts are the lines of a card as a page shows them, and the numbers of those that are
// lines of a value.
func BlockTexts(lines []chat.Line) (texts, numbers []string) {
	for _, b := range blocksOf(lines) {
		for _, l := range b.Lines {
			texts = append(texts, l.Label+l.Text)
		}
		for _, r := range b.Rows {
			texts, numbers = append(texts, r.Lead+r.Text), append(numbers, r.Number)
		}
	}
	return texts, numbers
}
