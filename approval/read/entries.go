package read

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval/event"
)

// EntryQuery selects entries of the audit log.
type EntryQuery struct {
	Workspaces []string
	All        bool // also entries without a workspace, or of one not listed
	Text       string
	Before     int64 // only entries with a lower number; 0: all
	Limit      int
	Line       func(event.Entry) string // an entry as the text in which Text is searched
}

// Entries lists entries of a log, newest first. more is true if older ones match too.
func Entries(ctx context.Context, log Log, q EntryQuery) (list []event.Entry, more bool, err error) {
	text := strings.ToLower(q.Text)
	var keep func(line []byte) bool
	if text != "" && plainASCII(text) { // lines are ASCII, so text can be found without decoding
		keep = func(line []byte) bool { return bytes.Contains(bytes.ToLower(line), []byte(text)) }
	}
	err = log(keep, func(e event.Entry) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !q.All && !slices.Contains(q.Workspaces, e.Workspace) || q.Before > 0 && e.Seq >= q.Before ||
			text != "" && !strings.Contains(strings.ToLower(q.Line(e)), text) {
			return nil
		}
		if len(list) == q.Limit {
			more = true
			return errStop
		}
		list = append(list, e)
		return nil
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	return list, more, err
}

// plainASCII reports whether JSON encodes a text unchanged.
func plainASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"\<>&`, r) })
}
