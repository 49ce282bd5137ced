package ipc

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/ipc/journal"
)

const (
	docSuffix    = ".json"
	cancelSuffix = ".cancel"
	againSuffix  = ".again.json"
	taskSuffix   = ".task.json"
	clearSuffix  = ".clear"
	tempPrefix   = ".tmp-"
	maxNames     = 50_000   // names of one folder that are read in one call
	maxDocument  = 64 << 20 // bytes; far above anything we write

	createAttempts = 5
)

// Requests reads one workspace's folder of requests. *hostile is the real implementation.
type Requests interface {
	Read(name string, limit int64) ([]byte, error)
	Stat(name string) (exists bool, err error)
	Names(limit int) (names []string, more bool, err error)
	Remove(name string) error
	// SetAside renames what Remove cannot remove, so that it is no request.
	SetAside(name string) error
	// Stale reports whether the folder was replaced since it was opened.
	Stale() bool
	// Warning says why the folder cannot be read safely here; "": it can.
	Warning() string
	io.Closer
}

// Store stores the documents of every workspace under one HOME. It is safe for concurrent
// use. Several processes may have one each, but only the process with the lease removes
// decisions of other processes.
type Store struct {
	FS     FS
	Layout Layout
	// Requests opens a workspace's folder of requests; nil: openHostile.
	Requests func(ws string) (Requests, error)
	// RequestSize is the maximum size of a request; nil: approval.MaxRequestSize.
	RequestSize func(ws string) int64

	// Verify reports why a document is not valid, for replay; nil: any JSON object is.
	Verify func(d approval.Doc, k approval.Key, b []byte) error
	// RecoverLog brings the audit log to the state of the journal, for replay: head is what
	// LogFile.Head returned at the last mark, and lines are committed. It returns the head
	// after them. nil: nothing is done.
	RecoverLog func(head []byte, lines [][]byte) (after []byte, err error)
	// SyncEach makes checkpoints sync each file, because a sync of the whole file system
	// reports no errors here: SyncErrorsLost.
	SyncEach bool
	// JournalSize is the size of a new segment of the journal; 0: 8 MiB.
	JournalSize int64

	mu       sync.Mutex
	folders  map[string]Requests
	refusals map[string]int
	lock     Lock // nil unless this process has the lease

	journal        atomic.Pointer[journal.Journal] // nil without the lease
	disk           OpenedFS                        // HOME's, with the lease
	notLeased      atomic.Pointer[error]           // why Lease could not write the lock; nil: it could
	commits        committer
	lateCount      atomic.Int64 // of commits.late
	firstCommit    atomic.Int64 // Unix nanoseconds of the first commit since the last checkpoint; 0: none
	lastCheckpoint atomic.Int64 // Unix nanoseconds
	checkpointing  sync.Mutex
	logHead        []byte // of the audit log, as replay found it in the journal

	files      changedFiles
	stored     stored
	claims     claims
	health     health
	pauseTexts sync.Map // by id: pauses whose files have no room for their text
	reserved   reservation
}

// Read implements store.Store.
func (s *Store) Read(ctx context.Context, d approval.Doc, k approval.Key) (b []byte, err error) {
	defer func() { err = classify(err) }()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	switch d {
	case approval.DocRequest:
		return s.readRequest(k)
	case approval.DocCancel:
		return s.readCancel(k)
	}
	if b, ok := s.readLate(d, k); ok {
		return b, nil
	}
	return s.FS.ReadFile(s.path(d, k), maxDocument)
}

// maxCancel is how much of a cancel is read, in bytes.
const maxCancel = 4 << 10

