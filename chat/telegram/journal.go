package telegram

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-telegram/bot/models"
)

const (
	maxResponse   = 64 << 20 // bytes; far above a hundred updates
	maxPollForm   = 64 << 10 // bytes of the form of getUpdates
	maxUnfinished = 1000     // see Journal.MaxUnfinished
	maxUnreadable = 20       // unreadable updates that are kept for inspection

	updatePrefix     = "update-"       // update-ID.json: the update as received
	unreadablePrefix = "broken-"       // broken-ID.json: an update that the library cannot decode
	finishedFile     = "finished.json" // the finished IDs
	journalExt       = ".json"
)

// ErrJournalFull says that too many updates wait for their handlers, so no more are taken now. Telegram keeps
// them for a day.
var ErrJournalFull = errors.New("too many unhandled Telegram updates")

// httpClient is the library's bot.HttpClient.
type httpClient interface {
	Do(req *http.Request) (*http.Response, error)
}

// store keeps small files by name. It must be safe for concurrent use.
type store interface {
	// Put replaces the file atomically. After nil, it survives a power cut; after an error, either version may
	// be there.
	Put(name string, b []byte) error
	// Get returns what Put stored.
	Get(name string) ([]byte, error)
	// List returns all names, in any order.
	List() ([]string, error)
	// Remove removes a file, durably or not. A missing file is no error.
	Remove(name string) error
}

// Update is a journaled update.
type Update struct {
	ID   int64
	JSON []byte // as received
}

// Journal is the client for bot.WithHTTPClient. It makes updates durable before the library sees them. The
// library acknowledges an update to Telegram before its handler has finished, so a crash in between would lose
// a tap.
//
// A getUpdates response is passed on up to the last update that is in the store. If not even the first one can
// be stored, Do returns an error: the library keeps its offset, and Telegram sends the same updates again. A
// handler calls Begin first and Finished at the end. Before a new bot.Bot polls, the caller handles what
// Unfinished lists.
//
// An update is passed on once. If Telegram sends it again, even after a restart, it is dropped and
// acknowledged. For this, finished.json holds the finished IDs as intervals. The highest ID would not suffice:
// after a week without updates Telegram continues at a random number, which may be lower. The number and the
// length of the intervals are bounded; dropped IDs are older than any update that Telegram still sends.
//
// An update that the library cannot decode would block all others in its response. It is kept as
// broken-ID.json, marked finished, and reported as an error once.
//
// No error of Do and no response body holds the token; the library quotes a body that it cannot parse. The
// library's own errors need Redact.
type Journal struct {
	Client httpClient
	Store  store
	Token  string // of the bot

	// MaxUnfinished is how many updates may wait for their handlers; 0: 1,000. Above it, Do and Take return
	// ErrJournalFull.
	MaxUnfinished int

	takeMu sync.Mutex // serializes take

	mu         sync.Mutex // guards the fields below
	loaded     bool
	unfinished map[int64]bool // journaled, not finished; true: a handler has begun
	done       intervals
	changes    int // of done

	saveMu sync.Mutex // guards saved and the writing of finished.json
	saved  int        // how many changes finished.json has
}

// Do implements httpClient.
func (j *Journal) Do(req *http.Request) (*http.Response, error) {
	var resp *http.Response
	var err error
	if strings.EqualFold(path.Base(req.URL.Path), "getUpdates") {
		resp, err = j.poll(req)
	} else {
		resp, _, err = j.call(req)
	}
	return resp, Redact(j.Token, err)
}

// poll polls until there are new updates, or none. A response of old updates only must not reach the library:
// it would keep its offset and ask for the same ones again, without end.
func (j *Journal) poll(req *http.Request) (*http.Response, error) {
	form, err := formOf(req)
	if err != nil {
		return nil, fmt.Errorf("read getUpdates parameters: %w", err)
	}
	for {
		resp, body, err := j.call(withForm(req, form))
		if err != nil {
			return nil, err
		}
		var answer struct {
			OK     bool              `json:"ok"`
			Result []json.RawMessage `json:"result"`
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return nil, fmt.Errorf("decode getUpdates response: %w", err)
		}
		if !answer.OK || len(answer.Result) == 0 {
			return resp, nil
		}
		fresh, last, err := j.takeAll(answer.Result)
		if err != nil {
			return nil, err
		}
		if len(fresh) > 0 {
			return resp, setBody(resp, fresh)
		}
		form.Set("offset", strconv.FormatInt(last+1, 10))
	}
}

