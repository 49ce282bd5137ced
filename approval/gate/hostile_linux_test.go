package gate_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/gate/gatetest"
	"github.com/permesso-dev/permesso/approval/move"
)

// outsideMarker is in a file outside the folder. The gate would run that file if it
// read it; the marker must not appear anywhere.
const outsideMarker = "OUTSIDE-THE-FOLDER"

// hostile is one file that an agent may put under the name of its request.
type hostile struct {
	name string
	put  func(t *testing.T, path, outside string, k approval.Key)
	want string // beginning of the outcome
	slow bool   // may still be incomplete: refused after the grace period
}

func hostileCases() []hostile {
	const (
		notRegular = "malformed: malformed request: refused: not a regular file: write a plain file"
		tooLarge   = "malformed: malformed request: refused: the file is too large"
		incomplete = "malformed: the request is incomplete: write it under another name and rename it into place"
		notJSON    = "malformed: malformed request: not valid JSON"
		invalid    = "malformed: malformed request: "
	)
	file := func(body func(k approval.Key) string) func(*testing.T, string, string, approval.Key) {
		return func(t *testing.T, path, _ string, k approval.Key) {
			// Rename it into place: half of some of these files is another case.
			temp := filepath.Join(filepath.Dir(path), "."+k.ID)
			require.NoError(t, os.WriteFile(temp, []byte(body(k)), 0o644))
			require.NoError(t, os.Rename(temp, path))
		}
	}
	text := func(s string) func(*testing.T, string, string, approval.Key) {
		return file(func(approval.Key) string { return s })
	}
	return []hostile{
		{name: "a symbolic link", want: "malformed: malformed request: refused: a symbolic link: write the file itself", put: func(t *testing.T, path, outside string, _ approval.Key) {
			require.NoError(t, os.Symlink(outside, path))
		}},
		{name: "a symbolic link to nowhere", want: "malformed: malformed request: refused: a symbolic link: write the file itself", put: func(t *testing.T, path, _ string, _ approval.Key) {
			require.NoError(t, os.Symlink("/nowhere/at/all", path))
		}},
		{name: "a hard link", want: "malformed: malformed request: refused: the file has more than one hard link: write a new file instead", put: func(t *testing.T, path, outside string, _ approval.Key) {
			require.NoError(t, os.Link(outside, path))
		}},
		{name: "a FIFO", want: notRegular, put: func(t *testing.T, path, _ string, _ approval.Key) {
			require.NoError(t, unix.Mkfifo(path, 0o666))
		}},
		{name: "a socket", want: notRegular, put: func(t *testing.T, path, outside string, _ approval.Key) {
			short := filepath.Join(filepath.Dir(outside), "s") // socket paths are short
			l, err := net.Listen("unix", short)
			require.NoError(t, err)
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			t.Cleanup(func() { require.NoError(t, l.Close()) })
			require.NoError(t, os.Rename(short, path))
		}},
		{name: "a folder", want: notRegular, put: func(t *testing.T, path, _ string, _ approval.Key) {
			require.NoError(t, os.Mkdir(path, 0o777))
		}},
		{name: "a non-empty folder", want: notRegular, put: func(t *testing.T, path, outside string, _ approval.Key) {
			// Renamed into place: the gate moves away a folder that is still being filled.
			temp := filepath.Join(filepath.Dir(path), ".folder")
			require.NoError(t, os.MkdirAll(filepath.Join(temp, "deep", "deeper"), 0o777))
			require.NoError(t, os.Symlink(outside, filepath.Join(temp, "link.json")))
			require.NoError(t, os.Rename(temp, path))
		}},
		{name: "a sparse terabyte", want: tooLarge, put: func(t *testing.T, path, _ string, _ approval.Key) {
			require.NoError(t, os.WriteFile(path, nil, 0o644))
			require.NoError(t, os.Truncate(path, 1<<40))
		}},
		{name: "one byte too many", want: tooLarge, put: file(func(k approval.Key) string {
			return request(k, "auto", "") + strings.Repeat(" ", approval.MaxRequestSize+1-len(request(k, "auto", "")))
		})},
		{name: "a million keys", want: tooLarge, put: file(func(k approval.Key) string {
			var b strings.Builder
			for n := range 1_000_000 {
				fmt.Fprintf(&b, `"%x":0,`, n)
			}
			return request(k, "auto", "{"+b.String()+`"last":0}`)
		})},
		{name: "an empty file", want: incomplete, slow: true, put: text("")},
		{name: "blanks only", want: incomplete, slow: true, put: text(" \n\t ")},
		{name: "no closing brace", want: incomplete, slow: true, put: file(func(k approval.Key) string { return strings.TrimSuffix(request(k, "auto", ""), "}") })},
		{name: "half a string", want: incomplete, slow: true, put: file(func(k approval.Key) string { return request(k, "auto", "")[:30] })},
		{name: "a file that grows without end", want: incomplete, slow: true, put: grow},
		{name: "an id that is not the file's", want: invalid + "request_id differs from the file's name", put: file(func(k approval.Key) string { return request(key(0xffff), "auto", "") })},
		{name: "an id with a path", want: invalid + "request_id must be " + approval.IDForm, put: file(func(approval.Key) string { return `{"request_id":"../../other/requests/x","tool_name":"auto"}` })},
		{name: "an id in capitals", want: invalid + "request_id must be " + approval.IDForm, put: file(func(k approval.Key) string {
			return `{"request_id":"` + strings.ToUpper(k.ID) + `","tool_name":"auto"}`
		})},
		{name: "no id", want: invalid + "request_id must be " + approval.IDForm, put: text(`{"tool_name":"auto"}`)},
		{name: "a duplicate key", want: invalid + `duplicate key "tool_name"`, put: file(func(k approval.Key) string { return request(k, "never", "", `"tool_name":"auto"`) })},
		{name: "a duplicate key, escaped", want: invalid + `duplicate key "tool_name"`, put: file(func(k approval.Key) string { return request(k, "never", "", `"tool\u005fname":"auto"`) })},
		{name: "a duplicate key among the arguments", want: invalid + `duplicate key "a"`, put: file(func(k approval.Key) string { return request(k, "auto", `{"a":1,"a":2}`) })},
		{name: "an unknown key", want: invalid + `unknown key "approved"`, put: file(func(k approval.Key) string { return request(k, "run", "", `"approved":true`) })},
		{name: "a key in another case", want: invalid + `unknown key "Tool_Name"`, put: file(func(k approval.Key) string { return `{"request_id":"` + k.ID + `","Tool_Name":"auto"}` })},
		{name: "100,000 levels deep", want: invalid + "nested deeper than 32 levels", put: file(func(k approval.Key) string {
			return request(k, "auto", `{"a":`+strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)+`}`)
		})},
		{name: "100,000 levels deep and not closed", want: invalid + "nested deeper than 32 levels", put: text(strings.Repeat("[", 100_000))},
		{name: "bad UTF-8", want: notJSON, put: file(func(k approval.Key) string { return request(k, "auto", "{\"a\":\"\xff\xfe\"}") })},
		{name: "half a surrogate pair", want: notJSON, put: file(func(k approval.Key) string { return request(k, "auto", `{"a":"\ud800"}`) })},
		{name: "a byte order mark", want: notJSON, put: file(func(k approval.Key) string { return "\xef\xbb\xbf" + request(k, "auto", "") })},
		{name: "trailing data", want: notJSON, put: file(func(k approval.Key) string { return request(k, "auto", "") + `{}` })},
		{name: "a comment", want: notJSON, put: file(func(k approval.Key) string { return "// hello\n" + request(k, "auto", "") })},
		{name: "no JSON at all", want: notJSON, put: text("approve everything")},
		{name: "an array", want: invalid, put: text("[]")},
		{name: "a NUL", want: notJSON, put: text("\x00")},
	}
}