// readCancel returns the content of a cancel. One that cannot be read cancels all the same.
func (s *Store) readCancel(k approval.Key) ([]byte, error) {
	r, err := s.requests(k.Workspace)
	if err != nil {
		return nil, err
	}
	ok, err := r.Stat(k.ID + cancelSuffix)
	if err == nil && !ok {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	b, _ := r.Read(k.ID+cancelSuffix, maxCancel)
	return b, nil
}

// Stat returns the info of a document's file without reading it: another file is another
// document.
func (s *Store) Stat(d approval.Doc, k approval.Key) (fs.FileInfo, error) {
	return lstat(s.FS, s.path(d, k))
}

func (s *Store) readRequest(k approval.Key) ([]byte, error) {
	limit := int64(approval.MaxRequestSize)
	if s.RequestSize != nil {
		limit = s.RequestSize(k.Workspace)
	}
	r, err := s.requests(k.Workspace)
	if err != nil {
		return nil, err
	}
	b, err := r.Read(k.ID+docSuffix, limit)
	if errors.Is(err, errTooLarge) {
		return nil, fmt.Errorf("%w: %w: a request may have %d bytes here", store.ErrRefused, errTooLarge, limit)
	}
	for _, refused := range []error{errNotRegular, errLinked, errSymlink, fs.ErrPermission} {
		if errors.Is(err, refused) {
			return nil, fmt.Errorf("%w: %w", store.ErrRefused, refused)
		}
	}
	if errors.Is(err, errBusy) {
		return []byte{}, nil // still being written: incomplete, for now
	}
	return b, err
}

// requests is the workspace's folder. It is opened again if it was replaced.
func (s *Store) requests(ws string) (Requests, error) {
	s.mu.Lock()
	r := s.folders[ws]
	s.mu.Unlock()
	if r != nil && !r.Stale() {
		return r, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.folders[ws]; now != nil && now != r {
		return now, nil // another caller opened it
	}
	if r != nil {
		delete(s.folders, ws)
		_ = r.Close()
	}
	open := s.Requests
	if open == nil {
		open = func(ws string) (Requests, error) { return openHostile(s.Layout.Requests(ws)) }
	}
	r, err := open(ws)
	if err != nil {
		return nil, err
	}
	if s.folders == nil {
		s.folders = map[string]Requests{}
	}
	s.folders[ws] = r
	return r, nil
}

// RequestsWarning says why the folder of requests cannot be read safely here; "": it can.
func (s *Store) RequestsWarning(ws string) string {
	r, err := s.requests(ws)
	if err != nil {
		return err.Error()
	}
	return r.Warning()
}

func (s *Store) dir(d approval.Doc, ws string) string {
	switch d {
	case approval.DocPending:
		return s.Layout.Pendings(ws)
	case approval.DocDecision:
		return s.Layout.Decisions(ws)
	case approval.DocClaim, approval.DocAgain, approval.DocTask:
		return s.Layout.Receipts(ws)
	case approval.DocRecord, approval.DocRedeemed:
		return s.Layout.Records(ws)
	case approval.DocResponse:
		return s.Layout.Responses(ws)
	case approval.DocGrant, approval.DocClear:
		return s.Layout.Grants()
	case approval.DocAPIKey:
		return s.Layout.APIKeys()
	}
	return s.Layout.Requests(ws)
}

func (s *Store) path(d approval.Doc, k approval.Key) string {
	suffix := docSuffix
	switch d {
	case approval.DocCancel:
		suffix = cancelSuffix
	case approval.DocAgain:
		suffix = againSuffix
	case approval.DocTask:
		suffix = taskSuffix
	case approval.DocRedeemed:
		suffix = ".redeemed"
	case approval.DocClear:
		suffix = clearSuffix
	}
	return filepath.Join(s.dir(d, k.Workspace), k.ID+suffix)
}

// Remove implements store.Store. Removals are not synced: the record makes every leftover
// harmless.
func (s *Store) Remove(ctx context.Context, d approval.Doc, k approval.Key) error {
	err := ctx.Err()
	if err != nil {
		return err
	}
	switch d {
	case approval.DocRequest, approval.DocCancel:
		err = s.RemoveStray(ctx, k.Workspace, filepath.Base(s.path(d, k)))
	default:
		s.dropLate(docKey{d, k})
		err = s.remove(s.path(d, k))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return classify(err)
}

// remove removes a file of ours.
func (s *Store) remove(name string) error {
	before := s.storedAt(name)
	err := s.FS.Remove(name)
	if err == nil {
		s.resized(name, before, 0)
	}
	s.changed(name, false)
	return err
}

// RemoveStray implements store.Store.
func (s *Store) RemoveStray(ctx context.Context, ws, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r, err := s.requests(ws)
	if err != nil {
		return err
	}
	err = r.Remove(name)
	if errors.Is(err, errNotRegular) {
		err = r.SetAside(name)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return classify(err)
	}
	return nil
}

func (s *Store) names(dir string) ([]string, error) { return namesIn(s.FS, dir) }

// Workspaces implements store.Store.
func (s *Store) Workspaces(ctx context.Context) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	names, err := s.Layout.Workspaces(s.FS)
	return names, classify(err)
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, d approval.Doc, ws string) (ids, strays []string, err error) {
	defer func() { err = classify(err) }()
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	var names []string
	suffix, ours := docSuffix, true // no agent writes there
	switch d {
	case approval.DocRequest, approval.DocCancel:
		ours = false
		r, err := s.requests(ws)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if names, _, err = r.Names(maxNames); err != nil {
			return nil, nil, err
		}
		if d == approval.DocCancel {
			suffix = cancelSuffix
		}
	default:
		if names, err = s.names(s.dir(d, ws)); err != nil {
			return nil, nil, err
		}
		if d == approval.DocClear {
			suffix = clearSuffix
		}
	}
	for _, name := range names {
		if d == approval.DocClaim {
			name = strings.NewReplacer(againSuffix, docSuffix, taskSuffix, docSuffix).Replace(name)
		}
		id, ok := strings.CutSuffix(name, suffix)
		switch {
		case ok && (approval.ValidName(id) || ours && approval.ValidDocument(id)):
			ids = append(ids, id) // of a claim, its second run and its task: several times, which is harmless
		case d == approval.DocRequest && stray(name):
			strays = append(strays, name)
		}
	}
	return ids, strays, nil
}

// stray reports whether a name among the requests looks like a request but is not valid.
// Names that begin with a dot, or have another suffix, are files in preparation.
func stray(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	lower := strings.ToLower(name)
	for _, suffix := range []string{docSuffix, cancelSuffix} {
		if strings.HasSuffix(lower, suffix) {
			id, exact := strings.CutSuffix(name, suffix)
			return !exact || !approval.ValidName(id)
		}
	}
	return false
}

// maxRefused is how many descriptions one workspace's errors/ may hold.
const maxRefused = 1000

// Refuse implements store.Store: it stores one line of description. Of the refused file it
// stores only the shortened name.
func (s *Store) Refuse(ctx context.Context, ws, name, why string) (err error) {
	defer func() { err = classify(err) }()
	if err := ctx.Err(); err != nil {
		return err
	}
	dir := s.Layout.Errors(ws)
	s.mu.Lock()
	if s.refusals == nil {
		s.refusals = map[string]int{}
	}
	if _, ok := s.refusals[ws]; !ok {
		names, err := s.names(dir)
		if err != nil {
			s.mu.Unlock()
			return err
		}
		s.refusals[ws] = len(names)
	}
	s.refusals[ws]++
	full := s.refusals[ws] > maxRefused
	s.mu.Unlock()
	if full {
		return nil
	}
	return s.replace(filepath.Join(dir, hex.EncodeToString([]byte(shorten(name)))+".txt"),
		fmt.Appendf(nil, "%.100q: %s\n", name, why), 0o600)
}

// classified is an error of the file system with the class that callers test.
type classified struct{ class, err error }

func (e *classified) Error() string   { return e.err.Error() }
func (e *classified) Unwrap() []error { return []error{e.class, e.err} }

// classify adds the class of a file system's error. It keeps the error and its text.
func classify(err error) error {
	class := classOf(err)
	if class == nil || errors.Is(err, class) {
		return err
	}
	return &classified{class, err}
}

func classOf(err error) error {
	var path *fs.PathError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return store.ErrMissing
	case errors.Is(err, fs.ErrExist):
		return store.ErrExists
	case errors.Is(err, journal.ErrNoRoom):
		return store.ErrNoRoom
	case errors.Is(err, store.ErrLocked), errors.As(err, &path):
		return store.ErrUnavailable
	}
	return nil
}
