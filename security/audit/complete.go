package audit

import (
	"fmt"
	"math"
	"strings"

	"github.com/permesso-dev/permesso/approval/event"
)

// Complete adds the entries of want that the log lacks, in their order, and returns
// their number: a crash may lose noted entries. It searches the complete log, so no
// entry is added twice. Call it before anything is written.
func (l *Log) Complete(want []event.Entry) (added int, err error) {
	missing := map[string]bool{}
	for _, e := range want {
		missing[factKey(e)] = true
	}
	if err := l.removeLogged(missing); err != nil {
		return 0, fmt.Errorf("complete audit log: %w", err)
	}
	for _, e := range want {
		if f := factKey(e); missing[f] {
			delete(missing, f)
			l.Note(e)
			added++
		}
	}
	if added > 0 {
		err = l.Sync()
	}
	return added, err
}

// removeLogged removes from missing what the log has. It begins with the newest
// segment, because a crash loses the newest entries.
func (l *Log) removeLogged(missing map[string]bool) error {
	all, err := segments(l.fs, l.dir)
	if err != nil {
		return err
	}
	w := &walk{fs: l.fs, dir: l.dir}
	stop := int64(math.MaxInt64)
	for i := len(all) - 1; i >= 0 && len(missing) > 0; i-- {
		first, err := firstSeq(l.fs, segmentPath(l.dir, all[i]))
		if err != nil {
			return err
		}
		end := stop
		if i == len(all)-1 {
			end = l.seq + 1 // torn lines after it do not count
		}
		_, err = w.segment(place{segment: all[i], seq: first}, stop, end, func(_ []byte, e event.Entry, _ place) error {
			delete(missing, factKey(e))
			return nil
		})
		if err != nil {
			return err
		}
		stop = first
	}
	return nil
}

// factKey is equal for two entries about the same fact: a request has one end, and
// one claim for each receipt.
func factKey(e event.Entry) string {
	kind, more := "end", ""
	switch e.Event {
	case event.Approved, event.AutoApproved:
		kind, more = "claim", e.ReceiptSHA256
	case event.Executed, event.Released, event.Failed, event.Interrupted,
		event.Denied, event.DeniedByUser, event.AutoRejected, event.Expired,
		event.Cancelled, event.RequestMore, event.Overridden, event.Answered,
		event.Malformed:
	default:
		kind, more = string(e.Event), e.Detail
	}
	return strings.Join([]string{kind, e.Workspace, e.RequestID, more}, "/")
}
