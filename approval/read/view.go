// Package read is the read model: what waits, how one request went, what ended. It
// serves commands, pages, APIs and channels, with or without a daemon, and changes
// nothing.
package read

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
)

// store holds the documents.
type documents interface {
	// Read returns a document's bytes. The error wraps store.ErrMissing if there is none.
	Read(ctx context.Context, d approval.Doc, k approval.Key) ([]byte, error)
	// Workspaces lists the workspaces that have folders.
	Workspaces(ctx context.Context) ([]string, error)
	// List returns the ids that have a document of kind d.
	List(ctx context.Context, d approval.Doc, workspace string) (ids, strays []string, err error)
}

// Viewer reads the documents for people. It changes nothing, and works with or
// without a daemon.
type Viewer struct {
	Store documents
	Seal  approval.Opener
	Log   Log // for Requests and Timeline
}

// Waiting lists the verified pendings of the given workspaces (nil: all), oldest
// first.
func (v *Viewer) Waiting(ctx context.Context, workspaces []string) ([]approval.StoredPending, error) {
	if workspaces == nil {
		var err error
		if workspaces, err = v.Store.Workspaces(ctx); err != nil {
			return nil, err
		}
	}
	var list []approval.StoredPending
	for _, ws := range workspaces {
		ids, _, err := v.Store.List(ctx, approval.DocPending, ws)
		if err != nil {
			return nil, fmt.Errorf("list pendings of %s: %w", ws, err)
		}
		for _, id := range ids {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			w, err := v.Pending(approval.Key{Workspace: ws, ID: id})
			if err != nil {
				return nil, err
			}
			if w == nil {
				continue
			}
			// Settled, not cleaned up yet.
			if _, err := v.Store.Read(ctx, approval.DocRecord, w.Key()); err == nil {
				continue
			}
			list = append(list, *w)
		}
	}
	slices.SortStableFunc(list, func(a, b approval.StoredPending) int {
		return a.Pending.Timestamp.Compare(b.Pending.Timestamp)
	})
	return list, nil
}

// read returns the bytes of a document. found is false if there is none, and with an error.
func (v *Viewer) read(
	ctx context.Context, d approval.Doc, what string, k approval.Key,
) (b []byte, found bool, err error) {
	b, err = v.Store.Read(ctx, d, k)
	switch {
	case errors.Is(err, store.ErrMissing):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("read %s %s: %w", what, k, err)
	}
	return b, true, nil
}

// Pending returns a verified pending, or nil.
func (v *Viewer) Pending(k approval.Key) (*approval.StoredPending, error) {
	b, found, err := v.read(context.Background(), approval.DocPending, "pending", k)
	if !found {
		return nil, err
	}
	p, err := approval.OpenPending(v.Seal, k, b)
	if err != nil {
		return nil, nil //nolint:nilerr // a host program's request, not evaluated yet
	}
	return &approval.StoredPending{Pending: p, SHA256: approval.Digest(b)}, nil
}

// Claim returns the claim of a request that was started and has no record yet, or
// nil.
func (v *Viewer) Claim(k approval.Key) (*approval.Claim, error) {
	b, found, err := v.read(context.Background(), approval.DocClaim, "claim", k)
	if !found {
		return nil, err
	}
	return approval.OpenClaim(v.Seal, k, b)
}

// Record returns the record of a settled request, or nil.
func (v *Viewer) Record(ctx context.Context, k approval.Key) (*approval.Record, error) {
	b, found, err := v.read(ctx, approval.DocRecord, "record", k)
	if !found {
		return nil, err
	}
	return approval.OpenRecord(v.Seal, k, b)
}

// OpenDecision opens the decision in a record or claim; nil if there is none.
func (v *Viewer) OpenDecision(k approval.Key, raw approval.Raw) *approval.Decision {
	d, _ := approval.OpenDecision(v.Seal, k, raw)
	return d
}

// OpenPending opens the pending in a record or claim; nil if there is none.
func (v *Viewer) OpenPending(k approval.Key, raw approval.Raw) *approval.Pending {
	p, _ := approval.OpenPending(v.Seal, k, raw)
	return p
}

// Find lists the keys that a person who types digits may mean, among the pendings and
// records of the given workspaces (nil: all).
func (v *Viewer) Find(ctx context.Context, workspaces []string, typed string) ([]approval.Key, error) {
	if workspaces == nil {
		var err error
		if workspaces, err = v.Store.Workspaces(ctx); err != nil {
			return nil, err
		}
	}
	var keys []approval.Key
	for _, ws := range workspaces {
		for _, d := range []approval.Doc{approval.DocPending, approval.DocRecord} {
			ids, _, err := v.Store.List(ctx, d, ws)
			if err != nil {
				return nil, err
			}
			for _, id := range ids {
				k := approval.Key{Workspace: ws, ID: id}
				if mayBeNamed(id, typed) && !slices.Contains(keys, k) {
					keys = append(keys, k)
				}
			}
		}
	}
	return v.named(ctx, keys, typed), nil
}

// mayBeNamed reports whether a request with this id may be the one that typed names.
func mayBeNamed(id, typed string) bool {
	return strings.Contains(strings.ToLower(id), typed) || strings.Contains(approval.Digits(id), typed)
}

// named lists the keys that a person who types digits may mean, of those whose id has them.
func (v *Viewer) named(ctx context.Context, keys []approval.Key, typed string) []approval.Key {
	var all []approval.StoredPending
	for _, k := range keys {
		p := &approval.Pending{RequestID: k.ID, ShortID: approval.ShortID(k.ID), SourceGroup: k.Workspace}
		if st, err := v.Story(ctx, k); err == nil && st.Pending != nil {
			p = st.Pending
		}
		all = append(all, approval.StoredPending{Pending: p})
	}
	keys = nil
	for _, w := range approval.Named(all, typed) {
		keys = append(keys, w.Key())
	}
	return keys
}
