package control

import (
	"context"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/httpapi"
)

// followWait is how long an answer waits for a change.
const followWait = 25 * time.Second

type followQuery struct {
	After int64 `query:"after" doc:"The position of the last answer; 0: answer at once."`
}

// followDoc is what waits at a position of the log.
type followDoc struct {
	At      int64        `json:"at"`
	Waiting []waitingDoc `json:"waiting"`
}

var opFollow = get("follow", "/waiting/changes", "Pending requests, after a change", (*Service).follow)

func (s *Service) follow(ctx context.Context, c *httpapi.Caller, in *followQuery) (d followDoc, err error) {
	end := time.NewTimer(followWait)
	defer end.Stop()
	for waits := s.Moved != nil; waits; {
		var moved <-chan struct{}
		if d.At, moved = s.Moved(); d.At != in.After {
			break
		}
		select {
		case <-moved:
		case <-end.C:
			waits = false
		case <-ctx.Done():
			return d, ctx.Err()
		}
	}
	d.Waiting, err = s.waiting(ctx, c, &waitingQuery{})
	return d, err
}

// Follow lists the pending requests, oldest first, once the log is no longer at a position, or after a while. It
// returns its new position, for the next call. The first call is with 0.
func (c *Client) Follow(ctx context.Context, after int64) (list []approval.StoredPending, at int64, err error) {
	d, err := call(ctx, c, opFollow, followQuery{after})
	for _, doc := range d.Waiting {
		w, err := doc.stored()
		if err != nil {
			return nil, 0, err
		}
		list = append(list, *w)
	}
	return list, d.At, err
}

// Greet returns an error if the daemon of a HOME takes connections and does not answer.
func Greet(ctx context.Context, a *console.Console, h *home.Home) error {
	if _, err := connect(ctx, a, h.Layout.Socket()); isSilent(err) {
		return silent(h, h.HealthAt(time.Now()))
	}
	return nil
}

// OpenServed connects to a running daemon: of this home, or at the approver socket. It never locks the home.
func OpenServed(ctx context.Context, a *console.Console) (*Client, error) {
	if dir, err := home.Find(a); err == nil {
		c, err := connect(ctx, a, ipc.Layout{Home: dir}.Socket())
		if err == nil || !isAbsent(err) {
			return c, err
		}
	}
	return openSocket(ctx, a, socketPath(a))
}

// recheck is how often AwaitRecord looks without a change of the log: another commit may have
// written the entry of an end just before the record was visible.
const recheck = time.Second

// AwaitRecord returns the story of a request that is to end, once it has ended.
func (c *Client) AwaitRecord(ctx context.Context, k approval.Key) (s Story, err error) {
	for at := int64(0); ; {
		s, err = c.Story(ctx, k, false)
		if err != nil || s.Record != nil {
			return s, err
		}
		wait, cancel := context.WithTimeout(ctx, recheck)
		_, newest, err := c.Follow(wait, at)
		cancel()
		switch {
		case err == nil:
			at = newest
		case wait.Err() == nil || ctx.Err() != nil:
			return s, err
		}
	}
}
