package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

const heartbeat = 15 * time.Second

// pausesUnknown makes the first event always send the pauses: a page that was
// disconnected may show old ones.
const pausesUnknown = "?"

// change is the data of one event.
type change struct {
	Waiting int    `json:"waiting"` // pending requests
	New     int    `json:"new"`     // how many of them the page does not show yet
	First   string `json:"first"`   // path of the oldest
	HTML    string `json:"html"`    // for htmx to swap out of band
	Stale   bool   `json:"stale,omitzero"`
}

// stream is the event stream of one open page.
type stream struct {
	*visit
	out        *http.ResponseController
	showsList  bool          // whether the page shows the list
	view       listView      // of the list
	shownRev   int64         // revision of the list on the page
	pausesText string        // pauses that the page shows
	shownKey   *approval.Key // the request on the page
	shownState string        // its state on the page
	shownTold  string        // what the note on the page tells of an approved request
	started    bool
}

// events sends changes to a page until the page is closed.
func (v *visit) events() {
	release, ok := v.openStream(v.se)
	if !ok {
		v.fail(http.StatusTooManyRequests, v.w.TooManyPages)
		return
	}
	defer release()
	st := &stream{visit: v, out: http.NewResponseController(v.rw), pausesText: pausesUnknown}
	q := v.r.URL.Query()
	st.shownTold = q.Get("told")
	if q.Has("rev") {
		st.showsList, st.view = true, v.currentView()
		st.shownRev, _ = strconv.ParseInt(q.Get("rev"), 10, 64)
		if last, err := strconv.ParseInt(v.r.Header.Get("Last-Event-ID"), 10, 64); err == nil {
			st.shownRev = last
		}
	}
	if k := (approval.Key{Workspace: q.Get("ws"), ID: q.Get("id")}); slices.Contains(v.rights.See, k.Workspace) && approval.ValidID(k.ID) {
		st.shownKey, st.shownState = &k, q.Get("state")
	}
	_ = st.out.SetReadDeadline(time.Time{}) // the request has been read; the connection stays open
	v.rw.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	v.rw.WriteHeader(http.StatusOK)
	_ = st.run() // the browser has disconnected; it reconnects by itself
}

func (st *stream) run() error {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	if err := st.send("retry: 2000\n\n"); err != nil {
		return err
	}
	for {
		moved := st.cache.subscribe()
		if err := st.sendChanges(); err != nil {
			return err
		}
		select {
		case <-moved:
		case <-beat.C:
			if err := st.send(":\n\n"); err != nil {
				return err
			}
		case <-st.se.ended:
			return st.send("event: over\ndata: {}\n\n")
		case <-st.quit:
			return st.send("event: over\ndata: {}\n\n")
		case <-st.r.Context().Done():
			return st.r.Context().Err()
		}
	}
}

// sendChanges sends what changed. It checks the user's rights each time.
func (st *stream) sendChanges() error {
	st.rights = st.People.Rights(st.se.user)
	if len(st.rights.See) == 0 || st.sessionExpired(st.se, st.Now()) {
		st.endSession(st.se)
		return nil // run sends the end of the session next
	}
	list, rev, err := st.waiting(st.r.Context())
	if err != nil {
		st.log(err)
		return err
	}
	items := st.filterVisible(st.se.user, st.rights, list)
	c, changed, err := st.collectChanges(items, rev)
	if err != nil || !changed {
		return err
	}
	st.started = true
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return st.send(fmt.Sprintf("id: %d\nevent: change\ndata: %s\n\n", rev, data))
}

func (st *stream) collectChanges(items []*item, rev int64) (change, bool, error) {
	c := change{Waiting: len(items)}
	if len(items) > 0 {
		c.First = pathOf(items[0].Key())
	}
	var html bytes.Buffer
	if st.showsList && rev != st.shownRev {
		removed, known := st.cache.removedBetween(st.shownRev, rev)
		c.Stale = !known || st.shownRev > rev
		removed = st.filterVisible(st.se.user, st.rights, removed) // a user hears nothing of hidden requests
		var added []*item
		for _, i := range items {
			if i.since > st.shownRev {
				added = append(added, i)
			}
		}
		c.New = len(added)
		if err := st.listChanges(&html, removed, added, items); err != nil {
			return c, false, err
		}
	}
	changed, err := st.pauseChanges(&html)
	if err != nil {
		return c, false, err
	}
	if n := st.currentNote(); n != nil && n.Told != st.shownTold {
		changed, st.shownTold = true, n.Told
		if err := st.render(&html, "note-oob", page{W: textsIn(st.lang), Base: "/s/" + st.se.key + "/", Note: n}); err != nil {
			return c, false, err
		}
	}
	if st.shownKey != nil {
		page, err := st.loadRequest(*st.shownKey)
		if err != nil {
			return c, false, err
		}
		if page != nil && page.State != st.shownState {
			changed, st.shownState = true, page.State
			if err := st.render(&html, "state-oob", page); err != nil {
				return c, false, err
			}
		}
	}
	changed = changed || rev != st.shownRev || !st.started
	st.shownRev = rev
	c.HTML = html.String()
	return c, changed, nil
}

// pauseChanges writes the pauses if they differ from those on the page.
func (st *stream) pauseChanges(to *bytes.Buffer) (changed bool, err error) {
	now := st.pauses()
	if text := fmt.Sprint(now); text != st.pausesText {
		st.pausesText = text
		return true, st.render(to, "pauses-oob", st.pauseBanner(now))
	}
	return false, nil
}

// listChanges writes what changed in the list: the complete list, if the user filters or
// orders it.
func (st *stream) listChanges(to *bytes.Buffer, removed, added, items []*item) error {
	if st.view.Whole() {
		return st.rowChanges(to, removed, added, len(items))
	}
	rows, err := st.rowsOf(st.view, items)
	if err != nil {
		return err
	}
	p := listPage{Rows: rows, Count: count{textsIn(st.lang), len(items), len(rows)}}
	return st.render(to, "list-oob", p)
}

// rowChanges writes deletions and new rows. The order matters: a request that came
// back with the same id is in both.
func (st *stream) rowChanges(to *bytes.Buffer, removed, added []*item, n int) error {
	for _, i := range removed {
		fmt.Fprintf(to, `<li id="%s" hx-swap-oob="delete"></li>`, rowID(i.Key()))
	}
	for _, i := range added {
		row, err := st.renderRow(i, st.lang)
		if err != nil {
			return err
		}
		fmt.Fprintf(to, `<ul hx-swap-oob="beforeend:#waiting">%s</ul>`, row.html)
	}
	return st.render(to, "count-oob", count{textsIn(st.lang), n, n})
}

// send fails if the browser does not read within IOTimeout.
func (st *stream) send(text string) error {
	if err := st.out.SetWriteDeadline(time.Now().Add(st.IOTimeout)); err != nil {
		return err
	}
	if _, err := st.rw.Write([]byte(text)); err != nil {
		return err
	}
	return st.out.Flush()
}