// call sends a request and reads the response, which is JSON without the token.
func (j *Journal) call(req *http.Request) (*http.Response, []byte, error) {
	resp, err := j.Client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if err != nil {
		return nil, nil, fmt.Errorf("read Bot API response: %w", err)
	}
	if body = bytes.TrimSpace(body); !bytes.HasPrefix(body, []byte("{")) || !json.Valid(body) {
		// From a proxy in front of the Bot API. A retry helps.
		return nil, nil, fmt.Errorf("HTTP status %d without a Bot API response", resp.StatusCode)
	}
	body = []byte(mask(secretsOf(j.Token), string(body)))
	replaceBody(resp, body)
	return resp, body, nil
}

// takeAll stores the updates in order, as far as possible, and returns the new ones. last is the ID up to which
// all are stored. It returns an error only if the first one cannot be stored; a later one comes again as the
// first.
func (j *Journal) takeAll(updates []json.RawMessage) (fresh []json.RawMessage, last int64, err error) {
	for i, raw := range updates {
		id, isNew, err := j.take(raw)
		if err != nil && i == 0 {
			return nil, 0, j.setAside(raw, err)
		}
		if err != nil {
			break
		}
		if last = id; isNew {
			fresh = append(fresh, raw)
		}
	}
	return fresh, last, nil
}

// Take makes an update from the webhook durable. Only then may the request be answered with 200. fresh is false
// for a repeated update.
func (j *Journal) Take(raw []byte) (fresh bool, err error) {
	_, fresh, err = j.take(raw)
	return fresh, j.setAside(raw, err)
}

// unreadableUpdate is an update that the library cannot decode.
type unreadableUpdate struct {
	id    int64
	cause error
}

func (b *unreadableUpdate) Error() string {
	return fmt.Sprintf("decode update %d: %s", b.id, b.cause)
}
func (b *unreadableUpdate) Unwrap() error { return b.cause }

