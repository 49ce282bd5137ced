package telegram_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-telegram/bot"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/chat/telegram/botapi"
)

const token = "123456:AAtheSecretHalfOfTheToken_-x"

var errDisk = errors.New("no space left on device")

// updateQueue is Telegram's queue: updates below the offset are dropped, the rest is returned again.
type updateQueue struct {
	updates []string
	offsets []int64 // of all polls
}

func (q *updateQueue) Do(req *http.Request) (*http.Response, error) {
	if err := req.ParseForm(); err != nil {
		return nil, err
	}
	offset, err := strconv.ParseInt(req.PostForm.Get("offset"), 10, 64)
	if err != nil {
		return nil, err
	}
	q.offsets = append(q.offsets, offset)
	q.updates = slices.DeleteFunc(q.updates, func(u string) bool { return idOf(u) < offset })
	return answer(http.StatusOK, `{"ok":true,"result":[`+strings.Join(q.updates, ",")+`]}`), nil
}

func idOf(update string) int64 {
	var head struct {
		ID int64 `json:"update_id"`
	}
	if err := json.Unmarshal([]byte(update), &head); err != nil {
		return 0
	}
	return head.ID
}

func answer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

func update(id int64) string { return fmt.Sprintf(`{"update_id":%d,"message":{"text":"u%d"}}`, id, id) }

func updates(ids ...int64) []string {
	var all []string
	for _, id := range ids {
		all = append(all, update(id))
	}
	return all
}

// poll polls like the library, with a multipart form, and returns the IDs that the library would get.
func poll(t *testing.T, j *telegram.Journal, offset int64) ([]int64, error) {
	t.Helper()
	body := "--b\r\nContent-Disposition: form-data; name=\"offset\"\r\n\r\n" + strconv.FormatInt(offset, 10) + "\r\n--b--\r\n"
	req, err := http.NewRequest(http.MethodPost, "http://127.0.0.1:1/bot"+token+"/getUpdates", strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	resp, err := j.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var got struct {
		OK     bool
		Result []json.RawMessage
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&got))
	require.True(t, got.OK)
	ids := []int64{}
	for _, raw := range got.Result {
		ids = append(ids, idOf(string(raw)))
	}
	return ids, nil
}

func unfinished(t *testing.T, j *telegram.Journal) []int64 {
	t.Helper()
	all, err := j.Unfinished()
	require.NoError(t, err)
	ids := []int64{}
	for _, u := range all {
		require.Equal(t, u.ID, idOf(string(u.JSON)), "the bytes belong to the ID")
		ids = append(ids, u.ID)
	}
	return ids
}

// failOn fails one operation on one file.
func failOn(op, name string, err error) func(op, name string) error {
	return func(o, n string) error {
		if o == op && n == name {
			return err
		}
		return nil
	}
}

func TestJournalStoresBeforeReturning(t *testing.T) {
	files := &botapi.Files{}
	j := &telegram.Journal{Client: &updateQueue{updates: updates(10, 11, 12)}, Store: files}
	got, err := poll(t, j, 1)
	require.NoError(t, err)
	require.Equal(t, []int64{10, 11, 12}, got)

	after := &telegram.Journal{Store: files.CutPower()}
	require.Equal(t, []int64{10, 11, 12}, unfinished(t, after), "none was finished")
}

func TestJournalReturnsOnlyStoredUpdates(t *testing.T) {
	tests := []struct {
		why  string
		fail func(op, name string) error
		want []int64
		err  error
	}{
		{"the first write fails: an error, the offset stays", failOn("put", "update-10.json", errDisk), nil, errDisk},
		{"a later write fails: earlier updates pass, it comes again", failOn("put", "update-11.json", errDisk), []int64{10}, nil},
		{"stored, but with an error: not trusted", failOn("put", "update-10.json", botapi.ErrDone), nil, botapi.ErrDone},
		{"the store cannot be listed: an error", failOn("list", "", errDisk), nil, errDisk},
	}
	for _, tt := range tests {
		t.Run(tt.why, func(t *testing.T) {
			files := &botapi.Files{Fail: tt.fail}
			q := &updateQueue{updates: updates(10, 11)}
			j := &telegram.Journal{Client: q, Store: files}
			got, err := poll(t, j, 1)
			require.ErrorIs(t, err, tt.err)
			require.Equal(t, tt.want, got)

			files.Fail = nil
			next := int64(1)
			if len(got) > 0 {
				next = got[len(got)-1] + 1
			}
			rest, err := poll(t, j, next)
			require.NoError(t, err)
			require.Equal(t, []int64{10, 11}, append(got, rest...), "the library gets each update once")
		})
	}
}

