package client

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/watcher"
)

// The agent and the daemon are often different users, and agents may have a strict umask.
func TestRequestsCanBeReadByTheGate(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	f := Files{Requests: t.TempDir()}
	id := NewID()
	require.NoError(t, f.Submit(id, []byte("{}")))
	info, err := os.Stat(filepath.Join(f.Requests, id+".json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), info.Mode().Perm())
}

// fakeEnd handles a cancel as a gate does: it writes the response, if there is one, and then
// removes the cancel. It returns the reason.
func fakeEnd(t *testing.T, f Files, id string, status approval.Status) (reason <-chan string) {
	t.Helper()
	got, file := make(chan string, 1), filepath.Join(f.Requests, id+".cancel")
	go func() {
		_ = watcher.Await(t.Context(), file, func() (bool, error) {
			b, err := os.ReadFile(file)
			if err != nil {
				return false, nil //nolint:nilerr // not yet
			}
			if status != "" {
				writeResponse(t, f, id, status)
			}
			got <- string(b)
			return true, os.Remove(file)
		})
	}()
	return got
}

func writeResponse(t *testing.T, f Files, id string, status approval.Status) {
	t.Helper()
	b, err := (&approval.Response{Version: approval.Version, RequestID: id, Status: status}).Encode()
	if err == nil {
		err = Files{Requests: f.Responses}.Submit(id, b)
	}
	if err != nil {
		t.Error(err)
	}
}

// A cancel says what it found. One that comes too late writes nothing.
func TestFilesCancelBecause(t *testing.T) {
	for _, row := range []struct {
		why           string
		before, after approval.Status
		err           error
	}{
		{"pending", "", approval.StatusCancelled, nil},
		{"it had run before the cancel was read", "", approval.StatusApproved, nil},
		{"unknown", "", "", ErrNotFound},
		{"ended before", approval.StatusDenied, "", nil},
	} {
		t.Run(row.why, func(t *testing.T) {
			f := Files{Requests: t.TempDir(), Responses: t.TempDir()}
			id := NewID()
			if row.before != "" {
				writeResponse(t, f, id, row.before)
				got, err := f.CancelBecause(t.Context(), Submitted{ID: id}, "why")
				require.NoError(t, err)
				require.Equal(t, row.before, got)
				require.NoFileExists(t, filepath.Join(f.Requests, id+".cancel"))
				return
			}
			reason := fakeEnd(t, f, id, row.after)
			got, err := f.CancelBecause(t.Context(), Submitted{ID: id}, "no longer needed")
			require.ErrorIs(t, err, row.err)
			require.Equal(t, row.after, got)
			require.Equal(t, "no longer needed", <-reason)
		})
	}
}

// What no daemon takes is told once, and stands in the error of a deadline.
func TestFilesTellSilence(t *testing.T) {
	told := make(chan string, 5)
	f := Files{Requests: t.TempDir(), Responses: t.TempDir(), Silent: func(tried string) { told <- tried }}
	s, err := f.Ask(t.Context(), approval.Request{ToolName: "x"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := f.Await(ctx, s)
		ended <- err
	}()
	const says = "no daemon has taken "
	require.Equal(t, says+filepath.Join(f.Requests, s.ID+".json"), <-told)
	cancel()
	silence := (*Silence)(nil)
	require.ErrorAs(t, <-ended, &silence)
	require.Equal(t, says+filepath.Join(f.Requests, s.ID+".json"), silence.Tried)
	require.Empty(t, told)

	require.NoError(t, os.Remove(filepath.Join(f.Requests, s.ID+".json"))) // a person is asked now
	_, err = f.Await(ctx, s)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorAs(t, err, &silence, "nothing is wrong")
	f.Responses += "/none"
	_, err = f.Await(ctx, s)
	require.ErrorAs(t, err, &silence)
	require.Equal(t, "there is no folder "+f.Responses, silence.Tried)
}

// Until a daemon takes a request, a look says that none has.
func TestFilesLook(t *testing.T) {
	f := Files{Requests: t.TempDir(), Responses: t.TempDir()}
	s, err := f.Ask(t.Context(), approval.Request{ToolName: "x"})
	require.NoError(t, err)
	look := func() View {
		v, err := f.Look(t.Context(), s)
		require.NoError(t, err)
		return v
	}
	require.Equal(t, View{Untaken: true}, look())
	require.NoError(t, os.Rename(filepath.Join(f.Requests, s.ID+".json"), filepath.Join(f.Requests, "taken")))
	require.Equal(t, View{}, look())
}

// mute accepts connections and never answers.
func mute(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	}()
	return "http://" + l.Addr().String()
}

// A server that accepts and says nothing is told after a moment, and stands in the error of a
// deadline; so does one that is not there.
func TestRESTTellsSilence(t *testing.T) {
	told := make(chan string, 5)
	r := &REST{URL: mute(t), Key: "k", Silent: func(tried string) { told <- tried }}
	id := Submitted{ID: "0123456789abcdef"}
	for _, do := range []func(ctx context.Context) error{
		func(ctx context.Context) error {
			_, err := r.Ask(ctx, approval.Request{ActionType: "exec_cmd"})
			return err
		},
		func(ctx context.Context) error { _, err := r.Await(ctx, id); return err },
		func(ctx context.Context) error { _, err := r.CancelBecause(ctx, id, ""); return err },
		func(ctx context.Context) error { _, err := r.Find(ctx, "0123"); return err },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- do(ctx) }()
		require.Equal(t, "no answer from "+r.URL, <-told)
		cancel()
		silence := (*Silence)(nil)
		require.ErrorAs(t, <-ended, &silence)
		require.Contains(t, silence.Tried, r.URL)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := (&REST{URL: "http://127.0.0.1:1", Key: "k"}).Await(ctx, id)
	silence := (*Silence)(nil)
	require.ErrorAs(t, err, &silence)
	require.Equal(t, "nothing listens at http://127.0.0.1:1", silence.Tried)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// An attempt that the end of the timeout interrupts hides nothing of what those before it found.
func TestSilenceNamesTheLastCompleteAttempt(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if n == 0 { // the first is closed in the middle of an answer, the second has none
				_, _ = c.Read(make([]byte, 1))
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
				_ = c.Close()
				continue
			}
			defer c.Close()
			_, _ = c.Read(make([]byte, 1))
			cancel()
		}
	}()
	r := &REST{URL: "http://" + l.Addr().String(), Key: "k"}
	_, err = r.CancelBecause(ctx, Submitted{ID: "0123456789abcdef"}, "")
	silence := (*Silence)(nil)
	require.ErrorAs(t, err, &silence)
	require.Equal(t, r.URL+" closed the connection before it had answered", silence.Tried)
}
