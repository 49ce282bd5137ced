package mcp

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/ipc/client"
	"github.com/permesso-dev/permesso/ipc/wholefile"
)

// Book is the folder in which the servers of one client find what was asked before. Nothing in it approves: without it
// a call is asked again, or refused.
//
//	secret             32 bytes; request states and task handles are good only with it
//	ids/ID             the call of a request that may be asked for by its id
//	calls/CA/CALL.N    the Nth time that the call CALL was asked, locked by those who wait for it; CA are two digits of it
//	calls/CA/CALL.N.*  what became of that, each created once: a round taken up, an approval used, a result; ".done" is the
//	                   file itself when a caller has received the result
type Book struct {
	dir    string
	secret []byte

	mu      sync.Mutex
	sending map[string]chan struct{} // by call: its result is on the way; closed when the caller has it, or not
}

// leave says that a result is on the way.
func (b *Book) leave(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sending == nil {
		b.sending = map[string]chan struct{}{}
	}
	if b.sending[name] == nil {
		b.sending[name] = make(chan struct{})
	}
}

// arrive says that it is no longer on the way.
func (b *Book) arrive(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.sending[name]; c != nil {
		close(c)
		delete(b.sending, name)
	}
}

func (b *Book) onTheWay(name string) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sending[name]
}

const (
	secretSize = 32
	keepDone   = 24 * time.Hour       // a handle is good so long after its result was received
	keepAsked  = 400 * 24 * time.Hour // longer than any request waits
)

// The ends of the names of files of a call.
const (
	markDone   = ".done"   // a caller has received the result, or there is none to wait for
	markUsed   = ".used"   // the caller that executes the call itself has begun
	markRun    = ".run"    // locked while it does
	markResult = ".result" // of that
	markSent   = ".sent"   // how the gate knows it
	markRound  = ".round"  // and a nonce
)

// OpenBook opens the folder, and makes it.
func OpenBook(dir string) (*Book, error) {
	b := &Book{dir: dir}
	if err := b.makeFolder("calls"); err != nil {
		return nil, err
	}
	name := filepath.Join(dir, "secret")
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // never fails: see crypto/rand
	if err := wholefile.Create(name, secret); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("the folder for what is asked: %w", err)
	}
	var err error
	if b.secret, err = os.ReadFile(name); err != nil || len(b.secret) != secretSize {
		return nil, cmp.Or(err, hints.Add(fmt.Errorf("%s is damaged", name), "remove it; what clients hold of requests that wait is not good any more, and the same call finds them"))
	}
	b.prune(time.Now())
	return b, nil
}

// makeFolder makes a folder in it, which may have been removed.
func (b *Book) makeFolder(name string) error {
	if err := os.MkdirAll(b.path(name), 0o700); err != nil {
		return fmt.Errorf("the folder for what is asked: %w", err)
	}
	return nil
}

// Folder is a folder in it for something else.
func (b *Book) Folder(name string) string { return b.path(name) }

// question is what the gate was asked about a call.
type question struct {
	Key     string       `json:"key"`     // the id with which it is submitted, which is the same if it is submitted again
	Request approval.Raw `json:"request"` // without an id
	AskedAt time.Time    `json:"asked_at"`
}

// asked is a call that was asked. It must be closed.
type asked struct {
	question
	book *Book
	name string // CALL.N
	file *os.File
	sent client.Submitted // the zero value: not yet
	kept bool             // sent is in the folder
}

func (b *Book) path(parts ...string) string {
	return filepath.Join(append([]string{b.dir}, parts...)...)
}

func (a *asked) mark(end string) string { return filepath.Join(a.book.folder(a.name), a.name+end) }

// folder is that of a call's files. A folder for each call would cost more than all else.
func (b *Book) folder(name string) string { return b.path("calls", name[:2]) }

func (a *asked) is(end string) bool {
	_, err := os.Lstat(a.mark(end))
	return err == nil
}

// join returns the call that was asked and whose result no caller has received, or one for request. sole: not one for
// which another caller waits. fresh says that it is new.
func (b *Book) join(call string, request approval.Raw, sole bool, now time.Time) (a *asked, fresh bool, err error) {
	if err := os.MkdirAll(b.folder(call), 0o700); err != nil {
		return nil, false, err
	}
	for {
		times, last, err := b.times(call)
		if err != nil {
			return nil, false, err
		}
		for _, n := range times {
			a, err := b.open(call+"."+strconv.Itoa(n), sole)
			switch {
			case errors.Is(err, wholefile.ErrLocked), errors.Is(err, fs.ErrNotExist): // another caller waits for it
				continue
			case err != nil:
				return nil, false, err
			case a.is(markDone):
				a.close()
				continue
			}
			return a, false, nil
		}
		a := &asked{question: question{client.NewID(), request, now}, book: b, name: call + "." + strconv.Itoa(last+1)}
		switch err := a.create(sole); {
		case errors.Is(err, fs.ErrExist):
			continue
		case err != nil:
			return nil, false, err
		}
		return a, true, nil
	}
}