func TestJournalReturnsEachUpdateOnce(t *testing.T) {
	files := &botapi.Files{}
	q := &updateQueue{updates: updates(10, 11)}
	j := &telegram.Journal{Client: q, Store: files}
	_, err := poll(t, j, 1)
	require.NoError(t, err)
	require.True(t, j.Begin(10))
	require.NoError(t, j.Finished(10))

	j = &telegram.Journal{Client: q, Store: files.CutPower()}
	require.Equal(t, []int64{11}, unfinished(t, j), "the file of 10 is back after the power cut, but finished")
	q.offsets = nil
	got, err := poll(t, j, 1)
	require.NoError(t, err)
	require.Empty(t, got)
	require.Equal(t, []int64{1, 12}, q.offsets, "dropped updates are acknowledged, so that Telegram stops sending them")

	q.updates = updates(11, 12)
	got, err = poll(t, j, 1)
	require.NoError(t, err)
	require.Equal(t, []int64{12}, got, "a new update after an old one is not lost")
}

func TestJournalAcceptsLowerIDs(t *testing.T) {
	files := &botapi.Files{}
	q := &updateQueue{updates: updates(900_000)}
	j := &telegram.Journal{Client: q, Store: files}
	_, err := poll(t, j, 1)
	require.NoError(t, err)
	require.NoError(t, j.Finished(900_000))

	q.updates = updates(17)
	got, err := poll(t, j, 1)
	require.NoError(t, err)
	require.Equal(t, []int64{17}, got, "after a week without updates IDs restart at any number")
}

func TestJournalClaims(t *testing.T) {
	j := &telegram.Journal{Client: &updateQueue{updates: updates(1, 2)}, Store: &botapi.Files{}}
	require.False(t, j.Begin(1), "never journaled")
	_, err := poll(t, j, 1)
	require.NoError(t, err)

	require.True(t, j.Begin(1))
	require.False(t, j.Begin(1), "already claimed")
	require.Equal(t, []int64{2}, unfinished(t, j))
	j.Abandon(1)
	require.Equal(t, []int64{1, 2}, unfinished(t, j))
	require.True(t, j.Begin(1))
	require.NoError(t, j.Finished(1))
	require.NoError(t, j.Finished(1), "idempotent")
	j.Abandon(1)
	require.False(t, j.Begin(1), "finished")
}

func TestJournalFinishWriteFails(t *testing.T) {
	files := &botapi.Files{}
	j := &telegram.Journal{Client: &updateQueue{updates: updates(1, 2)}, Store: files}
	_, err := poll(t, j, 1)
	require.NoError(t, err)

	files.Fail = failOn("put", "finished.json", errDisk)
	require.ErrorIs(t, j.Finished(1), errDisk)
	require.False(t, j.Begin(1), "still done in this process")
	files.Fail = nil
	require.Equal(t, []int64{1, 2}, unfinished(t, &telegram.Journal{Store: files.Kill()}), "the file stays until finished.json has the ID")
}

func TestJournalRetriesFailedFinish(t *testing.T) {
	files := &botapi.Files{}
	j := &telegram.Journal{Client: &updateQueue{updates: updates(1, 2)}, Store: files}
	_, err := poll(t, j, 1)
	require.NoError(t, err)
	files.Fail = failOn("put", "finished.json", errDisk)
	require.ErrorIs(t, j.Finished(1), errDisk)
	files.Fail = nil
	require.NoError(t, j.Finished(2))
	require.Empty(t, unfinished(t, &telegram.Journal{Store: files.Kill()}), "the next write has both IDs")
}

func TestJournalFull(t *testing.T) {
	q := &updateQueue{updates: updates(1, 2, 3)}
	j := &telegram.Journal{Client: q, Store: &botapi.Files{}, MaxUnfinished: 2}
	got, err := poll(t, j, 1)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2}, got)
	_, err = poll(t, j, 3)
	require.ErrorIs(t, err, telegram.ErrJournalFull)
	require.NoError(t, j.Finished(2))
	got, err = poll(t, j, 3)
	require.NoError(t, err)
	require.Equal(t, []int64{3}, got, "Telegram kept the update")
}

func TestJournalSetsUnreadableUpdatesAside(t *testing.T) {
	strange := `{"update_id":2,"message":{"text":["from a later version"]}}`
	files := &botapi.Files{}
	q := &updateQueue{updates: []string{update(1), strange, update(3)}}
	j := &telegram.Journal{Client: q, Store: files}
	got, err := poll(t, j, 1)
	require.NoError(t, err)
	require.Equal(t, []int64{1}, got)

	_, err = poll(t, j, 2)
	require.ErrorContains(t, err, "decode update 2")
	kept, err := files.Get("broken-2.json")
	require.NoError(t, err)
	require.JSONEq(t, strange, string(kept))

	got, err = poll(t, j, 2)
	require.NoError(t, err)
	require.Equal(t, []int64{3}, got, "reported once, then skipped")
	require.Equal(t, []int64{1, 3}, unfinished(t, j))
}

