package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

const heartbeat = 15 * time.Second

// unknown is what a page says of pauses before it was told: it may have been deaf for a while.
const unknown = "?"

// change is what an open page is told: how many wait, and what to put where.
type change struct {
	Waiting int    `json:"waiting"`
	New     int    `json:"new"`   // how many of them are new on this page
	First   string `json:"first"` // where the oldest is
	HTML    string `json:"html"`  // for htmx to swap out of band
	Stale   bool   `json:"stale,omitzero"`
}

// stream is one page that listens.
type stream struct {
	*visit
	out   *http.ResponseController
	rows  bool          // the page shows the list
	rev   int64         // what it shows of it
	held  string        // what it says of pauses
	about *approval.Key // the request that it shows
	state string        // how that was
	began bool
}

// events tells a page what changes, until it is closed.
func (v *visit) events() {
	leave, ok := v.join(v.se)
	if !ok {
		v.fail(http.StatusTooManyRequests, v.w.TooMany)
		return
	}
	defer leave()
	st := &stream{visit: v, out: http.NewResponseController(v.rw)}
	q := v.r.URL.Query()
	if q.Has("rev") {
		st.rows, st.held = true, unknown
		st.rev, _ = strconv.ParseInt(q.Get("rev"), 10, 64)
		if last, err := strconv.ParseInt(v.r.Header.Get("Last-Event-ID"), 10, 64); err == nil {
			st.rev = last
		}
	}
	if k := (approval.Key{Workspace: q.Get("ws"), ID: q.Get("id")}); slices.Contains(v.rights.See, k.Workspace) && approval.ValidID(k.ID) {
		st.about, st.state = &k, q.Get("state")
	}
	_ = st.out.SetReadDeadline(time.Time{}) // the request has been read; the line stays open
	v.rw.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	v.rw.WriteHeader(http.StatusOK)
	_ = st.run() // whoever listened has gone, or will come again
}

func (st *stream) run() error {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	if err := st.send("retry: 2000\n\n"); err != nil {
		return err
	}
	for {
		moved := st.shelf.listen()
		if err := st.tell(); err != nil {
			return err
		}
		select {
		case <-moved:
		case <-beat.C:
			if err := st.send(":\n\n"); err != nil {
				return err
			}
		case <-st.se.over:
			return st.send("event: over\ndata: {}\n\n")
		case <-st.quit:
			return st.send("event: over\ndata: {}\n\n")
		case <-st.r.Context().Done():
			return st.r.Context().Err()
		}
	}
}

// tell sends what is new. What the person may is asked anew.
func (st *stream) tell() error {
	st.rights = st.People.Rights(st.se.guest)
	if len(st.rights.See) == 0 || st.stale(st.se, st.Now()) {
		st.leave(st.se)
		return nil // the session's end is what is heard next
	}
	list, rev, err := st.waiting(st.r.Context())
	if err != nil {
		st.log(err)
		return err
	}
	mine := st.seen(st.se.guest, st.rights, list)
	c, news, err := st.news(mine, rev)
	if err != nil || !news {
		return err
	}
	st.began = true
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return st.send(fmt.Sprintf("id: %d\nevent: change\ndata: %s\n\n", rev, data))
}

func (st *stream) news(mine []*item, rev int64) (change, bool, error) {
	c := change{Waiting: len(mine)}
	if len(mine) > 0 {
		c.First = pathOf(mine[0].Key())
	}
	var html bytes.Buffer
	if st.rows && rev != st.rev {
		gone, known := st.shelf.goneSince(st.rev)
		c.Stale = !known || st.rev > rev
		gone = st.seen(st.se.guest, st.rights, gone) // nobody hears of what they could not see
		var fresh []*item
		for _, i := range mine {
			if i.since > st.rev {
				fresh = append(fresh, i)
			}
		}
		c.New = len(fresh)
		if err := st.rowChanges(&html, gone, fresh, len(mine)); err != nil {
			return c, false, err
		}
	}
	turned, err := st.heldChanges(&html)
	if err != nil {
		return c, false, err
	}
	if st.about != nil {
		page, err := st.look(*st.about)
		if err != nil {
			return c, false, err
		}
		if page != nil && page.State != st.state {
			turned, st.state = true, page.State
			if err := st.render(&html, "state-oob", page); err != nil {
				return c, false, err
			}
		}
	}
	news := turned || rev != st.rev || !st.began
	st.rev = rev
	c.HTML = html.String()
	return c, news, nil
}

// heldChanges writes what the list says of pauses, where that is new.
func (st *stream) heldChanges(to *bytes.Buffer) (changed bool, err error) {
	if !st.rows {
		return false, nil
	}
	now := st.pauses()
	if text := strings.Join(now, "\n"); text != st.held {
		st.held = text
		return true, st.render(to, "pauses-oob", now)
	}
	return false, nil
}

// rowChanges writes the rows that come, and a word for those that go. One that
// came back under its id is both, in this order.
func (st *stream) rowChanges(to *bytes.Buffer, gone, fresh []*item, n int) error {
	for _, i := range gone {
		fmt.Fprintf(to, `<li id="%s" hx-swap-oob="delete"></li>`, rowID(i.Key()))
	}
	for _, i := range fresh {
		row, err := st.row(i, st.lang)
		if err != nil {
			return err
		}
		fmt.Fprintf(to, `<ul hx-swap-oob="beforeend:#waiting">%s</ul>`, row)
	}
	return st.render(to, "count-oob", st.countOf(n))
}

// send gives a page that does not read no more than its time.
func (st *stream) send(text string) error {
	if err := st.out.SetWriteDeadline(time.Now().Add(st.IOTimeout)); err != nil {
		return err
	}
	if _, err := st.rw.Write([]byte(text)); err != nil {
		return err
	}
	return st.out.Flush()
}