// times are the numbers of the files of a call that are not done, the oldest first, and the last number of any.
func (b *Book) times(call string) (list []int, last int, err error) {
	entries, err := os.ReadDir(b.folder(call))
	for _, e := range entries {
		rest, of := strings.CutPrefix(e.Name(), call+".")
		number, _, more := strings.Cut(rest, ".") // also of a file that prune was about to remove
		n, bad := strconv.Atoi(number)
		if !of || bad != nil || n < 1 {
			continue
		}
		last = max(last, n)
		if !more {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list, last, err
}

// create makes the file of a call. It is not synced: a call that a power cut lets forget is asked again.
func (a *asked) create(sole bool) error {
	text, err := codec.Encode(a.question)
	if err != nil {
		return err
	}
	name := a.mark("")
	f, err := os.CreateTemp(filepath.Dir(name), ".new")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(text); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := wholefile.TryLock(f, sole); err != nil {
		return errors.Join(err, f.Close())
	}
	err = os.Link(f.Name(), name)
	if err == nil && a.is(markDone) { // another caller has asked it so often, and is through
		err = errors.Join(fs.ErrExist, os.Remove(name))
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	a.file = f
	return nil
}

func (b *Book) open(name string, sole bool) (*asked, error) {
	a := &asked{book: b, name: name}
	f, err := os.Open(a.mark(""))
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.Open(a.mark(markDone))
	}
	if err != nil {
		return nil, err
	}
	if err := wholefile.TryLock(f, sole); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	a.file = f
	text, err := io.ReadAll(f)
	if err == nil {
		err = codec.DecodeOwn(text, &a.question)
	}
	if err == nil && (!approval.ValidID(a.Key) || len(a.Request) == 0) {
		err = fs.ErrInvalid
	}
	if err != nil { // torn by a power cut, or written by another: it is forgotten
		err = errors.Join(a.done(), f.Close())
		return nil, cmp.Or(err, fs.ErrNotExist)
	}
	return a, nil
}

// answer is the answer to a caller, which says nothing yet.
func (a *asked) answer() *Answer {
	return &Answer{ID: a.sent.ID, Tool: a.sent.Tool, program: a.sent.ProgramSHA256 != "", name: a.name, book: a.book}
}

func (a *asked) close() { _ = a.file.Close() }

// alone reports whether no other caller waits for the call. Then none can come before close.
func (a *asked) alone() bool { return wholefile.TryLock(a.file, true) == nil }

// keep keeps how the gate knows the call, so that it can be found by the id of its request. Without it the same request is
// submitted again under the same id, and is the same one.
func (a *asked) keep() error {
	if a.kept {
		return nil
	}
	text, err := codec.Encode(a.sent)
	if err == nil {
		err = a.book.makeFolder("ids")
	}
	if err == nil {
		err = wholefile.Put(a.mark(markSent), text)
	}
	if err == nil {
		err = wholefile.Put(a.book.path("ids", a.sent.ID), []byte(a.name))
	}
	if err != nil {
		return fmt.Errorf("the folder for what is asked: %w", err)
	}
	a.kept = true
	return nil
}

// readSent reports whether the gate knows the call.
func (a *asked) readSent() bool {
	text, err := os.ReadFile(a.mark(markSent))
	a.kept = err == nil && codec.DecodeOwn(text, &a.sent) == nil && a.sent.ID != ""
	return a.kept
}

// find returns the call of a request, also one that is done. The error wraps fs.ErrNotExist if there is none.
func (b *Book) find(id string) (*asked, error) {
	if !approval.ValidID(id) {
		return nil, fs.ErrNotExist
	}
	name, err := os.ReadFile(b.path("ids", id))
	if err != nil {
		return nil, err
	}
	if call, n, ok := strings.Cut(string(name), "."); !ok || !isDigest(call) || strings.Trim(n, "0123456789") != "" {
		return nil, fs.ErrNotExist
	}
	a, err := b.open(string(name), false)
	if err != nil {
		return nil, err
	}
	if !a.readSent() || a.sent.ID != id {
		a.close()
		return nil, fs.ErrNotExist
	}
	return a, nil
}

func isDigest(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 32
}

// once does something at most once for a call: a second time the error wraps fs.ErrExist. It survives a power cut.
func (a *asked) once(end string, text []byte) error { return wholefile.Create(a.mark(end), text) }

// done says that a caller has received the result: the same call is a new one from here on.
func (a *asked) done() error {
	var err error
	if now := time.Now(); now.Sub(a.AskedAt) >= time.Minute {
		err = os.Chtimes(a.mark(""), now, now) // prune counts from now on
	}
	if err == nil {
		err = os.Rename(a.mark(""), a.mark(markDone))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it was said before
	}
	return err
}

// waiting are the ids of the requests whose results no caller has received.
func (b *Book) waiting() (ids []string, err error) {
	entries, err := os.ReadDir(b.path("ids"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		a, err := b.find(e.Name())
		if err != nil {
			continue
		}
		if !a.is(markDone) {
			ids = append(ids, a.sent.ID)
		}
		a.close()
	}
	return ids, err
}

// prune removes the files of calls that no one can ask for any more.
func (b *Book) prune(now time.Time) {
	calls, _ := os.ReadDir(b.path("calls"))
	for _, shard := range calls {
		files, _ := os.ReadDir(b.path("calls", shard.Name()))
		gone := map[string]bool{}
		for _, f := range files {
			info, err := f.Info()
			if err != nil {
				continue
			}
			if age := now.Sub(info.ModTime()); strings.HasSuffix(f.Name(), markDone) && age > keepDone || age > keepAsked {
				gone[nameOf(f.Name())] = true
			}
		}
		for _, f := range files {
			if gone[nameOf(f.Name())] {
				_ = os.Remove(b.path("calls", shard.Name(), f.Name()))
			}
		}
		_ = os.Remove(b.path("calls", shard.Name())) // if it is empty
	}
	ids, _ := os.ReadDir(b.path("ids"))
	for _, id := range ids {
		a, err := b.find(id.Name())
		switch {
		case err == nil:
			a.close()
		case errors.Is(err, fs.ErrNotExist):
			_ = os.Remove(b.path("ids", id.Name()))
		}
	}
}

// nameOf is the call of a file: CALL.N.
func nameOf(file string) string {
	call, rest, _ := strings.Cut(file, ".")
	n, _, _ := strings.Cut(rest, ".")
	return call + "." + n
}
