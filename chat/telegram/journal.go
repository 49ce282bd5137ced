package telegram

import (
	"bytes"
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
	maxAnswer     = 64 << 20 // bytes; far above a hundred updates
	maxPoll       = 64 << 10 // bytes of the form of getUpdates
	maxUnfinished = 1000     // see Journal.MaxUnfinished
	maxBroken     = 20       // updates set aside that are kept for a look

	updatePrefix = "update-"       // update-ID.json: an update as it came
	brokenPrefix = "broken-"       // broken-ID.json: one that the library could not have read
	journalMark  = "finished.json" // which ids are done
	journalExt   = ".json"
)

// ErrJournalFull says that so many updates wait for their handlers that no more are taken for now.
// Telegram keeps them for a day.
var ErrJournalFull = errors.New("too many Telegram updates wait to be handled")

// HTTPClient is what the library sends its requests with: bot.HttpClient.
type HTTPClient interface {
	Do(req *http.Request) (*http.Response, error)
}

// Store keeps small files by name. It must be safe for concurrent use.
type Store interface {
	// Put stores b under name, whole or not at all, in place of what was there. Once it returned nil, no
	// power cut takes that away; after an error either is possible.
	Put(name string, b []byte) error
	// Get returns what Put stored.
	Get(name string) ([]byte, error)
	// List returns the names there are, in any order.
	List() ([]string, error)
	// Remove takes a name away, durably or not; one that is not there is no error.
	Remove(name string) error
}

// NoAnswer is an HTTP answer that did not come from the Bot API but from something in front of it, such as
// a proxy's page. Trying again helps.
type NoAnswer struct {
	Status int // of HTTP
}

func (e *NoAnswer) Error() string {
	return fmt.Sprintf("HTTP status %d instead of an answer from Telegram", e.Status)
}

// Update is one that was journaled.
type Update struct {
	ID   int64
	JSON []byte // as it came
}

// Journal is the client to give to bot.WithHTTPClient: it makes updates durable before the library sees
// them. The library acknowledges an update to Telegram before its handler has finished, so a crash in
// between would lose a tap for good.
//
// An answer of getUpdates is handed on as far as its updates are in the Store. Where not even the first
// one can be stored the answer is an error instead: the library's offset stays where it is, and Telegram
// sends the same again. Whoever handles an update calls Begin first and Finished at the end; before a new
// bot.Bot starts to poll, what Unfinished lists is handled.
//
// An update is handed on once. One that Telegram sends again is dropped from the answer, also after a
// restart, and acknowledged. For that finished.json remembers which ids are done, as intervals. The highest
// id alone would not do: after a week of silence Telegram begins anew at any number, and then a lower one
// is new. Both the number of the intervals and their lengths are bounded; what is forgotten so is older
// than anything that Telegram would still send.
//
// An update that the library cannot decode would block every other one in its answer. It is set aside as
// broken-ID.json, done, and told as an error once.
//
// No error of Do holds the token, nor does the body of an answer, which the library quotes where it cannot
// parse it. What the library makes by itself wants Redact.
type Journal struct {
	Client HTTPClient
	Store  Store
	Token  string // of the bot; where it is empty, what the URLs say

	// MaxUnfinished is how many updates may wait for their handlers; 0: 1,000. Beyond that Do and Take fail
	// with ErrJournalFull.
	MaxUnfinished int

	taking sync.Mutex // one update is stored at a time

	mu      sync.Mutex // guards what follows
	loaded  bool
	held    map[int64]bool // journaled and not finished; true: somebody is handling it
	done    intervals
	changes int // to done

	saving sync.Mutex // guards saved, and the writing of finished.json
	saved  int        // how many of the changes are in finished.json
}

// Do implements HTTPClient.
func (j *Journal) Do(req *http.Request) (*http.Response, error) {
	token := j.Token
	if token == "" {
		token = tokenOf(req)
	}
	var resp *http.Response
	var err error
	if strings.EqualFold(path.Base(req.URL.Path), "getUpdates") {
		resp, err = j.poll(req, token)
	} else {
		resp, _, err = j.ask(req, token)
	}
	return resp, Redact(token, err)
}

