// Package service is what every protocol offers a client: to submit a request, to wait
// for its end, to cancel it, and to see it. It knows no protocol.
package service

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/decide"
	"github.com/permesso-dev/permesso/approval/read"
	"github.com/permesso-dev/permesso/approval/submit"
)

// gate submits requests, and cancels them for their own client.
type gate interface {
	Submit(ctx context.Context, k approval.Key, request []byte, from submit.Origin) (submit.Result, error)
	Cancel(ctx context.Context, k approval.Key, from submit.Origin, reason string) (*approval.Decision, error)
}

// viewer reads verified documents.
type viewer interface {
	Waiting(ctx context.Context, workspaces []string) ([]approval.StoredPending, error)
	Story(ctx context.Context, k approval.Key) (read.Story, error)
	Find(ctx context.Context, workspaces []string, typed string) ([]approval.Key, error)
}

// history finds requests, the newest first. more is true if there are more.
type history interface {
	Requests(q read.Query) (list []*read.Request, more bool, err error)
}

// settings is the current configuration.
type settings interface {
	WorkspaceInfo(workspace string) (WorkspaceInfo, bool)
}

// WorkspaceInfo says where the approvers of a workspace may be asked.
type WorkspaceInfo struct {
	Approvers []string // the names of those who may decide
	Channels  []string
	Targets   map[string][]string // by channel: the places where approvers may be asked
	MaxSize   int                 // of a request, in bytes
}

// Service serves clients. Fill in the fields.
type Service struct {
	Gate     gate
	Viewer   viewer
	History  history // nil: only pending requests are listed
	Settings settings

	SubmitTimeout time.Duration // 0: none

	hub hub
}

// Client is who asks. A protocol has authenticated it.
type Client struct {
	Workspace string
	ID        string // as documents name it
	Owner     string // only this approver may decide its requests; "": any
	Secret    string // makes ids from idempotency keys impossible to guess
	All       bool   // sees all requests of its workspace, not only its own
	// StillValid reports whether the client's credentials were not revoked since.
	StillValid func() bool
}

func (c *Client) key(id string) approval.Key { return approval.Key{Workspace: c.Workspace, ID: id} }

// Sees reports whether the client may see a request of another client, or its own.
func (c *Client) Sees(client string) bool { return c.All || client == c.ID }

// ErrRevoked says that the client's credentials were revoked while it waited.
var ErrRevoked = errors.New("credentials revoked")

// Submission is a new request.
type Submission struct {
	Request        approval.Request // without an id
	IdempotencyKey string           // the same key and request are one request; "": none
	Channel        string           // ask only there; "": everywhere
	// Target is the one place to ask, by channel, of those that the operator has configured.
	Target map[string]string
}

// Submit gives a request an id and submits it to the gate. If the short form of a random
// id is taken, it draws another. The errors are those of the gate; ErrMalformed also for a
// channel or target that the operator has not configured.
func (s *Service) Submit(ctx context.Context, c *Client, w *Submission) (k approval.Key, t submit.Result, err error) {
	from := submit.Origin{ClientID: c.ID, Principal: c.Owner, Fresh: w.IdempotencyKey == ""}
	if from.AskOn, err = s.askOn(c, w); err != nil {
		return k, t, fmt.Errorf("%w: %w", approval.ErrMalformed, err)
	}
	if s.SubmitTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.SubmitTimeout)
		defer cancel()
	}
	k = c.key(newID(c, w.IdempotencyKey))
	if w.Request.Continues != "" {
		k.ID, from.Fresh = approval.ContinuationID(w.Request.Continues), false
	}
	w.Request.RequestID = k.ID
	b, err := w.Request.Encode()
	if err != nil {
		return k, t, fmt.Errorf("%w: %w", approval.ErrMalformed, err)
	}
	t, err = s.Gate.Submit(ctx, k, b, from)
	return k, t, err
}

