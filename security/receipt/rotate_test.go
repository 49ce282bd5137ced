package receipt_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"

	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/crashfs"
	"github.com/permesso-dev/permesso/security/receipt"
)

func quiet(string, string) error { return nil }

func TestRotate(t *testing.T) {
	dir := t.TempDir()
	s, err := receipt.LoadOrCreate(ipc.OS(), dir, testName)
	require.NoError(t, err)
	receipts, keys := []string{}, []string{s.Public()}
	for round := range 3 {
		r, err := s.Issue(testFacts())
		require.NoError(t, err)
		receipts = append(receipts, r)
		var told []string
		s, err = receipt.Rotate(ipc.OS(), dir, issued, func(old, next string) error {
			told = []string{old, next}
			current, err := receipt.LoadVerifier(ipc.OS(), dir)
			require.NoError(t, err)
			_, err = current.Parse(receipts[round])
			require.NoError(t, err, "while it is announced the old key counts")
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, []string{keys[round], s.Public()}, told)
		require.NotContains(t, keys, s.Public())
		keys = append(keys, s.Public())
	}
	again, err := receipt.Load(ipc.OS(), dir)
	require.NoError(t, err)
	require.Equal(t, s.Public(), again.Public())
	v, err := receipt.LoadVerifier(ipc.OS(), dir)
	require.NoError(t, err)
	for _, r := range receipts {
		_, err := v.Parse(r)
		require.NoError(t, err, "what retired keys signed stays good")
	}
	current, err := s.Verifier()
	require.NoError(t, err)
	_, err = current.Parse(receipts[0])
	require.ErrorIs(t, err, receipt.ErrInvalid, "what runs now asks for the current key")
	for i, k := range keys {
		_, err := note.Open([]byte(receipts[0]), v.Known())
		require.NoError(t, err)
		all, err := receipt.PublicKeys(ipc.OS(), dir)
		require.NoError(t, err)
		listed := all[len(all)-1-i]
		require.Equal(t, k, listed.Key, "newest first")
		require.Equal(t, i == 3, listed.Current)
		require.Equal(t, i > 0, !listed.Since.IsZero())
		require.Equal(t, i < 3, !listed.Until.IsZero())
	}
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 5, "two keys and three statements")
	b, err := os.ReadFile(filepath.Join(dir, "rotated-1.txt"))
	require.NoError(t, err)
	require.Regexp(t, `^permesso key rotation v1\nnumber: 1\nold: home\.example\.org\+.*\nnew: home\.example\.org\+.*\ntime: 2026-11-21T12:00:00Z\n\n`+
		`— home\.example\.org .*\n— home\.example\.org .*\n$`, string(b))
}

func TestRotateThatIsNotAnnounced(t *testing.T) {
	dir := t.TempDir()
	s, err := receipt.LoadOrCreate(ipc.OS(), dir, testName)
	require.NoError(t, err)
	_, err = receipt.Rotate(ipc.OS(), dir, issued, func(string, string) error { return fs.ErrPermission })
	require.ErrorIs(t, err, fs.ErrPermission)
	for range 2 {
		again, err := receipt.LoadOrCreate(ipc.OS(), dir, testName)
		require.NoError(t, err)
		require.Equal(t, s.Public(), again.Public())
	}
	next, err := receipt.Rotate(ipc.OS(), dir, issued, quiet)
	require.NoError(t, err, "what the first attempt left is in nobody's way")
	require.NotEqual(t, s.Public(), next.Public())
	_, err = receipt.Rotate(ipc.OS(), t.TempDir(), issued, quiet)
	require.ErrorIs(t, err, fs.ErrNotExist, "no key to follow")
}

func TestRotationsThatAreRefused(t *testing.T) {
	edit := func(old, with string) func(string) string {
		return func(s string) string { return strings.Replace(s, old, with, 1) }
	}
	for _, c := range []struct {
		why, name string
		spoil     func(string) string
	}{
		{"a letter changed", "rotated-1.txt", edit("number: 1", "number: 2")},
		{"another time", "rotated-1.txt", edit("12:00:00Z", "12:00:01Z")},
		{"one signature only", "rotated-1.txt", func(s string) string { return s[:strings.LastIndex(s, "—")] }},
		{"nothing", "rotated-1.txt", func(string) string { return "\n" }},
		{"another number", "rotated-2.txt", nil},
		{"somebody else's current key", "signing.pub", func(string) string { return strangerPublic(t) + "\n" }},
		{"an older private key", "signing.key", nil},
		{"somebody else's statement", "rotated-2.txt", func(string) string {
			other := t.TempDir()
			_, err := receipt.LoadOrCreate(ipc.OS(), other, testName)
			require.NoError(t, err)
			for range 2 {
				_, err = receipt.Rotate(ipc.OS(), other, issued, quiet)
				require.NoError(t, err)
			}
			b, err := os.ReadFile(filepath.Join(other, "rotated-2.txt"))
			require.NoError(t, err)
			return string(b)
		}},
	} {
		dir := t.TempDir()
		_, err := receipt.LoadOrCreate(ipc.OS(), dir, testName)
		require.NoError(t, err)
		before, err := os.ReadFile(filepath.Join(dir, "signing.key"))
		require.NoError(t, err)
		for range 2 {
			_, err = receipt.Rotate(ipc.OS(), dir, issued, quiet)
			require.NoError(t, err)
		}
		path := filepath.Join(dir, c.name)
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		switch {
		case c.spoil != nil:
			require.NoError(t, os.WriteFile(path, []byte(c.spoil(string(b))), 0o600))
		case c.name == "signing.key":
			require.NoError(t, os.WriteFile(path, before, 0o600))
		default:
			first, err := os.ReadFile(filepath.Join(dir, "rotated-1.txt"))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, first, 0o600))
		}
		_, err = receipt.LoadOrCreate(ipc.OS(), dir, testName)
		require.ErrorContains(t, err, "\nhint: ", c.why)
		if c.name != "signing.key" {
			_, err = receipt.LoadVerifier(ipc.OS(), dir)
			require.ErrorContains(t, err, "\nhint: ", c.why)
		}
	}
}

