package mailbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// maildir is a folder to deliver into.
type maildir struct {
	t    *testing.T
	path string
	n    int
}

func newMaildir(t *testing.T) *maildir {
	m := &maildir{t: t, path: t.TempDir()}
	for _, sub := range []string{"new", "cur", "tmp"} {
		require.NoError(t, os.Mkdir(filepath.Join(m.path, sub), 0o700))
	}
	return m
}

// deliver creates an email with that subject, and returns its file.
func (m *maildir) deliver(sub, subject, more string) string {
	m.t.Helper()
	m.n++
	flags := ""
	if sub == "cur" {
		flags = ":2,"
	}
	file := filepath.Join(m.path, sub, fmt.Sprintf("%d.M1P1.host%s", 1000+m.n, flags))
	tmp := filepath.Join(m.path, "tmp", fmt.Sprint(m.n))
	require.NoError(m.t, os.WriteFile(tmp, []byte("Subject: "+subject+"\nFrom: a@b.test\n\n"+more+"\n"), 0o600))
	require.NoError(m.t, os.Rename(tmp, file))
	return file
}

// long makes all emails so far old enough to be skipped at a first start.
func (m *maildir) long() {
	m.t.Helper()
	aged(m.t, m.path)
}

func aged(t *testing.T, maildir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(maildir, "[nc][eu][wr]", "*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	before := time.Now().Add(-overlap - time.Minute)
	for _, f := range files {
		require.NoError(t, os.Chtimes(f, before, before))
	}
}

// box is a Maildir with a short scan interval.
func (m *maildir) box(s State, change func(*Maildir)) func(*mailboxRun) Mailbox {
	return func(r *mailboxRun) Mailbox {
		b := &Maildir{Path: m.path, State: s, Report: r.report, Every: 5 * time.Millisecond, retryDelay: 10 * time.Millisecond}
		if change != nil {
			change(b)
		}
		return b
	}
}

func TestMaildir(t *testing.T) {
	m, state := newMaildir(t), &memoryState{}
	m.deliver("new", "old", "")
	m.deliver("cur", "older", "")
	m.long()
	r := run(t, nil, m.box(state, nil))
	r.ready()
	first := m.deliver("new", "one", "body\n.\nperché")
	m.deliver("cur", "two", "") // some servers deliver into cur
	require.ElementsMatch(t, []string{"one", "two"}, r.subjects(2))
	r.mu.Lock()
	one := r.taken[0]
	if subjectOf(one) != "one" {
		one = r.taken[1]
	}
	r.mu.Unlock()
	require.Equal(t, "Subject: one\r\nFrom: a@b.test\r\n\r\nbody\r\n.\r\nperché\r\n", string(one.Raw))
	require.Equal(t, "maildir 1003.M1P1.host", one.Name)

	// A mail program reads it: it moves and gets flags. It is the same email.
	read := filepath.Join(m.path, "cur", filepath.Base(first)+":2,S")
	require.NoError(t, os.Rename(first, read))
	r.healthy()
	require.NoError(t, os.Rename(read, read+"T"))
	r.healthy()
	m.deliver("new", "three", "")
	require.Len(t, r.subjects(3), 3)
	r.stop()

	// Only what came between the two runs is taken by the next run.
	m.deliver("new", "four", "")
	r = run(t, nil, m.box(state, nil))
	r.healthy()
	require.Equal(t, []string{"four"}, r.subjects(1))
	content, err := os.ReadFile(read + "T")
	require.NoError(t, err)
	require.Contains(t, string(content), "Subject: one\n", "no file is changed")
}

func TestMaildirFirstStart(t *testing.T) {
	t.Run("an answer that comes before the first scan, after a restart", func(t *testing.T) {
		m, state := newMaildir(t), &memoryState{}
		m.deliver("new", "old", "")
		m.long()
		begun := time.Now()
		aside := filepath.Join(m.path, "cur") + "-later"
		require.NoError(t, os.Rename(filepath.Join(m.path, "cur"), aside))
		require.NoError(t, os.WriteFile(filepath.Join(m.path, "cur"), nil, 0o600)) // not a folder
		r := run(t, nil, m.box(state, nil))
		r.waitUntil("an error report", r.reported("not a directory"))
		r.stop()
		m.deliver("new", "an answer", "")
		require.NoError(t, os.Remove(filepath.Join(m.path, "cur")))
		require.NoError(t, os.Rename(aside, filepath.Join(m.path, "cur")))
		r = run(t, nil, m.box(state, func(b *Maildir) { b.Now = func() time.Time { return begun.Add(100 * time.Hour) } }))
		require.Equal(t, []string{"an answer"}, r.subjects(1))
		r.ready()
		require.Len(t, r.subjects(1), 1)
	})
	t.Run("the server creates the folder for the first email", func(t *testing.T) {
		m := newMaildir(t)
		aside := m.path + "-later"
		require.NoError(t, os.Rename(m.path, aside))
		r := run(t, nil, m.box(&memoryState{}, nil))
		r.waitUntil("an error report", r.reported("no such file"))
		m.path = aside
		m.deliver("new", "the first", "")
		require.NoError(t, os.Rename(aside, strings.TrimSuffix(aside, "-later")))
		require.Equal(t, []string{"the first"}, r.subjects(1))
	})
	t.Run("another maildir has its own state", func(t *testing.T) {
		state := &memoryState{}
		a, b := newMaildir(t), newMaildir(t)
		r := run(t, nil, a.box(state, nil))
		r.ready()
		r.stop()
		b.deliver("new", "old", "")
		b.long()
		r = run(t, nil, b.box(state, nil))
		r.ready()
		b.deliver("new", "new", "")
		require.Equal(t, []string{"new"}, r.subjects(1))
	})
	t.Run("an unreadable state is not a first start", func(t *testing.T) {
		m := newMaildir(t)
		for _, data := range []string{"{", `{"version":2}`, `{"version":1,"what":1}`} {
			b := &Maildir{Path: m.path, State: &memoryState{data: []byte(data)}}
			require.ErrorContains(t, b.Run(t.Context(), nil), "state", data)
		}
		require.ErrorContains(t, (&Maildir{Path: m.path}).Run(t.Context(), nil), "no store for the state")
		require.ErrorContains(t, (&Maildir{Path: "mail"}).Run(t.Context(), nil), "absolute")
	})
}

func TestMaildirFailures(t *testing.T) {
	m, state := newMaildir(t), &memoryState{}
	tries := 0
	r := run(t, func(in Incoming) error {
		if subjectOf(in) != "bad" {
			return nil
		}
		if tries++; tries < 4 {
			return errors.New("no space on the disk")
		}
		return nil
	}, m.box(state, nil))
	r.ready()
	m.deliver("new", "bad", "")
	m.deliver("new", "good", "")
	require.Equal(t, []string{"good", "bad"}, r.subjects(2), "a failed email does not delay the others")
	r.waitUntil("an error report", r.reported("no space on the disk"))
	r.healthy()

	// The state cannot be saved: the same Run still knows the email, the next one does not.
	state.refuse(errors.New("read-only"))
	m.deliver("new", "unnoted", "")
	require.Contains(t, r.subjects(3), "unnoted")
	r.waitUntil("an error report", r.reported("read-only"))
	_, before := state.saved()
	state.refuse(nil)
	r.healthy()
	_, after := state.saved()
	require.Equal(t, before+1, after, "saved when it is possible")
	state.refuse(errors.New("read-only"))
	m.deliver("new", "lost state", "")
	require.Contains(t, r.subjects(4), "lost state")
	r.stop()
	require.Len(t, r.subjects(4), 4)
	state.refuse(nil)
	r = run(t, nil, m.box(state, nil))
	require.Equal(t, []string{"lost state"}, r.subjects(1), "passed on again, under the same name")
	r.healthy()
}

// TestMaildirHostile: a process with write access to the folder cannot make us read
// another file, or block us.
func TestMaildirHostile(t *testing.T) {
	m := newMaildir(t)
	r := run(t, nil, m.box(&memoryState{}, nil))
	r.ready()
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("Subject: secret\n\n"), 0o600))
	require.NoError(t, os.Symlink(secret, filepath.Join(m.path, "new", "link")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(m.path, "new", "pipe"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(m.path, "new", "folder"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(m.path, "new", ".hidden"), []byte("Subject: hidden\n\n"), 0o600))
	huge := m.deliver("new", "huge", "")
	require.NoError(t, os.Truncate(huge, 1<<40)) // a sparse terabyte
	m.deliver("new", "large", strings.Repeat("x", MaxMail))
	m.deliver("new", "headers", "")
	m.deliver("new", "largest", strings.Repeat("x", MaxMail-len("Subject: largest\nFrom: a@b.test\n\n\n")))
	got := r.subjects(4)
	require.ElementsMatch(t, []string{"huge", "large", "headers", "largest"}, got)
	r.waitUntil("an error report", r.reported("3 files are not regular"))
	r.stop()
	for _, in := range r.taken {
		switch subjectOf(in) {
		case "huge", "large":
			require.True(t, in.TooLarge)
			require.Equal(t, "Subject: "+subjectOf(in)+"\r\nFrom: a@b.test\r\n", string(in.Raw))
		default:
			require.False(t, in.TooLarge)
		}
	}

	// Between the scan and the read, an email is replaced by something else.
	for _, name := range []string{"link", "pipe", "folder"} {
		_, err := maildirMail{name, filepath.Join(m.path, "new"), name}.read(MaxMail + 1)
		require.Error(t, err, name)
	}
	linked := newMaildir(t)
	require.NoError(t, os.Remove(filepath.Join(linked.path, "new")))
	require.NoError(t, os.Symlink(filepath.Join(newMaildir(t).path, "new"), filepath.Join(linked.path, "new")))
	require.ErrorIs(t, (&Maildir{Path: linked.path}).Check(t.Context()), syscall.ENOTDIR, "new is a link to another maildir")
	require.ErrorContains(t, (&Maildir{Path: m.path}).Check(t.Context()), "regular")
	require.NoError(t, (&Maildir{Path: newMaildir(t).path}).Check(t.Context()))
}

// TestMaildirForgets: the state is as long as the maildir is full, and no name is dropped
// while its email may exist.
func TestMaildirForgets(t *testing.T) {
	m, state := newMaildir(t), &memoryState{}
	now := time.Unix(1e9, 0)
	r := &maildirReader{
		Maildir:  &Maildir{Path: m.path, State: state, Now: func() time.Time { return now }},
		position: position[maildirState]{store: state, what: "maildir", state: maildirState{Version: 1, Path: m.path}},
		retries:  map[string]Retry{}, gone: map[string]time.Time{},
		take: func(context.Context, Incoming) error { return nil },
	}
	file := m.deliver("new", "one", "")
	require.NoError(t, r.takeDue(t.Context()))
	require.Len(t, r.state.Taken, 1)
	require.NoError(t, os.Remove(file))
	require.NoError(t, r.takeDue(t.Context()))
	now = now.Add(forgetAfter)
	require.NoError(t, r.takeDue(t.Context()))
	require.Len(t, r.state.Taken, 1, "not yet")
	now = now.Add(time.Second)
	require.NoError(t, r.takeDue(t.Context()))
	require.Empty(t, r.state.Taken)
	require.JSONEq(t, `{"version":1,"path":"`+m.path+`","taken":[]}`, string(state.data))
}

// TestMaildirHints: a hint starts a scan.
func TestMaildirHints(t *testing.T) {
	m := newMaildir(t)
	changes := make(chan struct{})
	r := run(t, nil, m.box(&memoryState{}, func(b *Maildir) { b.Changes, b.Every = changes, time.Hour }))
	r.ready()
	m.deliver("new", "one", "")
	changes <- struct{}{}
	require.Equal(t, []string{"one"}, r.subjects(1))
	r.mu.Lock()
	looks := len(r.reports)
	r.mu.Unlock()
	close(changes)
	r.waitUntil("a last scan", func() bool { return len(r.reports) > looks })
}

// TestMaildirTriesWithPauses: frequent scans do not shorten the delays.
func TestMaildirTriesWithPauses(t *testing.T) {
	m, tries := newMaildir(t), 0
	r := run(t, func(Incoming) error { tries++; return errors.New("no") }, m.box(&memoryState{}, func(b *Maildir) {
		b.Every, b.retryDelay = time.Millisecond, 20*time.Millisecond
	}))
	r.ready()
	m.deliver("new", "one", "")
	r.waitUntil("many scans", func() bool { return len(r.reports) > 50 })
	r.stop()
	require.Greater(t, tries, 1)
	require.Less(t, tries, 15, "the delays double: no more attempts fit into the minute that the scans may take")
}
