// Package client is the agent's side of a gate: it submits requests, waits for
// their end, and cancels them. It reaches the gate through folders or HTTP, both
// behind the interface Client.
//
// # Folders
//
// Files runs inside a container that sees only
//
//	/permesso/requests   read-write
//	/permesso/responses  read-only
//
// A request is written under a temporary name and renamed into place, so the
// gate never sees half of one. Waiting uses file events, and polling where there
// are none. A response contains the digest of the request's bytes; a response for
// other bytes is ErrIDConflict.
//
// # HTTP
//
// REST uses the gate's HTTP API, on an address or a Unix socket, with a key. A
// request without a response is sent again with the same Idempotency-Key, so that
// people are asked only once; a refused request is not sent again. REST follows no
// redirect and uses no proxy: both would send the key to another server. No error
// text contains the key. Waiting is a long poll, which the gate answers when the
// request has ended. An approval must have a receipt for exactly the bytes of the
// arguments; otherwise it is ErrIDConflict.
//
// # Guarded functions
//
// NeedsApproval returns a function that runs only after an approval, with the
// arguments that were shown.
//
// The folders python and typescript have equivalent clients.
package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/watcher"
)

// The default folders inside a container.
const (
	DefaultRequests  = "/permesso/requests"
	DefaultResponses = "/permesso/responses"
)

// maxResponse is larger than any response, in bytes.
const maxResponse = 16 << 20

// Files reaches a gate through the two folders.
type Files struct {
	Requests  string
	Responses string
	// Silent is called once by a call that waits, if no daemon takes what was written: see
	// Silence. nil: it is not told.
	Silent func(tried string)
	// Unsynced is for a caller whose own work ends with the machine, and that asks again then:
	// a power cut may take a request that no daemon has taken.
	Unsynced bool

	watch *watcher.Shared
}

// Shared returns Files whose callers wait with one inotify instance, for a program with many of them.
func (f Files) Shared() Files {
	f.watch = &watcher.Shared{Idle: time.Minute}
	return f
}

// NewID is a fresh request id: 128 random bits.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: see crypto/rand
	return hex.EncodeToString(b[:])
}

func checkID(id string) error {
	if !approval.ValidID(id) {
		return fmt.Errorf("request id %q: must be "+approval.IDForm, id)
	}
	return nil
}

// Submit writes the bytes of the request with that id, unchanged.
func (f Files) Submit(id string, request []byte) error {
	if err := checkID(id); err != nil {
		return err
	}
	if err := f.put(id+docSuffix, request); err != nil {
		return fmt.Errorf("write request: %w", err)
	}
	return nil
}

// CancelByID asks the gate to cancel a pending request.
func (f Files) CancelByID(id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	return f.putCancel(id, "")
}

func (f Files) putCancel(id, reason string) error {
	if err := f.put(id+cancelSuffix, []byte(reason)); err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	return nil
}

const (
	docSuffix    = ".json"
	cancelSuffix = ".cancel"
)

// ErrNoFolder says that one of the two folders does not exist.
var ErrNoFolder = errors.New("there is no folder")

func (f Files) put(name string, b []byte) error {
	temp := filepath.Join(f.Requests, "."+name+"."+NewID()[:8])
	file, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w %s: %w", ErrNoFolder, f.Requests, syscall.ENOENT)
	}
	if err != nil {
		return err
	}
	// Independent of the umask: the gate may run as another user, who must be able to
	// read it.
	err = file.Chmod(0o644)
	if err == nil {
		_, err = file.Write(b)
	}
	if err == nil && !f.Unsynced {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(temp, filepath.Join(f.Requests, name))
	}
	if err != nil {
		_ = os.Remove(temp)
	}
	return err
}

// Ask implements Client.
func (f Files) Ask(_ context.Context, r approval.Request) (Submitted, error) {
	r.RequestID = cmp.Or(r.RequestID, NewID())
	b, err := r.Encode()
	if err != nil {
		return Submitted{}, fmt.Errorf("encode request: %w", err)
	}
	a := submitted(&r, r.RequestID)
	a.RequestSHA256 = approval.Digest(b)
	return a, f.Submit(r.RequestID, b)
}

// submitted describes r, to check its end.
func submitted(r *approval.Request, id string) Submitted {
	if r.Program != "" {
		return Submitted{ID: id, ProgramSHA256: approval.Digest([]byte(r.Program))}
	}
	return Submitted{ID: id, ArgsSHA256: approval.Digest(arguments(r)), Tool: r.ToolName}
}

// arguments are the bytes that a receipt for r names: without arguments an empty object.
func arguments(r *approval.Request) approval.Raw {
	if kind := r.RequestData.Kind(); kind == 0 || kind == 'n' {
		return approval.Raw("{}")
	}
	return r.RequestData
}