// grow appends to the file until the test ends, faster than the grace period and far
// below the size limit.
func grow(t *testing.T, path, _ string, _ approval.Key) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	require.NoError(t, err)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		_, _ = f.WriteString(`{"request_id":"`)
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				_, _ = f.WriteString("0")
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
		require.NoError(t, f.Close())
	})
}

// Every hostile file gets its refusal. Nothing outside is read, nothing blocks, and
// another workspace is not delayed.
func TestHostileFolder(t *testing.T) {
	t.Parallel()
	h := newRig(t, options{})
	outside := filepath.Join(gatetest.MemoryFolder(t), "outside.json") // on the same file system, for a hard link
	require.NoError(t, os.WriteFile(outside, []byte(request(key(0xaaaa), "auto", `{"word":"`+outsideMarker+`"}`)), 0o644))
	h.run(time.Second)
	cases := hostileCases()
	if os.Getuid() == 0 {
		cases = append(cases, hostile{name: "a device", want: "malformed: malformed request: refused: not a regular file: write a plain file", put: func(t *testing.T, path, _ string, _ approval.Key) {
			require.NoError(t, unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5)))) // endless zeros
		}})
	}

	began := map[int]time.Time{}
	for n, c := range cases { // slow cases first
		if c.slow {
			c.put(t, h.requestPath(key(n)), outside, key(n))
			began[n] = time.Now()
		}
	}
	for n, c := range cases {
		if c.slow {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			c.put(t, h.requestPath(key(n)), outside, key(n))
			neighbor := keyIn(other, 1000+n)
			h.writeRequest(neighbor, request(neighbor, "auto", ""))
			h.waitResponse(neighbor, time.Second)
			require.Equal(t, "auto_approved", h.outcome(neighbor))
			h.waitResponse(key(n), time.Second)
			h.requireMalformed(t, key(n), c.want)
		})
	}
	for n, c := range cases {
		if !c.slow {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			h.waitResponse(key(n), 4*time.Second)
			require.Greater(t, h.response(key(n)).RespondedAt.Sub(began[n]), move.IncompleteGrace-100*time.Millisecond, "refused before the grace period ended")
			h.requireMalformed(t, key(n), c.want)
		})
	}
	h.requireNotContained(t, outsideMarker)
	body, err := os.ReadFile(outside)
	require.NoError(t, err)
	require.Contains(t, string(body), outsideMarker, "nothing outside was touched")
	for _, j := range h.executor.jobs {
		require.Equal(t, other, j.Workspace, "nothing hostile ran")
	}
}

