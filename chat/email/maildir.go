package email

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"
)

// Maildir is a folder that a mail server of this machine delivers into, with new
// and cur below it. It is a Box.
//
// Every mail that comes in is taken, whoever reads it besides; what came more than
// an hour before the first start is left alone. No file is ever changed, moved or removed.
// A mail is known by the part of its name before the ":", which it keeps when
// somebody reads it. What is no regular file, or is reached through a link, is not
// opened, and reported.
type Maildir struct {
	Path    string          // absolute
	State   State           // which mails were taken; needed
	Changes <-chan struct{} // hints that something came; nil: none
	TakeOld bool            // at the first start, mails that are there already are taken, too

	// Report is told nil after each look that found all in order, and otherwise
	// what is wrong; may be nil.
	Report func(error)

	Every time.Duration    // how often to look without a hint; 0: 3 s, with Changes 30 s
	Now   func() time.Time // nil: time.Now

	pause time.Duration // the shortest before trying a mail again; 0: 1 s
}

// forgetAfter is how long a name must be gone before we forget that its mail was
// taken: a folder that is read while a file in it is renamed may show neither name.
const forgetAfter = time.Hour

var _ Mailbox = (*Maildir)(nil)

// maildirState is what is remembered: the names of the mails that were taken and
// are there still. The list is as long as the maildir is full.
type maildirState struct {
	Version int       `json:"version"`
	Path    string    `json:"path"`           // of another maildir nothing is known
	Start   time.Time `json:"start,omitzero"` // the first one, until the first look
	Taken   []string  `json:"taken"`
}

// Check says whether the folders are there and can be read. Its error is a
// *MailboxError.
func (b *Maildir) Check(context.Context) error {
	d, err := b.scan()
	if err != nil {
		return &MailboxError{Stage: "read the maildir", Err: err, Hint: "it must be an absolute path of a folder with new and cur in it, that " +
			"the gate's user may read"}
	}
	return d.trouble()
}

// Run is Box's. It returns early only when the state cannot be read or the path is
// not absolute.
func (b *Maildir) Run(ctx context.Context, take func(context.Context, Incoming) error) error {
	if !filepath.IsAbs(b.Path) {
		return &MailboxError{Stage: "read the maildir", Err: fmt.Errorf("%q is no absolute path", b.Path)}
	}
	r := &maildirReader{Maildir: b, take: take, taken: map[string]bool{}, retries: map[string]retry{}, gone: map[string]time.Time{}}
	if err := r.load(); err != nil {
		return err
	}
	r.save()
	return lookOn(ctx, b.Changes, r.nextLook, b.Report, func() error { return r.look(ctx) })
}

// lookOn looks until ctx ends: at every hint, and whenever the wait is over. What
// came of each look is reported; changes and report may be nil.
func lookOn(ctx context.Context, changes <-chan struct{}, wait func() time.Duration, report func(error), look func() error) error {
	for ctx.Err() == nil {
		err := look()
		if ctx.Err() != nil {
			break
		}
		if report != nil {
			report(err)
		}
		timer := time.NewTimer(wait())
		select {
		case <-ctx.Done():
		case <-timer.C:
		case _, open := <-changes:
			if !open {
				changes = nil
			}
		}
		timer.Stop()
	}
	return context.Cause(ctx)
}

// maildirReader is one Run.
type maildirReader struct {
	*Maildir
	take    func(context.Context, Incoming) error
	start   time.Time // the first one, where nothing was ever looked at
	taken   map[string]bool
	dirty   bool  // taken is newer than what was saved
	unsaved error // … because of this
	retries map[string]retry
	gone    map[string]time.Time // since when a taken one is not seen any more
}

func (r *maildirReader) now() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return time.Now()
}

func (r *maildirReader) load() error {
	if r.State == nil {
		return errors.New("maildir: there is no place for the state")
	}
	data, err := r.State.Load()
	if err != nil {
		return fmt.Errorf("load the maildir's state: %w", err)
	}
	r.start, r.dirty = r.now(), true
	if len(data) == 0 {
		return nil
	}
	var s maildirState
	if err := json.Unmarshal(data, &s, json.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf("read the maildir's state: %w", err)
	}
	if s.Version != 1 {
		return fmt.Errorf("read the maildir's state: version %d is unknown", s.Version)
	}
	if s.Path != r.Path {
		return nil
	}
	r.start, r.dirty = s.Start, false
	for _, name := range s.Taken {
		r.taken[name] = true
	}
	return nil
}

// save writes the state where it changed. Where it cannot, mails go on being taken,
// for an answer that is here should count; it is tried again with each look.
func (r *maildirReader) save() {
	if !r.dirty {
		return
	}
	data, err := json.Marshal(&maildirState{1, r.Path, r.start.UTC(), slices.Sorted(maps.Keys(r.taken))})
	if err == nil {
		err = r.State.Save(data)
	}
	r.dirty = err != nil
	if r.unsaved = err; err != nil {
		r.unsaved = fmt.Errorf("save the maildir's state: %w", err)
	}
}

// first is the first look: what came before the first start counts as taken. A
// folder that is not there yet, as before the very first mail, holds nothing.
func (r *maildirReader) first(d maildirScan, err error) {
	if r.start.IsZero() || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	since := r.start.Add(-overlap)
	r.start, r.dirty = time.Time{}, true
	if r.TakeOld {
		return
	}
	for _, m := range d.mails {
		if info, err := os.Lstat(filepath.Join(m.folder, m.file)); err == nil && info.ModTime().Before(since) {
			r.taken[m.name] = true
		}
	}
}

