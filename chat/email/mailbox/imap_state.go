package mailbox

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"time"
)

const (
	maxOpen = 100       // with this many failed emails, new ones are not fetched
	maxSeen = 200       // emails remembered in case the server renumbers all of them
	overlap = time.Hour // how far arrival dates may be out of order
)

// imapState is the position in an IMAP mailbox. Emails have increasing numbers (UIDs)
// as long as the mailbox keeps its UIDVALIDITY. Those from Next on are new.
//
// The time of the first start is saved before the first connection. An email that
// arrives between the two is new, also after a restart.
//
// If the server renumbers all emails under a new UIDVALIDITY, the server's arrival
// date (INTERNALDATE), which does not change, tells old from new. An email is old if
// it is more than an hour older than the newest known one, or if its Message-ID is
// remembered. If a move to another server loses the dates, emails may be taken once
// more under other names; their tokens are used by then. A new email is taken for an
// old one only if the server's clock went back by more than an hour.
type imapState struct {
	Version     int        `json:"version"`
	Start       int64      `json:"start,omitzero"` // time of the first start, as in imapMail; 0 after the first scan
	UIDValidity uint32     `json:"uidvalidity"`
	Next        uint32     `json:"next"`
	Open        []imapMail `json:"open,omitempty"` // below Next, and not taken yet
	Seen        []imapMail `json:"seen,omitempty"` // the last ones taken, in that order
}

// imapMail is what is remembered of an email.
type imapMail struct {
	UID    uint32 `json:"uid"`
	Date   int64  `json:"date"`  // of arrival, in seconds since 1970; 0: unknown
	Digest string `json:"print"` // digest of the Message-ID, or else of date and size; "": unknown
	Likely bool   `json:"likely,omitzero"`
}

func (m imapMail) likely() int {
	if m.Likely {
		return 1
	}
	return 0
}

func emailDigest(header []byte, date time.Time, size int64) string {
	id := messageID(header)
	if id == "" {
		id = strconv.FormatInt(date.Unix(), 10) + " " + strconv.FormatInt(size, 10)
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// load reads the state. The first start is saved at once.
func (r *imapReader) load() error {
	known, err := r.position.load()
	if err == nil && !known {
		r.state, r.dirty = imapState{Version: 1, Start: r.Now().Unix()}, true
		r.save()
	}
	return err
}

// syncState compares the mailbox on the server with the saved state.
func (r *imapReader) syncState(c *imapConn, s selected) error {
	if s.next == 0 { // some servers do not report it
		uids, err := c.uidsFrom(1)
		if err != nil {
			return err
		}
		s.next = 1
		if len(uids) > 0 {
			s.next = uids[len(uids)-1] + 1
		}
	}
	switch {
	case r.state.UIDValidity == 0:
		return r.firstScan(c, s)
	case s.validity != r.state.UIDValidity, s.next < r.state.Next: // the latter: the mailbox was restored from a backup
		return r.renumber(c, s)
	}
	return nil
}

// firstScan is the first scan. Emails from before the first start count as seen.
func (r *imapReader) firstScan(c *imapConn, s selected) error {
	next := imapState{Version: 1, UIDValidity: s.validity, Next: s.next}
	since := r.state.Start - int64(overlap.Seconds())
	newest, err := c.newest(s.count)
	if err != nil {
		return err
	}
	fresh, err := c.arrivedSince(time.Unix(since, 0))
	if err != nil {
		return err
	}
	old := func(m imapMail) bool { return m.Date < since }
	next.Seen = slices.DeleteFunc(newest, func(m imapMail) bool { return !old(m) })
	next.Open = slices.DeleteFunc(fresh, func(m imapMail) bool { return old(m) || m.UID >= s.next })
	r.state, r.dirty = next, true
	r.save()
	return nil
}

// renumber finds the known emails under their new numbers. The others are open.
func (r *imapReader) renumber(c *imapConn, s selected) error {
	since := r.newSince()
	look := since
	open, seen := map[string]bool{}, map[string]bool{}
	for _, m := range r.state.Open {
		if m.Digest != "" {
			look = min(look, m.Date)
			open[m.Digest] = true
		}
	}
	for _, m := range r.state.Seen {
		seen[m.Digest] = true
	}
	mails, err := c.arrivedSince(time.Unix(look, 0))
	if err != nil {
		return err
	}
	next := imapState{Version: 1, UIDValidity: s.validity, Next: s.next, Seen: r.state.Seen}
	for _, m := range mails {
		if m.UID < s.next && (open[m.Digest] || m.Date >= since && !seen[m.Digest]) {
			next.Open = append(next.Open, m)
		}
	}
	r.state, r.dirty = next, true
	clear(r.retries)
	r.save()
	return nil
}

// newSince is the date from which an email that is not remembered is new.
func (r *imapReader) newSince() int64 {
	var newest int64
	for _, m := range r.state.Seen {
		if m.Date <= r.Now().Unix() { // a sender with IMAP access can set any date
			newest = max(newest, m.Date)
		}
	}
	since := max(0, newest-int64(overlap.Seconds()))
	if len(r.state.Seen) == maxSeen {
		// Seen is full: an email that dropped out of it must not count as new.
		oldest := slices.MinFunc(r.state.Seen, func(a, b imapMail) int { return cmp.Compare(a.Date, b.Date) })
		since = max(since, oldest.Date+1)
	}
	return since
}

// markDone records that an email is done; facts are empty if it no longer exists.
func (r *imapReader) markDone(uid uint32, facts imapMail) {
	r.advance(uid)
	switch i := r.indexOpen(uid); {
	case i == 0: // of many, the first is done first
		r.state.Open = r.state.Open[1:]
	case i > 0:
		r.state.Open = slices.Delete(r.state.Open, i, i+1)
	}
	delete(r.retries, uid)
	if facts.Digest != "" {
		r.remember(facts)
	}
	r.save()
}

// postpone schedules a retry of an email.
func (r *imapReader) postpone(uid uint32, facts imapMail) {
	r.advance(uid)
	r.retries[uid] = r.retries[uid].Next(r.Now(), r.retryDelay, maxEmailDelay)
	facts.UID = uid
	i := r.indexOpen(uid)
	if i < 0 {
		r.state.Open = append(r.state.Open, facts)
	} else if facts.Digest != "" {
		r.state.Open[i] = facts
	}
	r.save()
}

func (r *imapReader) indexOpen(uid uint32) int {
	return slices.IndexFunc(r.state.Open, func(m imapMail) bool { return m.UID == uid })
}

func (r *imapReader) advance(uid uint32) {
	r.dirty = true
	r.state.Next = max(r.state.Next, uid+1)
}

func (r *imapReader) remember(m imapMail) {
	r.state.Seen = append(r.state.Seen, m)
	if extra := len(r.state.Seen) - maxSeen; extra > 0 {
		r.state.Seen = slices.Delete(r.state.Seen, 0, extra)
	}
}