func TestJournalRefusesDamage(t *testing.T) {
	tests := []struct{ why, body, want string }{
		{"an update without an ID could be taken twice", `{"ok":true,"result":[{"message":{}}]}`, "without update_id"},
		{"result is no list", `{"ok":true,"result":{"update_id":1}}`, "decode getUpdates response"},
	}
	for _, tt := range tests {
		t.Run(tt.why, func(t *testing.T) {
			j := &telegram.Journal{Store: &botapi.Files{}, Client: clientFunc(func(*http.Request) (*http.Response, error) {
				return answer(http.StatusOK, tt.body), nil
			})}
			_, err := poll(t, j, 1)
			require.ErrorContains(t, err, tt.want)
		})
	}

	files := &botapi.Files{}
	require.NoError(t, files.Put("finished.json", []byte("{")))
	_, err := poll(t, &telegram.Journal{Client: &updateQueue{updates: updates(1)}, Store: files}, 1)
	require.ErrorContains(t, err, "finished.json")
}

func TestJournalTake(t *testing.T) {
	files := &botapi.Files{}
	j := &telegram.Journal{Store: files}
	fresh, err := j.Take([]byte(update(5)))
	require.NoError(t, err)
	require.True(t, fresh)
	require.Equal(t, []int64{5}, unfinished(t, &telegram.Journal{Store: files.Kill()}))

	files = &botapi.Files{}
	j = &telegram.Journal{Store: files}
	for i, want := range []bool{true, false} {
		fresh, err := j.Take([]byte(update(5)))
		require.NoError(t, err)
		require.Equal(t, want, fresh, "delivery %d", i+1)
	}
	require.NoError(t, j.Finished(5))
	fresh, err = j.Take([]byte(update(5)))
	require.NoError(t, err)
	require.False(t, fresh, "also when finished")
	_, err = j.Take([]byte(`{"update_id":6,"message":7}`))
	require.ErrorContains(t, err, "decode update 6")
}

// TestJournalCrashes kills the process before each operation on its files, in one run each, and restarts it
// until it has polled, claimed, handled and finished twelve updates.
func TestJournalCrashes(t *testing.T) {
	for _, how := range []struct {
		name  string
		after func(*botapi.Files) *botapi.Files
	}{{"kill", (*botapi.Files).Kill}, {"power cut", (*botapi.Files).CutPower}} {
		t.Run(how.name, func(t *testing.T) {
			crashes := 0
			for at := 1; ; at++ {
				w := &crashRun{files: &botapi.Files{}, handled: map[int64]int{}, finished: map[int64]bool{}}
				for id := int64(1); id <= 12; id++ {
					w.queue.updates = append(w.queue.updates, update(id))
				}
				if !w.run(t, at) {
					require.Equal(t, at-1, crashes)
					require.Equal(t, 1+3*12, crashes, "one list, and three operations per update")
					break
				}
				crashes++
				w.files = how.after(w.files)
				require.False(t, w.run(t, 0))
				for id := int64(1); id <= 12; id++ {
					require.Positive(t, w.handled[id], "update %d was lost by a crash at operation %d", id, at)
				}
			}
		})
	}
}

type crashRun struct {
	queue    updateQueue
	files    *botapi.Files
	handled  map[int64]int
	finished map[int64]bool
}

// run runs one process until all is done, or until it dies at the given operation.
func (w *crashRun) run(t *testing.T, killAt int) (died bool) {
	t.Helper()
	ops, files := 0, w.files
	files.Fail = func(string, string) error {
		if ops++; ops == killAt {
			w.files = files.Kill()
			return botapi.ErrKilled
		}
		return nil
	}
	j := &telegram.Journal{Client: &w.queue, Store: files}
	left, err := j.Unfinished()
	for _, u := range left {
		err = errors.Join(err, w.handle(t, j, u.ID))
	}
	for offset := int64(1); err == nil; {
		var ids []int64
		if ids, err = poll(t, j, offset); err != nil || len(ids) == 0 {
			break
		}
		offset = ids[len(ids)-1] + 1
		for _, id := range ids {
			err = errors.Join(err, w.handle(t, j, id))
		}
	}
	if err != nil {
		require.ErrorIs(t, err, botapi.ErrKilled)
	}
	return err != nil
}

func (w *crashRun) handle(t *testing.T, j *telegram.Journal, id int64) error {
	t.Helper()
	if !j.Begin(id) {
		return nil
	}
	require.False(t, w.finished[id], "update %d was finished, and came again", id)
	w.handled[id]++
	err := j.Finished(id)
	w.finished[id] = err == nil
	return err
}

type clientFunc func(*http.Request) (*http.Response, error)

func (f clientFunc) Do(req *http.Request) (*http.Response, error) { return f(req) }