// look takes what is due. The error is what to report; ctx aside, nothing ends a
// Run from here.
func (r *maildirReader) look(ctx context.Context) error {
	d, err := r.scan()
	r.first(d, err)
	r.save()
	if err != nil {
		return errors.Join(r.unsaved, &MailboxError{Stage: "read the maildir", Temporary: true, Err: err})
	}
	var waits waiting
	for _, m := range d.mails {
		switch {
		case r.taken[m.name]:
		case r.retries[m.name].at.After(r.now()):
			waits.add(nil)
		default:
			if err := r.one(ctx, m); err != nil {
				waits.add(err)
			}
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	r.forget(d)
	r.save()
	return errors.Join(d.trouble(), waits.trouble(), r.unsaved)
}

// one takes a mail. One that is gone is being read by somebody: the next look
// finds it under its other name.
func (r *maildirReader) one(ctx context.Context, m maildirMail) error {
	in, err := m.read()
	if err == nil {
		err = hand(ctx, r.take, *in)
	}
	if err != nil {
		if ctx.Err() == nil {
			r.retries[m.name] = r.retries[m.name].again(r.now(), r.shortest(), mailPause)
		}
		return err
	}
	r.taken[m.name], r.dirty = true, true
	delete(r.retries, m.name)
	r.save()
	return nil
}

// forget lets go of mails that are not there any more.
func (r *maildirReader) forget(d maildirScan) {
	there := map[string]bool{}
	for _, m := range d.mails {
		there[m.name] = true
	}
	maps.DeleteFunc(r.retries, func(name string, _ retry) bool { return !there[name] })
	for name := range r.taken {
		since, gone := r.gone[name]
		switch {
		case there[name]:
			delete(r.gone, name)
		case !gone:
			r.gone[name] = r.now()
		case r.now().Sub(since) > forgetAfter:
			delete(r.gone, name)
			delete(r.taken, name)
			r.dirty = true
		}
	}
}

func (r *maildirReader) shortest() time.Duration {
	if r.pause > 0 {
		return r.pause
	}
	return time.Second
}

func (r *maildirReader) nextLook() time.Duration {
	wait := r.Every
	if wait <= 0 {
		wait = 3 * time.Second
		if r.Changes != nil {
			wait = 30 * time.Second
		}
	}
	for _, at := range r.retries {
		wait = min(wait, max(0, at.at.Sub(r.now())))
	}
	return wait
}

// maildirScan is what a maildir holds.
type maildirScan struct {
	mails   []maildirMail // oldest first, as far as their names tell; none twice
	refused []string      // files that are no mails
}

func (d maildirScan) trouble() error {
	if len(d.refused) == 0 {
		return nil
	}
	return &MailboxError{
		Stage: "read the maildir", Err: fmt.Errorf("%d files are not regular ones, such as %s", len(d.refused), said(d.refused[0])),
		Hint: "move them away: a mail server puts no links or pipes there",
	}
}

// maildirMail is a file in new or cur.
type maildirMail struct{ name, folder, file string }

// scan lists new before cur, so that a mail that moves meanwhile is seen once at
// least.
func (b *Maildir) scan() (d maildirScan, err error) {
	seen := map[string]bool{}
	for _, sub := range []string{"new", "cur"} {
		folder := filepath.Join(b.Path, sub)
		entries, err := listFolder(folder)
		if err != nil {
			return d, err
		}
		for _, e := range entries {
			name, _, _ := strings.Cut(e.Name(), ":")
			switch {
			case strings.HasPrefix(e.Name(), "."), seen[name]:
			case !e.Type().IsRegular():
				d.refused = append(d.refused, filepath.Join(folder, e.Name()))
			default:
				seen[name] = true
				d.mails = append(d.mails, maildirMail{name, folder, e.Name()})
			}
		}
	}
	slices.SortFunc(d.mails, func(a, b maildirMail) int { return strings.Compare(a.name, b.name) })
	return d, nil
}

// listFolder reads a folder that is one, no link to one.
func listFolder(path string) ([]fs.DirEntry, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	return dir.ReadDir(-1)
}

// read opens the file without following a link or waiting for a pipe, and reads
// the header only of one that is too large.
func (m maildirMail) read() (*Incoming, error) {
	fail := func(err error) (*Incoming, error) {
		return nil, fmt.Errorf("read %s: %w", said(filepath.Join(m.folder, m.file)), err)
	}
	dir, err := unix.Open(m.folder, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = unix.Close(dir) }() // only read from
	fd, err := unix.Openat(dir, m.file, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	file := os.NewFile(uintptr(fd), m.file)
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fail(err)
	}
	if !info.Mode().IsRegular() {
		return fail(errors.New("no regular file"))
	}
	in := &Incoming{Name: "maildir " + m.name, Size: info.Size(), TooLarge: info.Size() > MaxMail}
	limit := int64(MaxMail + 1)
	if in.TooLarge {
		limit = maxHeader
	}
	raw, err := io.ReadAll(io.LimitReader(file, limit))
	if err != nil {
		return fail(err)
	}
	in.TooLarge = in.TooLarge || len(raw) > MaxMail
	in.Raw = withCRLF(raw)
	if in.TooLarge {
		in.Raw = headerOf(in.Raw)
	}
	return in, nil
}

// withCRLF ends every line with CRLF, as mails are signed; on a disk they mostly
// end with LF.
func withCRLF(raw []byte) []byte {
	raw = bytes.ReplaceAll(raw, []byte("\r\n"), []byte("\n"))
	return bytes.ReplaceAll(raw, []byte("\n"), []byte("\r\n"))
}