func (j *Journal) take(raw []byte) (id int64, fresh bool, err error) {
	j.takeMu.Lock()
	defer j.takeMu.Unlock()
	var head struct {
		ID int64 `json:"update_id"`
	}
	if err := json.Unmarshal(raw, &head); err != nil || head.ID <= 0 {
		return 0, false, errors.New("update without update_id")
	}
	known, full, err := j.lookup(head.ID)
	if err != nil || known {
		return head.ID, false, err
	}
	if err := json.Unmarshal(raw, new(models.Update)); err != nil {
		return head.ID, false, &unreadableUpdate{head.ID, err}
	}
	if full {
		return head.ID, false, ErrJournalFull
	}
	if err := j.Store.Put(updateName(head.ID), raw); err != nil {
		return head.ID, false, fmt.Errorf("journal update %d: %w", head.ID, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.unfinished[head.ID] = false
	return head.ID, true, nil
}

func (j *Journal) lookup(id int64) (known, full bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(); err != nil {
		return false, false, err
	}
	_, known = j.unfinished[id]
	return known || j.done.has(id), len(j.unfinished) >= cmp.Or(j.MaxUnfinished, maxUnfinished), nil
}

// setAside marks an unreadable update as finished, keeps it for inspection, and returns an error that reports
// it. Other errors are returned unchanged.
func (j *Journal) setAside(raw []byte, why error) error {
	var b *unreadableUpdate
	if !errors.As(why, &b) {
		return why
	}
	names, err := j.Store.List()
	if err != nil {
		return fmt.Errorf("list update journal: %w", err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, unreadablePrefix) })
	if len(names) < maxUnreadable {
		if err := j.Store.Put(unreadablePrefix+strconv.FormatInt(b.id, 10)+journalExt, raw); err != nil {
			return fmt.Errorf("set update %d aside: %w", b.id, err)
		}
	}
	if err := j.finish(b.id); err != nil {
		return err
	}
	return fmt.Errorf("%w; set aside", b)
}

// Unfinished lists, by ID, the journaled updates that are not finished and that no handler in this process has
// begun. An unreadable one becomes an error beside the others.
func (j *Journal) Unfinished() ([]Update, error) {
	j.mu.Lock()
	err := j.load()
	var ids []int64
	for id, begun := range j.unfinished {
		if !begun {
			ids = append(ids, id)
		}
	}
	j.mu.Unlock()
	if err != nil {
		return nil, err
	}
	slices.Sort(ids)
	updates := make([]Update, 0, len(ids))
	var errs []error
	for _, id := range ids {
		raw, err := j.Store.Get(updateName(id))
		if err != nil {
			errs = append(errs, fmt.Errorf("read update %d: %w", id, err))
			continue
		}
		updates = append(updates, Update{ID: id, JSON: raw})
	}
	return updates, errors.Join(errs...)
}

// Begin claims an update for its handler. It returns false if the update is finished, claimed, or not
// journaled; then it must not be handled.
func (j *Journal) Begin(id int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	begun, ok := j.unfinished[id]
	if !ok || begun {
		return false
	}
	j.unfinished[id] = true
	return true
}

// Abandon releases a claim: the update was not handled, and Unfinished lists it again.
func (j *Journal) Abandon(id int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, ok := j.unfinished[id]; ok {
		j.unfinished[id] = false
	}
}

// Finished marks an update as handled, so that it never comes again. After an error it still does not come
// again in this process, but it may after a restart.
func (j *Journal) Finished(id int64) error {
	j.mu.Lock()
	err := j.load()
	_, ok := j.unfinished[id]
	j.mu.Unlock()
	if err != nil || !ok {
		return err
	}
	return j.finish(id)
}

// finish writes the ID to finished.json before it removes the update's file. Otherwise the update could come
// again.
func (j *Journal) finish(id int64) error {
	j.mu.Lock()
	delete(j.unfinished, id)
	j.done.add(id)
	j.changes++
	change := j.changes
	j.mu.Unlock()

	err := j.save(change)
	if err == nil {
		err = j.Store.Remove(updateName(id))
	}
	if err != nil {
		return fmt.Errorf("finish update %d: %w", id, err)
	}
	return nil
}

// save writes finished.json, unless a concurrent save already wrote this change.
func (j *Journal) save(change int) error {
	j.saveMu.Lock()
	defer j.saveMu.Unlock()
	if j.saved >= change {
		return nil
	}
	j.mu.Lock()
	b, err := json.Marshal(journalState{Finished: j.done})
	changes := j.changes
	j.mu.Unlock()
	if err != nil {
		return err
	}
	if err := j.Store.Put(finishedFile, b); err != nil {
		return err
	}
	j.saved = changes
	return nil
}

// journalState is the content of finished.json.
type journalState struct {
	Finished intervals `json:"finished"`
}

// load reads the files of the previous process. It needs j.mu.
func (j *Journal) load() error {
	if j.loaded {
		return nil
	}
	names, err := j.Store.List()
	if err != nil {
		return fmt.Errorf("list update journal: %w", err)
	}
	var state journalState
	if slices.Contains(names, finishedFile) {
		b, err := j.Store.Get(finishedFile)
		if err == nil {
			err = json.Unmarshal(b, &state)
		}
		if err != nil {
			return fmt.Errorf("read %s of the update journal: %w", finishedFile, err)
		}
	}
	unfinished := map[int64]bool{}
	for _, name := range names {
		id, ok := updateIDOf(name)
		switch {
		case ok && state.Finished.has(id):
			_ = j.Store.Remove(name) // best effort: finished.json already has it
		case ok:
			unfinished[id] = false
		}
	}
	j.unfinished, j.done, j.loaded = unfinished, state.Finished, true
	return nil
}

func updateName(id int64) string {
	return updatePrefix + strconv.FormatInt(id, 10) + journalExt
}

func updateIDOf(name string) (int64, bool) {
	digits, ok := strings.CutPrefix(name, updatePrefix)
	if !ok {
		return 0, false
	}
	id, err := strconv.ParseInt(strings.TrimSuffix(digits, journalExt), 10, 64)
	return id, err == nil && id > 0 && name == updateName(id)
}
