package audit

import (
	"fmt"
	"math"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// Complete adds those of want that the log lacks, in their order, and returns
// how many: entries that were only noted when a crash came. What is in the log
// already is found wherever it stands, so nothing is ever doubled. Call it
// before anything is written.
func (l *Log) Complete(want []approval.Entry) (added int, err error) {
	missing := map[string]bool{}
	for _, e := range want {
		missing[fact(e)] = true
	}
	if err := l.strike(missing); err != nil {
		return 0, fmt.Errorf("complete audit log: %w", err)
	}
	for _, e := range want {
		if f := fact(e); missing[f] {
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

// strike takes out of missing what the log has, the newest segment first: what
// a crash can take away was written last.
func (l *Log) strike(missing map[string]bool) error {
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
			end = l.seq + 1 // what is torn behind it never counted
		}
		_, err = w.segment(place{segment: all[i], seq: first}, stop, end, func(_ []byte, e approval.Entry, _ place) error {
			delete(missing, fact(e))
			return nil
		})
		if err != nil {
			return err
		}
		stop = first
	}
	return nil
}

// fact is what two entries have in common when they tell of the same thing: of
// a request there is one end, and one claim for each receipt.
func fact(e approval.Entry) string {
	kind, more := "end", ""
	switch e.Event {
	case approval.EventApproved, approval.EventAutoApproved:
		kind, more = "claim", e.ReceiptSHA256
	case approval.EventExecuted, approval.EventReleased, approval.EventFailed, approval.EventInterrupted,
		approval.EventDenied, approval.EventDeniedByUser, approval.EventAutoRejected, approval.EventExpired,
		approval.EventCancelled, approval.EventRequestMore, approval.EventOverridden, approval.EventAnswered,
		approval.EventMalformed:
	default:
		kind, more = string(e.Event), e.Detail
	}
	return strings.Join([]string{kind, e.Workspace, e.RequestID, more}, "/")
}