// Await implements Client.
func (f Files) Await(ctx context.Context, a Submitted) (*approval.Response, error) {
	if err := checkID(a.ID); err != nil {
		return nil, err
	}
	var resp *approval.Response
	err := f.await(ctx, a.ID, func() (ok bool, err error) {
		resp, _, err = f.read(a.ID)
		return resp != nil, err
	})
	if err != nil {
		return nil, fmt.Errorf("wait for %s: %w", a.ID, err)
	}
	if a.RequestSHA256 != "" && resp.RequestSHA256 != a.RequestSHA256 {
		return resp, ErrIDConflict
	}
	return resp, nil
}

func (f Files) request(name string) string { return filepath.Join(f.Requests, name) }
func (f Files) response(id string) string  { return filepath.Join(f.Responses, id+docSuffix) }

// read returns the response of a request, nil if there is no whole one. One that does not
// parse was torn by a power cut: the gate is about to restore it.
func (f Files) read(id string) (resp *approval.Response, exists bool, err error) {
	b, err := os.ReadFile(f.response(id))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case len(b) > maxResponse:
		return nil, true, errors.New("the response is too large")
	}
	resp, err = approval.ParseResponse(b)
	if err != nil {
		return nil, true, nil //nolint:nilerr // torn
	}
	return resp, true, nil
}

// await waits until ready, which looks for what belongs to a request.
func (f Files) await(ctx context.Context, id string, ready func() (bool, error)) error {
	began, told := time.Now(), f.Silent == nil
	err := f.watch.Await(ctx, f.response(id), func() (bool, error) {
		ok, err := ready()
		if !ok && err == nil && !told && time.Since(began) >= patience {
			if tried := f.untaken(id); tried != "" {
				told = true
				f.Silent(tried)
			}
		}
		return ok, err
	})
	if err != nil && ctx.Err() != nil {
		if tried := f.untaken(id); tried != "" {
			return &Silence{Tried: tried, Err: err}
		}
	}
	return err
}

// untaken says what no daemon has taken, or which folder is missing; "": nothing is wrong.
func (f Files) untaken(id string) string {
	for _, dir := range []string{f.Responses, f.Requests} {
		if _, err := os.Stat(dir); err != nil {
			return "there is no folder " + dir
		}
	}
	if _, err := os.Lstat(f.request(id + docSuffix)); err == nil {
		return "no daemon has taken " + f.request(id+docSuffix)
	}
	if _, err := os.Lstat(f.request(id + cancelSuffix)); err == nil {
		return "no daemon has taken " + f.request(id+cancelSuffix) + ", or the request runs"
	}
	return ""
}

// Find lists the requests of the folders whose id begins with typed, in lower case. A
// pending request is in neither folder.
func (f Files) Find(_ context.Context, typed string) (ids []string, err error) {
	for _, dir := range []string{f.Requests, f.Responses} {
		files, readErr := os.ReadDir(dir)
		if errors.Is(readErr, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w %s: %w", ErrNoFolder, dir, syscall.ENOENT)
		}
		err = errors.Join(err, readErr)
		for _, file := range files {
			id, ok := strings.CutSuffix(file.Name(), docSuffix)
			if ok && approval.ValidID(id) && approval.BeginsID(id, typed) && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids, err
}

// CancelBecause cancels a pending request, with a reason or "", and waits until the gate has
// handled that. It returns how the request has ended: by this cancel, or otherwise before. The
// error is ErrNotFound if the gate knows no such request.
func (f Files) CancelBecause(ctx context.Context, a Submitted, reason string) (approval.Status, error) {
	if err := checkID(a.ID); err != nil {
		return "", err
	}
	resp, _, err := f.read(a.ID)
	if err == nil && resp == nil {
		err = f.putCancel(a.ID, reason)
	}
	if err == nil && resp == nil {
		err = f.await(ctx, a.ID, func() (bool, error) {
			_, taken := os.Lstat(f.request(a.ID + cancelSuffix))
			r, exists, err := f.read(a.ID) // after that: a response is written before the cancel is removed
			resp = r
			return r != nil || !exists && errors.Is(taken, fs.ErrNotExist), err
		})
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("cancel %s: %w", a.ID, err)
	case resp == nil:
		return "", ErrNotFound
	}
	return resp.Status, nil
}

// Look says what is known of a request: not whom it waits for, which is in neither folder.
func (f Files) Look(_ context.Context, a Submitted) (View, error) {
	if err := checkID(a.ID); err != nil {
		return View{}, err
	}
	resp, _, err := f.read(a.ID)
	if err == nil && resp != nil && a.RequestSHA256 != "" && resp.RequestSHA256 != a.RequestSHA256 {
		err = ErrIDConflict
	}
	_, gone := os.Lstat(f.request(a.ID + docSuffix))
	return View{Response: resp, Untaken: resp == nil && gone == nil}, err
}

// Cancel implements Client.
func (f Files) Cancel(_ context.Context, a Submitted) error { return f.CancelByID(a.ID) }
