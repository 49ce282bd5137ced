package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/read"
)

// Settled is the event of a request that has ended.
const Settled = "settled"

// Events are the events that a webhook can tell.
func Events() []string { return []string{Settled} }

const (
	maxAge       = 72 * time.Hour // then a message is given up
	firstDelay   = 5 * time.Second
	longestDelay = 15 * time.Minute
	maxRefusals  = 6 // of one message, before it is set aside
	asideDelay   = time.Hour
	maxAside     = 100
	batch        = 100
	saveInterval = time.Second
	recordDelay  = 200 * time.Millisecond
	maxNoRecord  = time.Minute // an entry is committed before its record is visible
)

// auditLog is the durable part of the audit log.
type auditLog interface {
	// Moved returns the number of the newest entry, and a channel that is closed when there is a newer one.
	Moved() (newest int64, moved <-chan struct{})
	// Since calls each with the entries above seq, in order.
	Since(seq int64, each func(event.Entry) error) error
}

// states keeps the state across restarts.
type states interface {
	Put(name string, b []byte) error // durable when it returns
	Get(name string) ([]byte, error) // wraps fs.ErrNotExist if there is none
}

// Message is what is sent about a request.
type Message struct {
	ID   string
	Body []byte
}

// Hook sends messages to one receiver. Set the fields.
type Hook struct {
	Log        auditLog
	State      states
	Workspaces []string // nil: all
	// Message returns the message about a settled request, nil if it has no record.
	Message func(ctx context.Context, k approval.Key) (*Message, error)
	Post    func(ctx context.Context, id string, at time.Time, body []byte) (Response, error)
	// Report tells the operator what is wrong since when; "" ends that.
	Report func(what string)
	// GaveUp tells the operator of a message that is not tried again.
	GaveUp func(k approval.Key, err error)

	state   state
	saved   time.Time
	dirty   bool
	refused int       // attempts with the first message since a receiver took one
	tries   int       // failures since a receiver took a message
	since   time.Time // of the first of them
	gone    bool
	lost    bool // the state was not readable
}

// stateName is the name of the one file of the state.
const stateName = "state.json"

type state struct {
	Seq   int64     `json:"seq"` // what settled up to this entry was sent, or is in Aside
	Aside []settled `json:"aside,omitempty"`
	Again time.Time `json:"aside_at,omitzero"` // when Aside is tried
}

// settled is a request that has ended.
type settled struct {
	Seq       int64     `json:"seq"` // of its entry
	Workspace string    `json:"workspace"`
	ID        string    `json:"request_id"`
	At        time.Time `json:"at"`
}

func (x settled) key() approval.Key { return approval.Key{Workspace: x.Workspace, ID: x.ID} }

// Run sends messages until ctx ends.
func (h *Hook) Run(ctx context.Context) error {
	if err := h.load(); err != nil {
		return err
	}
	for ctx.Err() == nil && !h.gone {
		newest, moved := h.Log.Moved()
		h.state.Seq = min(h.state.Seq, newest) // less after an older home was restored
		wait, err := h.round(ctx)
		if err = errors.Join(err, h.save(true)); err != nil {
			return err
		}
		h.report()
		if wait > 0 {
			moved = nil // not before
		} else if len(h.state.Aside) > 0 {
			wait = max(time.Until(h.state.Again), time.Second)
		}
		pause(ctx, wait, moved)
	}
	<-ctx.Done()
	return nil
}

// pause waits for a time, or without one for the channel alone.
func pause(ctx context.Context, wait time.Duration, moved <-chan struct{}) {
	var after <-chan time.Time
	if wait > 0 {
		after = time.After(wait)
	}
	select {
	case <-ctx.Done():
	case <-after:
	case <-moved:
	}
}

func (h *Hook) load() error {
	b, err := h.State.Get(stateName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		h.state.Seq, _ = h.Log.Moved() // a new webhook
		h.dirty = true
	case err != nil:
		return err
	case json.Unmarshal(b, &h.state) != nil:
		h.state, h.lost = state{}, true
	}
	return h.save(true)
}

// save makes the state durable: now, or if it is time.
func (h *Hook) save(now bool) error {
	if !h.dirty || !now && time.Since(h.saved) < saveInterval {
		return nil
	}
	b, err := json.Marshal(h.state)
	if err == nil {
		err = h.State.Put(stateName, b)
	}
	if err == nil {
		h.dirty, h.saved = false, time.Now()
	}
	return err
}

// round sends what is due. It returns how long to wait at least; 0: until something settles.
func (h *Hook) round(ctx context.Context) (wait time.Duration, err error) {
	if wait, err = h.retryAside(ctx); wait > 0 || err != nil {
		return wait, err
	}
	for ctx.Err() == nil {
		list, upTo, err := h.next()
		if err != nil {
			return 0, err
		}
		for _, x := range list {
			done, wait, err := h.deliver(ctx, x)
			if !done || err != nil {
				return wait, err
			}
			h.state.Seq, h.dirty = x.Seq, true
			if err := h.save(false); err != nil {
				return 0, err
			}
		}
		h.state.Seq, h.lost = upTo, false
		if len(list) < batch {
			return 0, nil
		}
	}
	return 0, nil
}

