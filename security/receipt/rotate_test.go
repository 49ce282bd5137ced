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

	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/ipc/crashfs"
	"github.com/permesso-dev/permesso/security/receipt"
)

func noAnnounce(string, string) error { return nil }

func TestRotate(t *testing.T) {
	dir := t.TempDir()
	s, err := receipt.LoadOrCreate(ipc.OS(), dir, testName)
	require.NoError(t, err)
	receipts, keys := []string{}, []string{s.Public()}
	for round := range 3 {
		r, err := s.Issue(testFacts())
		require.NoError(t, err)
		receipts = append(receipts, r)
		var announced []string
		s, err = receipt.Rotate(ipc.OS(), dir, issued, func(old, next string) error {
			announced = []string{old, next}
			current, err := receipt.LoadVerifier(ipc.OS(), dir)
			require.NoError(t, err)
			_, err = current.Parse(receipts[round])
			require.NoError(t, err, "during announce the old key is valid")
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, []string{keys[round], s.Public()}, announced)
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
		require.NoError(t, err, "receipts of replaced keys stay valid")
	}
	current, err := s.Verifier()
	require.NoError(t, err)
	_, err = current.Parse(receipts[0])
	require.ErrorIs(t, err, receipt.ErrInvalid, "the signer's verifier accepts only the current key")
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

func TestRotateStopsIfAnnounceFails(t *testing.T) {
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
	next, err := receipt.Rotate(ipc.OS(), dir, issued, noAnnounce)
	require.NoError(t, err, "files of the failed rotation are harmless")
	require.NotEqual(t, s.Public(), next.Public())
	_, err = receipt.Rotate(ipc.OS(), t.TempDir(), issued, noAnnounce)
	require.ErrorIs(t, err, fs.ErrNotExist, "no key to replace")
}

func TestInvalidRotations(t *testing.T) {
	edit := func(old, with string) func(string) string {
		return func(s string) string { return strings.Replace(s, old, with, 1) }
	}
	for _, c := range []struct {
		why, name string
		damage    func(string) string
	}{
		{"a changed digit", "rotated-1.txt", edit("number: 1", "number: 2")},
		{"another time", "rotated-1.txt", edit("12:00:00Z", "12:00:01Z")},
		{"one signature only", "rotated-1.txt", func(s string) string { return s[:strings.LastIndex(s, "—")] }},
		{"nothing", "rotated-1.txt", func(string) string { return "\n" }},
		{"another number", "rotated-2.txt", nil},
		{"another gate's public key", "signing.pub", func(string) string { return otherPublicKey(t) + "\n" }},
		{"an older private key", "signing.key", nil},
		{"another gate's statement", "rotated-2.txt", func(string) string {
			other := t.TempDir()
			_, err := receipt.LoadOrCreate(ipc.OS(), other, testName)
			require.NoError(t, err)
			for range 2 {
				_, err = receipt.Rotate(ipc.OS(), other, issued, noAnnounce)
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
			_, err = receipt.Rotate(ipc.OS(), dir, issued, noAnnounce)
			require.NoError(t, err)
		}
		path := filepath.Join(dir, c.name)
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		switch {
		case c.damage != nil:
			require.NoError(t, os.WriteFile(path, []byte(c.damage(string(b))), 0o600))
		case c.name == "signing.key":
			require.NoError(t, os.WriteFile(path, before, 0o600))
		default:
			first, err := os.ReadFile(filepath.Join(dir, "rotated-1.txt"))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, first, 0o600))
		}
		_, err = receipt.LoadOrCreate(ipc.OS(), dir, testName)
		require.NotEmpty(t, hints.Of(err), c.why)
		if c.name != "signing.key" {
			_, err = receipt.LoadVerifier(ipc.OS(), dir)
			require.NotEmpty(t, hints.Of(err), c.why)
		}
	}
}

func otherPublicKey(t testing.TB) string {
	t.Helper()
	_, public, err := note.GenerateKey(nil, testName)
	require.NoError(t, err)
	return public
}

// A power cut before any operation leaves the old or the new key, and both verify.
// A returned key stays.
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
			require.NoError(t, err, "%s: a reader without repair", where)
			_, err = v.Parse(r)
			require.NoError(t, err, where)
			got, err := receipt.LoadOrCreate(left, "/keys", testName)
			require.NoError(t, err, where)
			switch {
			case must != "":
				require.Equal(t, must, got.Public(), where)
			case got.Public() != old:
				require.Equal(t, announced, got.Public(), "%s: only an announced key", where)
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

func TestRotateReturnsEveryError(t *testing.T) {
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
			require.Greater(t, n, 20, "failed operations")
			return
		}
		require.ErrorIs(t, err, errDisk, "operation %d", n)
		require.Nil(t, next)
		again, err := receipt.LoadOrCreate(p, "/keys", testName)
		require.NoError(t, err, "operation %d", n)
		require.Contains(t, []string{s.Public(), announced}, again.Public())
	}
}