// askOn is the channel on which a submission is asked; "": all of the workspace's.
func (s *Service) askOn(c *Client, w *Submission) (string, error) {
	info, _ := s.Settings.WorkspaceInfo(c.Workspace)
	on := w.Channel
	for channel, target := range w.Target {
		if on != "" && on != channel || !slices.Contains(info.Targets[channel], target) {
			return "", errors.New("target is not configured for this workspace")
		}
		on = channel
	}
	if on != "" && !slices.Contains(info.Channels, on) {
		return "", fmt.Errorf("this workspace has no channel %s", on)
	}
	return on, nil
}

// newID is a request's id: random, or derived from the client's idempotency key and
// secret.
func newID(c *Client, idempotencyKey string) string {
	var id [16]byte
	if idempotencyKey == "" {
		_, _ = rand.Read(id[:]) // never fails: see crypto/rand
		return hex.EncodeToString(id[:])
	}
	return approval.Digest([]byte("permesso request\x00" + c.Secret + "\x00" + idempotencyKey))[:2*len(id)]
}

// Find reads a request. The error wraps ErrUnknown if there is none that the client sees.
func (s *Service) Find(ctx context.Context, c *Client, id string) (read.Story, error) {
	st, err := s.Viewer.Story(ctx, c.key(id))
	switch {
	case err != nil:
		return read.Story{}, err
	case !st.Exists() || !c.Sees(st.Client(c.Workspace)):
		return read.Story{}, decide.ErrUnknown
	}
	return st, nil
}

// NamedStory is a request, and what is kept of it.
type NamedStory struct {
	Key approval.Key
	read.Story
}

// Named reads the requests that the client sees and that digits may name.
func (s *Service) Named(ctx context.Context, c *Client, typed string) (found []NamedStory, err error) {
	keys, err := s.Viewer.Find(ctx, []string{c.Workspace}, typed)
	for _, k := range keys {
		st, err := s.Find(ctx, c, k.ID)
		switch {
		case err == nil:
			found = append(found, NamedStory{k, st})
		case !errors.Is(err, decide.ErrUnknown):
			return nil, err
		}
	}
	return found, err
}

// Wait is Find once the request has ended, or timeout is over, or quit is closed.
func (s *Service) Wait(ctx context.Context, c *Client, id string, timeout time.Duration, quit <-chan struct{}) (read.Story, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for last := false; ; {
		woken, unsubscribe := s.hub.subscribe(c.key(id))
		st, err := s.Find(ctx, c, id) // after subscribing: no change is missed
		if !c.StillValid() {          // after reading: it may have been revoked since the client was let in
			unsubscribe()
			return read.Story{}, ErrRevoked
		}
		if err != nil || st.Record != nil || last {
			unsubscribe()
			return st, err
		}
		select {
		case <-woken:
		case <-timer.C:
			last = true
		case <-quit:
			last = true
		case <-ctx.Done():
			unsubscribe()
			return st, ctx.Err()
		}
		unsubscribe()
	}
}

// Changed wakes clients that wait for a request: it may have changed. It never blocks.
func (s *Service) Changed(k approval.Key) { s.hub.wake(k) }

// Cancel cancels a request of the client that is still pending, with a reason or "", and
// returns what it was.
func (s *Service) Cancel(ctx context.Context, c *Client, id, reason string) (st read.Story, err error) {
	if st, err = s.Find(ctx, c, id); err == nil {
		st.Decision, err = s.Gate.Cancel(ctx, c.key(id), submit.Origin{ClientID: c.ID}, reason)
	}
	return st, err
}

// Waiting lists the pending requests that the client sees, oldest first.
func (s *Service) Waiting(ctx context.Context, c *Client) ([]approval.StoredPending, error) {
	all, err := s.Viewer.Waiting(ctx, []string{c.Workspace})
	return slices.DeleteFunc(all, func(w approval.StoredPending) bool { return !c.Sees(w.Pending.ClientID) }), err
}

// Ended lists at most limit ended requests that the client sees and that were made before
// a time (zero: at any), newest first. more is true if there are more.
func (s *Service) Ended(c *Client, before time.Time, limit int, match func(approval.Status) bool) (list []*read.Request, more bool, err error) {
	return s.History.Requests(read.Query{Workspaces: []string{c.Workspace}, Until: before, Limit: limit, Match: func(r *read.Request) bool {
		return r.Ended() && c.Sees(r.ClientID) && match(r.Status)
	}})
}