// poll asks for updates until there are new ones, or none at all. An answer of nothing but old ones must
// not reach the library: it would not move its offset, and ask for the very same at once, without end.
func (j *Journal) poll(req *http.Request, token string) (*http.Response, error) {
	form, err := formOf(req)
	if err != nil {
		return nil, fmt.Errorf("read the form of getUpdates: %w", err)
	}
	for {
		resp, body, err := j.ask(withForm(req, form), token)
		if err != nil {
			return nil, err
		}
		var answer struct {
			OK     bool              `json:"ok"`
			Result []json.RawMessage `json:"result"`
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return nil, fmt.Errorf("read Telegram's updates: %w", err)
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

// ask sends a request and reads the answer, which is JSON and free of the token.
func (j *Journal) ask(req *http.Request, token string) (*http.Response, []byte, error) {
	resp, err := j.Client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, nil, fmt.Errorf("read Telegram's answer: %w", err)
	}
	if body = bytes.TrimSpace(body); !bytes.HasPrefix(body, []byte("{")) || !json.Valid(body) {
		return nil, nil, &NoAnswer{Status: resp.StatusCode}
	}
	body = []byte(mask(secretsOf(token), string(body)))
	replaceBody(resp, body)
	return resp, body, nil
}

// takeAll stores the updates of one answer in their order, as far as that is possible, and returns the new
// ones. last is the id up to which all are taken. Where not even the first can be, that is the error; one
// further on comes again as the first.
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

// Take makes an update that came by webhook durable. Only after that may the request be answered with 200.
// fresh is false for one that was taken before.
func (j *Journal) Take(raw []byte) (fresh bool, err error) {
	_, fresh, err = j.take(raw)
	return fresh, j.setAside(raw, err)
}

// broken is an update that the library could not decode.
type broken struct {
	id    int64
	cause error
}

func (b *broken) Error() string { return fmt.Sprintf("update %d cannot be read: %s", b.id, b.cause) }
func (b *broken) Unwrap() error { return b.cause }

func (j *Journal) take(raw []byte) (id int64, fresh bool, err error) {
	j.taking.Lock()
	defer j.taking.Unlock()
	var head struct {
		ID int64 `json:"update_id"`
	}
	if err := json.Unmarshal(raw, &head); err != nil || head.ID <= 0 {
		return 0, false, errors.New("an update of Telegram's without an update_id")
	}
	known, full, err := j.look(head.ID)
	if err != nil || known {
		return head.ID, false, err
	}
	if err := json.Unmarshal(raw, new(models.Update)); err != nil {
		return head.ID, false, &broken{head.ID, err}
	}
	if full {
		return head.ID, false, ErrJournalFull
	}
	if err := j.Store.Put(updateName(head.ID), raw); err != nil {
		return head.ID, false, fmt.Errorf("journal update %d: %w", head.ID, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.held[head.ID] = false
	return head.ID, true, nil
}

func (j *Journal) look(id int64) (known, full bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(); err != nil {
		return false, false, err
	}
	_, known = j.held[id]
	room := j.MaxUnfinished
	if room <= 0 {
		room = maxUnfinished
	}
	return known || j.done.has(id), len(j.held) >= room, nil
}

// setAside makes an update done that cannot be decoded, keeps it for a look, and returns the error that
// tells of it. Other errors it returns as they are.
func (j *Journal) setAside(raw []byte, why error) error {
	var b *broken
	if !errors.As(why, &b) {
		return why
	}
	names, err := j.Store.List()
	if err != nil {
		return fmt.Errorf("list the journal: %w", err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, brokenPrefix) })
	if len(names) < maxBroken {
		if err := j.Store.Put(brokenPrefix+strconv.FormatInt(b.id, 10)+journalExt, raw); err != nil {
			return fmt.Errorf("set update %d aside: %w", b.id, err)
		}
	}
	if err := j.finish(b.id); err != nil {
		return err
	}
	return fmt.Errorf("%w; it is set aside", b)
}

// Unfinished lists, in the order of their ids, the updates that were journaled and that nobody has
// finished or is handling in this process. One that cannot be read is an error beside the others.
func (j *Journal) Unfinished() ([]Update, error) {
	j.mu.Lock()
	err := j.load()
	var ids []int64
	for id, begun := range j.held {
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

// Begin claims an update for the one that will handle it. It is false for an update that is finished, that
// somebody else is handling, or that was never journaled: then it is to be left alone.
func (j *Journal) Begin(id int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	begun, ok := j.held[id]
	if !ok || begun {
		return false
	}
	j.held[id] = true
	return true
}

// Abandon takes a Begin back: the update was not handled, and Unfinished lists it again.
func (j *Journal) Abandon(id int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, ok := j.held[id]; ok {
		j.held[id] = false
	}
}

// Finished says that an update was handled and must never come again. After an error it still does not
// come again in this process, but may after a restart.
func (j *Journal) Finished(id int64) error {
	j.mu.Lock()
	err := j.load()
	_, ok := j.held[id]
	j.mu.Unlock()
	if err != nil || !ok {
		return err
	}
	return j.finish(id)
}

// finish has the id durable in finished.json before the update's file goes, or it could come once more.
func (j *Journal) finish(id int64) error {
	j.mu.Lock()
	delete(j.held, id)
	j.done.add(id)
	j.changes++
	change := j.changes
	j.mu.Unlock()

	if err := j.save(change); err != nil {
		return fmt.Errorf("finish update %d: %w", id, err)
	}
	if err := j.Store.Remove(updateName(id)); err != nil {
		return fmt.Errorf("finish update %d: %w", id, err)
	}
	return nil
}

// save writes finished.json, unless somebody else has written that change meanwhile.
func (j *Journal) save(change int) error {
	j.saving.Lock()
	defer j.saving.Unlock()
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
	if err := j.Store.Put(journalMark, b); err != nil {
		return err
	}
	j.saved = changes
	return nil
}

// journalState is finished.json.
type journalState struct {
	Finished intervals `json:"finished"`
}

// load reads what a former process left. It wants j.mu.
func (j *Journal) load() error {
	if j.loaded {
		return nil
	}
	names, err := j.Store.List()
	if err != nil {
		return fmt.Errorf("list the journal: %w", err)
	}
	var state journalState
	if slices.Contains(names, journalMark) {
		b, err := j.Store.Get(journalMark)
		if err == nil {
			err = json.Unmarshal(b, &state)
		}
		if err != nil {
			return fmt.Errorf("read %s of the Telegram journal: %w", journalMark, err)
		}
	}
	held := map[int64]bool{}
	for _, name := range names {
		id, ok := updateIDOf(name)
		switch {
		case ok && state.Finished.has(id):
			_ = j.Store.Remove(name) // a leftover: done all the same where it cannot be removed
		case ok:
			held[id] = false
		}
	}
	j.held, j.done, j.loaded = held, state.Finished, true
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
