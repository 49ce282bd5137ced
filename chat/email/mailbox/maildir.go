package mailbox

import (
	"bytes"
	"cmp"
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

	"golang.org/x/sys/unix"
)

// Maildir is a Mailbox: a folder that a local mail server delivers into, with new and
// cur below it.
//
// Every new email is taken, also one that another program reads. Emails that arrived
// more than an hour before the first start are skipped. No file is changed, moved or
// removed. An email is identified by the part of its file name before the ":", which
// does not change when a program reads it. Files that are not regular, or are reached
// through a link, are reported and not opened.
type Maildir struct {
	Path    string          // absolute
	State   State           // which emails were taken; required
	Changes <-chan struct{} // hints that an email arrived; nil: none

	// Likely says whether the header of an email looks like an answer. If many emails are new,
	// these come first. nil: none.
	Likely func(header []byte) bool

	// Report gets nil after each scan without an error, else the error; may be nil.
	Report func(error)

	Every time.Duration    // scan interval without a hint; 0: 3 s, with Changes 30 s
	Now   func() time.Time // nil: time.Now

	retryDelay time.Duration // first delay before a retry of an email; 0: 1 s
}

// forgetAfter is how long a file name must be gone before it is dropped from the
// state: a scan during a rename may show neither the old nor the new name.
const forgetAfter = time.Hour

var _ Mailbox = (*Maildir)(nil)

// maildirState holds the names of the emails that were taken and still exist. It is as
// long as the maildir is full.
type maildirState struct {
	Version int       `json:"version"`
	Path    string    `json:"path"`           // the state is discarded if the path changes
	Start   time.Time `json:"start,omitzero"` // first start; zero after the first scan
	Taken   []string  `json:"taken"`
}

// Check says whether the folders exist and are readable. Its error is an *Error.
func (b *Maildir) Check(context.Context) error {
	d, err := b.scan()
	if err != nil {
		return &Error{Stage: "read the maildir", Err: err, Help: "use the absolute path of a folder that contains new and cur " +
			"and is readable for the daemon's user"}
	}
	return d.err()
}

// Run implements Mailbox. It returns early only if the state is unreadable or the path
// is not absolute.
func (b *Maildir) Run(ctx context.Context, take func(context.Context, Incoming) error) error {
	if !filepath.IsAbs(b.Path) {
		return &Error{Stage: "read the maildir", Err: fmt.Errorf("path %q is not absolute", b.Path)}
	}
	c := *b
	c.Now = nowFunc(b.Now)
	r := &maildirReader{Maildir: &c, take: take, position: position[maildirState]{store: b.State, what: "maildir"}, retries: map[string]Retry{}, others: map[string]bool{}, gone: map[string]time.Time{}}
	if err := r.load(); err != nil {
		return err
	}
	r.save()
	defer r.flush()
	return poll(ctx, b.Changes, r.untilNextScan, reporter(b.Report), func() error { return r.takeDue(ctx) })
}

// poll calls its look function until ctx ends: at every hint and after every wait. It reports
// each result. changes may be nil.
func poll(ctx context.Context, changes <-chan struct{}, wait func() time.Duration, report func(error), look func() error) error {
	for ctx.Err() == nil {
		err := look()
		if ctx.Err() != nil {
			break
		}
		report(err)
		select {
		case <-ctx.Done():
		case <-time.After(wait()):
		case _, open := <-changes:
			if !open {
				changes = nil
			}
		}
	}
	return context.Cause(ctx)
}

// maildirReader is the state of one Run.
type maildirReader struct {
	*Maildir
	take func(context.Context, Incoming) error
	position[maildirState]
	retries map[string]Retry
	others  map[string]bool      // of many new emails, those that do not look like answers
	again   bool                 // the last scan left emails for the next one
	gone    map[string]time.Time // when a taken name was first missing
}

func (r *maildirReader) load() error {
	known, err := r.position.load()
	if err == nil && (!known || r.state.Path != r.Path) {
		r.state, r.dirty = maildirState{Version: 1, Path: r.Path, Start: r.Now().UTC(), Taken: []string{}}, true
	}
	slices.Sort(r.state.Taken)
	return err
}

// isTaken says whether an email was taken, and where its name belongs in the state.
func (r *maildirReader) isTaken(name string) (at int, taken bool) {
	return slices.BinarySearch(r.state.Taken, name)
}

func (r *maildirReader) setTaken(name string) {
	if at, taken := r.isTaken(name); !taken {
		r.state.Taken, r.dirty = slices.Insert(r.state.Taken, at, name), true
	}
}

// firstScan is the first scan: emails from before the first start count as taken. A
// missing folder counts as empty: the mail server creates it for the first email.
func (r *maildirReader) firstScan(d maildirScan, err error) {
	if r.state.Start.IsZero() || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	since := r.state.Start.Add(-overlap)
	r.state.Start, r.dirty = time.Time{}, true
	for _, m := range d.mails {
		if info, err := os.Lstat(filepath.Join(m.folder, m.file)); err == nil && info.ModTime().Before(since) {
			r.setTaken(m.name)
		}
	}
}