func strangerPublic(t testing.TB) string {
	t.Helper()
	_, public, err := note.GenerateKey(nil, testName)
	require.NoError(t, err)
	return public
}

// A power cut before any operation leaves the old key or the new one, which
// both are believed; what was announced and returned stays.
func TestRotateSurvivesPowerCuts(t *testing.T) {
	cuts, olds, news := 0, 0, 0
	disk := crashfs.New()
	p := disk.Process("first")
	require.NoError(t, p.Mkdir("/keys", 0o700))
	s, err := receipt.LoadOrCreate(p, "/keys", testName)
	require.NoError(t, err)
	require.NoError(t, p.SyncFS("/"))
	old := s.Public()
	r, err := s.Issue(testFacts())
	require.NoError(t, err)
	announced := ""
	try := func(must string, where string) {
		for _, way := range append(crashfs.Ways(), crashfs.Seeded(1), crashfs.Seeded(2), crashfs.Seeded(3), crashfs.Seeded(4)) {
			cuts++
			where := fmt.Sprintf("%s, %s", where, way)
			left := disk.Cut(way).Process("again")
			v, err := receipt.LoadVerifier(left, "/keys")
			require.NoError(t, err, "%s: who only reads can read", where)
			_, err = v.Parse(r)
			require.NoError(t, err, where)
			got, err := receipt.LoadOrCreate(left, "/keys", testName)
			require.NoError(t, err, where)
			switch {
			case must != "":
				require.Equal(t, must, got.Public(), where)
			case got.Public() != old:
				require.Equal(t, announced, got.Public(), "%s: no key that was not announced", where)
			}
			if got.Public() == old {
				olds++
			} else {
				news++
			}
			v, err = receipt.LoadVerifier(left, "/keys")
			require.NoError(t, err, where)
			_, err = v.Parse(r)
			require.NoError(t, err, "%s: the old key's receipt", where)
			fresh, err := got.Issue(testFacts())
			require.NoError(t, err, where)
			_, err = v.Parse(fresh)
			require.NoError(t, err, "%s: the new key's receipt", where)
		}
	}
	disk.Before = func(op crashfs.Op) { try("", "before "+op.String()) }
	next, err := receipt.Rotate(p, "/keys", time.Unix(0, 0), func(_, next string) error { announced = next; return nil })
	require.NoError(t, err)
	disk.Before = nil
	require.Equal(t, announced, next.Public())
	try(next.Public(), "after")
	require.Greater(t, cuts, 200)
	require.NotZero(t, olds)
	require.NotZero(t, news)
}

func TestEveryFailingOperationOfARotation(t *testing.T) {
	errDisk := errors.New("disk")
	for n := 1; ; n++ {
		disk := crashfs.New()
		p := disk.Process("p")
		require.NoError(t, p.Mkdir("/keys", 0o700))
		s, err := receipt.LoadOrCreate(p, "/keys", testName)
		require.NoError(t, err)
		done, failed := 0, false
		disk.Fail = func(op crashfs.Op) error {
			if op.Kind == crashfs.OpRemove {
				return nil
			}
			if done++; done == n {
				failed = true
				return errDisk
			}
			return nil
		}
		announced := ""
		next, err := receipt.Rotate(p, "/keys", issued, func(_, next string) error { announced = next; return nil })
		disk.Fail = nil
		if !failed {
			require.NoError(t, err)
			require.Greater(t, n, 20, "operations that were made to fail")
			return
		}
		require.ErrorIs(t, err, errDisk, "operation %d", n)
		require.Nil(t, next)
		again, err := receipt.LoadOrCreate(p, "/keys", testName)
		require.NoError(t, err, "operation %d", n)
		require.Contains(t, []string{s.Public(), announced}, again.Public())
	}
}