var errFull = errors.New("enough")

// next returns the oldest messages that are not sent, and the entry up to which there are no others.
func (h *Hook) next() (list []settled, upTo int64, err error) {
	upTo = h.state.Seq
	err = h.Log.Since(upTo, func(e event.Entry) error {
		if len(list) == batch {
			return errFull
		}
		upTo = e.Seq
		x := settled{e.Seq, e.Workspace, e.RequestID, e.Time}
		switch {
		case read.EndedBy(&e) == "" || !approval.ValidID(e.RequestID):
		case h.Workspaces != nil && !slices.Contains(h.Workspaces, e.Workspace):
		case time.Since(e.Time) <= maxAge:
			list = append(list, x)
		case !h.lost:
			h.GaveUp(x.key(), fmt.Errorf("not delivered within %s", maxAge))
		}
		if len(list) == 0 {
			h.state.Seq = e.Seq
		}
		return nil
	})
	if errors.Is(err, errFull) {
		err = nil
	}
	return list, upTo, err
}

// deliver sends one message, or sets it aside. If it is not done, it says how long to wait.
func (h *Hook) deliver(ctx context.Context, x settled) (done bool, wait time.Duration, err error) {
	resp, err := h.attempt(ctx, x)
	switch {
	case ctx.Err() != nil || h.gone:
		return false, 0, nil
	case errors.Is(err, errNoRecord) && time.Since(x.At) < maxNoRecord:
		return false, recordDelay, nil
	case err == nil || errors.Is(err, errNoRecord):
		h.refused = 0
		return true, 0, nil
	}
	h.refused++
	if !isAlone(resp, err) || h.refused < maxRefusals || len(h.state.Aside) == maxAside {
		return false, max(resp.RetryAfter, delay(h.tries)), nil
	}
	h.refused = 0
	if h.state.Aside = append(h.state.Aside, x); len(h.state.Aside) == 1 {
		h.state.Again = time.Now().Add(asideDelay)
	}
	return true, 0, nil
}

// isAlone reports whether a failure may be that of one message. Others say that no message can be delivered now.
func isAlone(resp Response, err error) bool {
	switch resp.Status {
	case 0:
		return errors.Is(err, errUnreadable)
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return false
	}
	return true
}

// delay is how long to wait after so many failures. It is random within a quarter.
func delay(tries int) time.Duration {
	d := min(firstDelay<<min(tries-1, 20), longestDelay)
	return d - rand.N(d/4) //nolint:gosec // no secret
}

var (
	errNoRecord   = errors.New("the request has no record")
	errUnreadable = errors.New("its record cannot be read")
)

// attempt sends one message once.
func (h *Hook) attempt(ctx context.Context, x settled) (resp Response, err error) {
	m, err := h.Message(ctx, x.key())
	switch {
	case err != nil:
		err = fmt.Errorf("%s: %w: %w", x.key(), errUnreadable, err)
	case m == nil:
		return resp, errNoRecord
	default:
		if resp, err = h.Post(ctx, m.ID, time.Now(), m.Body); err == nil && !resp.Delivered() {
			err = fmt.Errorf("HTTP status %d", resp.Status)
		}
	}
	switch {
	case ctx.Err() != nil:
	case err == nil:
		h.tries, h.since = 0, time.Time{}
	case resp.Status == http.StatusGone:
		h.gone = true
		h.Report("is disabled until its configuration changes or the daemon starts again: the receiver answered 410 Gone")
	default:
		if h.tries++; h.tries == 1 {
			h.since = time.Now()
		}
		h.Report(fmt.Sprintf("fails since %s: %v", h.since.Local().Format(time.DateTime), err))
	}
	return resp, err
}

// retryAside tries the messages that were set aside, if it is time.
func (h *Hook) retryAside(ctx context.Context) (wait time.Duration, err error) {
	if len(h.state.Aside) == 0 || time.Now().Before(h.state.Again) {
		return 0, nil
	}
	h.state.Again, h.dirty = time.Now().Add(asideDelay), true
	for _, x := range slices.Clone(h.state.Aside) {
		resp, err := h.attempt(ctx, x)
		switch {
		case ctx.Err() != nil || h.gone:
			return 0, nil
		case err == nil || errors.Is(err, errNoRecord):
		case !isAlone(resp, err):
			return max(resp.RetryAfter, delay(h.tries)), nil
		default:
			if h.tries = 0; time.Since(x.At) <= maxAge {
				continue
			}
			h.GaveUp(x.key(), err)
		}
		h.state.Aside = slices.DeleteFunc(h.state.Aside, func(other settled) bool { return other.Seq == x.Seq })
		if err := h.save(false); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// report ends the report of failures, or tells of what was set aside.
func (h *Hook) report() {
	switch n := len(h.state.Aside); {
	case h.gone || h.tries > 0:
	case n > 0:
		h.Report(fmt.Sprintf("is refused %d of the requests, the first since %s; they are tried again each hour, for three days", n, h.state.Aside[0].At.Local().Format(time.DateTime)))
	default:
		h.Report("")
	}
}
