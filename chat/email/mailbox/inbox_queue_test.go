package mailbox

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var errFull = errors.New("no space left on device")

// memoryStore is a chat.StateStore in memory.
type memoryStore struct {
	files map[string][]byte
	fail  error
}

func (m *memoryStore) Put(name string, b []byte) error {
	if m.files == nil {
		m.files = map[string][]byte{}
	}
	m.files[name] = b
	return m.fail
}

func (m *memoryStore) Get(name string) ([]byte, error) {
	if b, ok := m.files[name]; ok || m.fail != nil {
		return b, m.fail
	}
	return nil, fs.ErrNotExist
}

func (m *memoryStore) List() ([]string, error) { return slices.Sorted(maps.Keys(m.files)), m.fail }

func (m *memoryStore) Remove(name string) error {
	delete(m.files, name)
	return m.fail
}

// An email that cannot be taken is retried, and does not delay the others.
func TestInboxQueue(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	d := &InboxQueue{Store: &memoryStore{}, Now: func() time.Time { return now }}
	require.ErrorIs(t, d.Put("x", strings.NewReader("")), ErrNoMail)
	require.NoError(t, d.Put("1", strings.NewReader("Subject: a\n\n1\n")))
	require.NoError(t, d.Put("2", strings.NewReader("From x\nSubject: b\r\n\r\n2\r\n")))
	require.NoError(t, d.Put("3", strings.NewReader("Subject: c\n\n"+strings.Repeat("x\n", MaxMail))))
	var seen []Incoming
	fails := true
	take := func(_ context.Context, in Incoming) error {
		seen = append(seen, in)
		if in.Name == "drop 1" && fails {
			return errors.New("not now")
		}
		return nil
	}
	retries := map[string]Retry{}
	require.ErrorContains(t, d.takeDue(t.Context(), take, retries), "not now")
	require.Len(t, seen, 3)
	require.Equal(t, "Subject: a\r\n\r\n1\r\n", string(seen[0].Raw))
	require.Equal(t, "Subject: b\r\n\r\n2\r\n", string(seen[1].Raw), "without the envelope line")
	require.Equal(t, "drop 3"+headerOnly, seen[2].Name)
	require.True(t, seen[2].TooLarge)
	require.Less(t, len(seen[2].Raw), 100)
	seen, fails = nil, false
	require.NoError(t, d.takeDue(t.Context(), take, retries))
	require.Empty(t, seen, "not at once")
	now = now.Add(time.Minute)
	require.NoError(t, d.takeDue(t.Context(), take, retries))
	require.Len(t, seen, 1)
	names, err := d.Store.List()
	require.NoError(t, err)
	require.Empty(t, names)
}

func TestMailboxState(t *testing.T) {
	s := MailboxState{Store: &memoryStore{}, Name: "imap"}
	b, err := s.Load()
	require.NoError(t, err)
	require.Empty(t, b)
	require.NoError(t, s.Save([]byte("here")))
	b, err = s.Load()
	require.NoError(t, err)
	require.Equal(t, "here", string(b))
	require.ErrorIs(t, func() error {
		_, err := MailboxState{Store: &memoryStore{fail: errFull}, Name: "imap"}.Load()
		return err
	}(), errFull, "an unreadable state is not a first start")
}