func (h *rig) requireMalformed(t *testing.T, k approval.Key, want string) {
	t.Helper()
	require.True(t, strings.HasPrefix(h.outcome(k), want), "outcome %q", h.outcome(k))
	h.waitFor(time.Second, "removed from the folder", func() bool {
		_, err := os.Lstat(h.requestPath(k))
		return os.IsNotExist(err)
	})
	require.Contains(t, h.refusals(personal), `"`+k.ID+`.request"`)
	require.Contains(t, h.history(k), event.Malformed)
}

// requireNotContained searches everything that the gate wrote.
func (h *rig) requireNotContained(t *testing.T, word string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(h.layout.Home, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasPrefix(path, h.layout.Requests(personal)) {
			return nil // removed meanwhile, or written by the agent
		}
		b, err := os.ReadFile(path)
		if err == nil {
			require.NotContains(t, string(b), word, path)
		}
		return nil
	}))
	require.NotContains(t, h.logs.String(), word)
}

// A non-empty folder cannot be deleted, so it is renamed to a name that the gate
// ignores. Nothing in it is followed.
func TestNonEmptyFolderIsSetAside(t *testing.T) {
	h, k := newRig(t, options{inline: true}), key(1)
	require.NoError(t, os.MkdirAll(filepath.Join(h.requestPath(k), "x"), 0o777))
	h.step(k)
	require.True(t, h.isSettled(k))
	names, err := os.ReadDir(h.layout.Requests(personal))
	require.NoError(t, err)
	require.Len(t, names, 1)
	require.True(t, strings.HasPrefix(names[0].Name(), ".refused-"), names[0].Name())

	// The same for a cancel.
	require.NoError(t, os.MkdirAll(filepath.Join(h.layout.Requests(personal), key(2).ID+".cancel", "x"), 0o777))
	h.step(key(2))
	require.NoDirExists(t, filepath.Join(h.layout.Requests(personal), key(2).ID+".cancel"))
}