// takeDue takes what is due. It returns the error to report. Only ctx ends a Run from
// here.
func (r *maildirReader) takeDue(ctx context.Context) error {
	d, err := r.scan()
	r.firstScan(d, err)
	r.save()
	if err != nil {
		return errors.Join(r.unsaved, &Error{Stage: "read the maildir", Temporary: true, Err: err})
	}
	r.again = false
	var waits failedEmails
	start := time.Now()
	for i, m := range r.due(d, &waits) {
		if i%lookInterval == lookInterval-1 && r.arrived(start) {
			r.again = true
			break
		}
		if err := r.takeOne(ctx, m); err != nil {
			waits.add(err)
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	r.dropGone(d)
	r.flush()
	return errors.Join(d.err(), waits.summary(), r.unsaved)
}

// due lists the emails to take: the oldest first, but of many those first that look like answers.
func (r *maildirReader) due(d maildirScan, waits *failedEmails) (due []maildirMail) {
	for _, m := range d.mails {
		_, taken := r.isTaken(m.name)
		switch {
		case taken:
		case r.retries[m.name].At.After(r.Now()):
			waits.add(nil)
		default:
			due = append(due, m)
		}
	}
	if len(due) <= manyNew || r.Likely == nil {
		return due
	}
	var likely, others []maildirMail
	for _, m := range due {
		if !r.others[m.name] {
			in, err := m.read(maxHeader)
			r.others[m.name] = err == nil && !r.Likely(headerOf(in.Raw))
		}
		if r.others[m.name] {
			others = append(others, m)
		} else {
			likely = append(likely, m)
		}
	}
	return append(likely, others...)
}

// arrived says whether to scan for new emails before the others are taken.
func (r *maildirReader) arrived(last time.Time) bool {
	select {
	case _, open := <-r.Changes:
		return open
	default:
		return time.Since(last) > 3*time.Second
	}
}

// takeOne takes an email. A missing file was renamed by a mail program: the next scan
// finds its new name.
func (r *maildirReader) takeOne(ctx context.Context, m maildirMail) error {
	in, err := m.read(MaxMail + 1)
	if err == nil {
		err = callTake(ctx, r.take, *in)
	}
	if err != nil {
		if ctx.Err() == nil {
			r.retries[m.name] = r.retries[m.name].Next(r.Now(), cmp.Or(r.retryDelay, time.Second), maxEmailDelay)
		}
		return err
	}
	r.setTaken(m.name)
	delete(r.retries, m.name)
	delete(r.others, m.name)
	r.save()
	return nil
}

// dropGone drops emails that no longer exist.
func (r *maildirReader) dropGone(d maildirScan) {
	there := map[string]bool{}
	for _, m := range d.mails {
		there[m.name] = true
	}
	maps.DeleteFunc(r.retries, func(name string, _ Retry) bool { return !there[name] })
	maps.DeleteFunc(r.others, func(name string, _ bool) bool { return !there[name] })
	r.state.Taken = slices.DeleteFunc(r.state.Taken, func(name string) bool {
		since, gone := r.gone[name]
		switch {
		case there[name]:
			delete(r.gone, name)
		case !gone:
			r.gone[name] = r.Now()
		case r.Now().Sub(since) > forgetAfter:
			delete(r.gone, name)
			r.dirty = true
			return true
		}
		return false
	})
}

func (r *maildirReader) untilNextScan() time.Duration {
	if r.again {
		return 0
	}
	wait := cmp.Or(r.Every, 3*time.Second)
	if r.Every == 0 && r.Changes != nil {
		wait = 30 * time.Second
	}
	for _, at := range r.retries {
		wait = min(wait, max(0, at.At.Sub(r.Now())))
	}
	return wait
}

// maildirScan is the content of a maildir.
type maildirScan struct {
	mails   []maildirMail // oldest first by file name, without duplicates
	refused []string      // files that are not regular
}

func (d maildirScan) err() error {
	if len(d.refused) == 0 {
		return nil
	}
	return &Error{
		Stage: "read the maildir", Err: fmt.Errorf("%d files are not regular, such as %s", len(d.refused), logText(d.refused[0])),
		Help: "move them out of the maildir; a mail server creates only regular files there",
	}
}

// maildirMail is a file in new or cur.
type maildirMail struct{ name, folder, file string }

// scan lists new before cur, so that an email that moves during the scan is seen at
// least once.
func (b *Maildir) scan() (d maildirScan, err error) {
	seen := map[string]bool{}
	for _, sub := range []string{"new", "cur"} {
		folder := filepath.Join(b.Path, sub)
		dir, err := openFolder(folder)
		if err != nil {
			return d, err
		}
		entries, err := dir.ReadDir(-1)
		dir.Close()
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

// openFolder opens a folder. It refuses a link.
func openFolder(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// read opens the file without following a link or blocking on a pipe. Of a file that
// is too large it reads only the header; of any at most so many bytes.
func (m maildirMail) read(limit int64) (*Incoming, error) {
	fail := func(err error) (*Incoming, error) {
		return nil, fmt.Errorf("read %s: %w", logText(filepath.Join(m.folder, m.file)), err)
	}
	dir, err := openFolder(m.folder)
	if err != nil {
		return fail(err)
	}
	defer dir.Close()
	fd, err := unix.Openat(int(dir.Fd()), m.file, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
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
		return fail(errors.New("not a regular file"))
	}
	in := &Incoming{Name: "maildir " + m.name, TooLarge: info.Size() > MaxMail}
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

// withCRLF ends every line with CRLF, as in the signed form. Files mostly have LF.
func withCRLF(raw []byte) []byte {
	raw = bytes.ReplaceAll(raw, []byte("\r\n"), []byte("\n"))
	return bytes.ReplaceAll(raw, []byte("\n"), []byte("\r\n"))
}
