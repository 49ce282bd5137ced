// Package client is the agent's side of a gate: it asks, waits for what comes of
// it, and takes back. It needs nothing of the host but the way to the gate, and
// believes nobody but the gate. There are two ways, and one interface, Gate, before
// both.
//
// # Folders
//
// Files runs inside a container that sees only
//
//	/permesso/requests   read-write
//	/permesso/responses  read-only
//
// A request is written under a temporary name and renamed into place, so the
// gate never sees half of one. Waiting is done by file events, with polling
// behind them where there are none. A response names the digest of the request's
// bytes; one for other bytes is ErrIDConflict.
//
// # HTTP
//
// REST speaks to the gate's HTTP door, on an address or a Unix socket, with a key.
// What got no answer is sent again with the same Idempotency-Key, so that nothing
// is asked twice; what was refused is not. It follows no redirect and uses no
// proxy, which would carry the key elsewhere, and no error text holds the key.
// Waiting is a long poll, which the gate answers when the request is over. What was
// approved must come with a receipt for the very bytes of the arguments; otherwise
// it is ErrIDConflict.
//
// # A function behind a gate
//
// NeedsApproval makes of a function one that runs only when the gate says so, with
// the arguments that were shown.
//
// Clients of the same make for Python and JavaScript lie in python and typescript.
package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/watcher"
)

// The folders' usual places inside a container.
const (
	DefaultRequests  = "/permesso/requests"
	DefaultResponses = "/permesso/responses"
)

// maxResponse is more than any response holds.
const maxResponse = 16 << 20

// Files reaches a gate through the two folders.
type Files struct {
	Requests  string
	Responses string
}

// NewID is a fresh request id: 128 random bits.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: see crypto/rand
	return hex.EncodeToString(b[:])
}

// Submit writes the bytes of a request of that id, exactly as they are.
func (f Files) Submit(id string, request []byte) error {
	if !approval.ValidID(id) {
		return fmt.Errorf("request id %q: 16 to 64 lower-case hex digits", id)
	}
	if err := f.put(id+".json", request); err != nil {
		return fmt.Errorf("write request: %w", err)
	}
	return nil
}

// Cancel asks the gate to drop a request that nobody has decided yet.
func (f Files) CancelByID(id string) error {
	if !approval.ValidID(id) {
		return fmt.Errorf("request id %q: 16 to 64 lower-case hex digits", id)
	}
	if err := f.put(id+".cancel", nil); err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	return nil
}

func (f Files) put(name string, b []byte) error {
	temp := filepath.Join(f.Requests, "."+name+"."+NewID()[:8])
	file, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	// Whatever the umask says: the gate may run as somebody else, who has to read it.
	err = file.Chmod(0o644)
	if err == nil {
		_, err = file.Write(b)
	}
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		_ = os.Remove(temp)
		return err
	}
	if err := os.Rename(temp, filepath.Join(f.Requests, name)); err != nil {
		_ = os.Remove(temp)
		return err
	}
	return nil
}

// Wait returns the response to a request, when there is one. With request set,
// a response to other bytes is ErrIDConflict.
func (f Files) Wait(ctx context.Context, id string, request []byte) (*approval.Response, []byte, error) {
	if !approval.ValidID(id) {
		return nil, nil, fmt.Errorf("request id %q: 16 to 64 lower-case hex digits", id)
	}
	path := filepath.Join(f.Responses, id+".json")
	var resp *approval.Response
	var raw []byte
	err := watcher.Await(ctx, path, func() (bool, error) {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if len(b) > maxResponse {
			return false, errors.New("the response is too large")
		}
		// What does not parse was torn by a power cut and is about to be
		// restored.
		if resp, err = approval.ParseResponse(b); err != nil {
			return false, nil //nolint:nilerr // not there yet
		}
		raw = b
		return true, nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("wait for %s: %w", id, err)
	}
	if request != nil && resp.RequestSHA256 != approval.Digest(request) {
		return resp, raw, ErrIDConflict
	}
	return resp, raw, nil
}

// Ask implements Gate.
func (f Files) Ask(_ context.Context, r approval.Request) (Submitted, error) {
	if r.RequestID == "" {
		r.RequestID = NewID()
	}
	b, err := r.Encode()
	if err != nil {
		return Submitted{}, fmt.Errorf("encode request: %w", err)
	}
	a := asked(&r, r.RequestID)
	a.RequestSHA256 = approval.Digest(b)
	return a, f.Submit(r.RequestID, b)
}

// asked is what the end of r must be for.
func asked(r *approval.Request, id string) Submitted {
	return Submitted{ID: id, ArgsSHA256: approval.Digest(arguments(r)), Tool: r.ToolName}
}

// arguments are the bytes that a receipt for r names: no arguments are an empty
// object.
func arguments(r *approval.Request) approval.Raw {
	if kind := r.RequestData.Kind(); kind == 0 || kind == 'n' {
		return approval.Raw("{}")
	}
	return r.RequestData
}

// Await implements Gate.
func (f Files) Await(ctx context.Context, a Submitted) (*approval.Response, error) {
	resp, _, err := f.Wait(ctx, a.ID, nil)
	if err != nil {
		return nil, err
	}
	if a.RequestSHA256 != "" && resp.RequestSHA256 != a.RequestSHA256 {
		return resp, ErrIDConflict
	}
	return resp, nil
}

// Cancel implements Gate.
func (f Files) Cancel(_ context.Context, a Submitted) error { return f.CancelByID(a.ID) }