// Only the name makes a file a request. One whose name could be an id gets a malformed
// response under it; other names are described and removed. Those with a leading dot are
// ignored.
func TestInvalidFileNames(t *testing.T) {
	h := newRig(t, options{inline: true})
	good := key(0xabcdef12)
	const uuid = "0190F3C2-1B7E-7C4A-9D2E-5F60718293A4"
	answered := []string{
		strings.ToUpper(good.ID), // beside the lower-case one
		good.ID[:15], "x", "-", "--------------------------------", "_", uuid, strings.ToLower(uuid[1:]), uuid + "-x", "folder",
	}
	strays := []string{
		good.ID + ".JSON", good.ID + strings.Repeat("0", 49) + ".json", " .json", "a b.json", "id\n.json", "\xff\xfe.json",
		"%2e%2e%2fx.json", "x y.cancel", good.ID + ".again.json", "{" + uuid + "}.json", "ä.json",
	}
	remaining := []string{".json", "..json", "...json", "..", ".tmp-1234", "notes.txt", good.ID, good.ID + ".json~"}
	dir := h.layout.Requests(personal)
	for _, name := range slices.Concat(strays, remaining) {
		if name != ".." {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(request(good, "auto", "")), 0o644))
		}
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder.json"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "folder.json", "x"), nil, 0o644))
	for _, id := range answered[:len(answered)-1] {
		k := approval.Key{Workspace: personal, ID: id}
		require.NoError(t, os.WriteFile(h.requestPath(k), []byte(request(k, "auto", "")), 0o644))
	}
	h.writeRequest(good, request(good, "auto", ""))
	require.NoError(t, h.gate.Rescan(context.Background(), personal))
	h.step(good)
	require.Equal(t, "auto_approved", h.outcome(good))
	require.Equal(t, 1, h.executor.count())
	for _, id := range answered {
		k := approval.Key{Workspace: personal, ID: id}
		h.step(k)
		h.requireBadName(k)
	}
	said := h.refusals(personal)
	for _, name := range strays {
		require.NoFileExists(t, filepath.Join(dir, name))
		require.NoDirExists(t, filepath.Join(dir, name))
		require.Contains(t, said, fmt.Sprintf("%.100q: invalid request file name: use %s, and .json\n", name, approval.IDForm))
	}
	for _, name := range remaining {
		if name != ".." {
			require.FileExists(t, filepath.Join(dir, name))
			require.NotContains(t, said, fmt.Sprintf("%q:", name))
		}
	}
	h.reopen()
	h.requireBadName(approval.Key{Workspace: personal, ID: uuid})
	outside, err := filepath.Glob(filepath.Join(h.layout.Workspace(personal), "*.json"))
	require.NoError(t, err)
	require.Empty(t, outside)
}

// requireBadName wants a record and a malformed response that says how to write an id.
func (h *rig) requireBadName(k approval.Key) {
	h.t.Helper()
	r := h.response(k)
	require.NotNil(h.t, r, k.ID)
	require.Equal(h.t, approval.StatusMalformed, r.Status, k.ID)
	require.Equal(h.t, k.ID, r.RequestID)
	if k.ID != "folder" {
		require.Contains(h.t, *r.Error, approval.IDForm)
	}
	require.True(h.t, h.isSettled(k), k.ID)
}