// TestNoTokenInErrors makes the library fail in every known way and searches its errors for the token.
func TestNoTokenInErrors(t *testing.T) {
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
		fmt.Fprintf(w, "<html>%s is not there</html>", r.URL.Path)
	}))
	defer echo.Close()
	quote := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"ok":false,"error_code":400,"description":"no %s"}`, r.URL.Path)
	}))
	defer quote.Close()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()

	tests := []struct {
		why    string
		ctx    context.Context
		server string
		want   error
		theirs bool // made by the library; the journal does not see it
	}{
		{"connection refused", t.Context(), "http://127.0.0.1:1", nil, false},
		{"a proxy's page contains the path", t.Context(), echo.URL, nil, false},
		{"an answer quotes the path", t.Context(), quote.URL, bot.ErrorBadRequest, false},
		{"an invalid URL is quoted", t.Context(), "http://127.0.0.1:bad", nil, true},
		{"a canceled context is recognized", cancelled, quote.URL, context.Canceled, false},
	}
	for _, tt := range tests {
		t.Run(tt.why, func(t *testing.T) {
			j := &telegram.Journal{Client: http.DefaultClient, Store: &botapi.Files{}, Token: token}
			b, err := bot.New(token, bot.WithSkipGetMe(), bot.WithServerURL(tt.server), bot.WithHTTPClient(0, j))
			require.NoError(t, err)
			_, err = b.GetMe(tt.ctx)
			require.Error(t, err)
			if tt.theirs {
				require.ErrorContains(t, err, token, "or this case is obsolete")
				err = telegram.Redact(token, err)
			}
			requireClean(t, err)
			if tt.want != nil {
				require.ErrorIs(t, err, tt.want)
			}
		})
	}
}

// requireClean searches an error and all errors that it wraps for the token.
func requireClean(t *testing.T, err error) {
	t.Helper()
	require.NotContains(t, err.Error(), "AAtheSecret")
	var inURL *url.Error
	if errors.As(err, &inURL) {
		require.NotContains(t, inURL.Error(), "AAtheSecret")
	}
	switch wrapper := err.(type) { //nolint:errorlint // we walk the tree ourselves, one level at a time
	case interface{ Unwrap() error }:
		if cause := wrapper.Unwrap(); cause != nil {
			requireClean(t, cause)
		}
	case interface{ Unwrap() []error }:
		for _, cause := range wrapper.Unwrap() {
			requireClean(t, cause)
		}
	}
}

func TestJournalErrorsHoldNoToken(t *testing.T) {
	for _, method := range []string{"getUpdates", "sendMessage"} {
		j := &telegram.Journal{Client: http.DefaultClient, Store: &botapi.Files{}, Token: token}
		req, err := http.NewRequest(http.MethodPost, "http://127.0.0.1:1/bot"+token+"/"+method, nil)
		require.NoError(t, err)
		resp, err := j.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		require.Error(t, err)
		requireClean(t, err)
	}
}

func TestRedact(t *testing.T) {
	inner := errors.New("connection refused")
	dirty := fmt.Errorf("post: %w", &url.Error{Op: "Post", URL: "http://h/bot" + token + "/x", Err: inner})
	tests := []struct {
		why   string
		token string
		err   error
		want  string
		is    error
	}{
		{"in the URL", token, dirty, `post: Post "http://h/bot***/x": connection refused`, inner},
		{"escaped", token, errors.New("q=" + url.QueryEscape(token)), "q=***", nil},
		{"the secret part alone", token, errors.New("x AAtheSecretHalfOfTheToken_-x x"), "x *** x", nil},
		{"one of several", token, errors.Join(inner, dirty), "connection refused\npost: Post \"http://h/bot***/x\": connection refused", inner},
		{"wrapped by an error without it", token, &hidingError{dirty}, "hiding", inner},
		{"no token in the text", token, inner, "connection refused", inner},
		{"empty token", "", inner, "connection refused", inner},
	}
	for _, tt := range tests {
		t.Run(tt.why, func(t *testing.T) {
			err := telegram.Redact(tt.token, tt.err)
			require.EqualError(t, err, tt.want)
			requireClean(t, err)
			if tt.is != nil {
				require.ErrorIs(t, err, tt.is)
			}
		})
	}
	require.NoError(t, telegram.Redact(token, nil))

	var tooMany *bot.TooManyRequestsError
	err := telegram.Redact(token, fmt.Errorf("%s: %w", token, &bot.TooManyRequestsError{RetryAfter: 7}))
	require.ErrorAs(t, err, &tooMany)
	require.Equal(t, 7, tooMany.RetryAfter)
}

type hidingError struct{ err error }

func (h *hidingError) Error() string { return "hiding" }
func (h *hidingError) Unwrap() error { return h.err }
