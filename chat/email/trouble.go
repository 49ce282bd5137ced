package email

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
)

// troubles are what people should see to, all of it told as one. It has a lock
// of its own.
type troubles struct {
	mu   sync.Mutex
	all  map[string]trouble
	told trouble
}

type trouble struct{ what, hint string }

// trouble notes something under a name of its own.
func (c *Channel) trouble(name, what, hint string) {
	t := &c.troubles
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[string]trouble{}
	}
	t.all[name] = trouble{what, hint}
	c.tell()
}

// well ends it.
func (c *Channel) well(name string) {
	t := &c.troubles
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.all[name]; ok {
		delete(t.all, name)
		c.tell()
	}
}

// tell passes on what changed. The caller holds the lock of the troubles.
func (c *Channel) tell() {
	t := &c.troubles
	var now trouble
	var what []string
	for _, name := range slices.Sorted(maps.Keys(t.all)) {
		what = append(what, t.all[name].what)
		if now.hint == "" {
			now.hint = t.all[name].hint
		}
	}
	now.what = strings.Join(what, "; ")
	if now.what != "" {
		now.what = "email: " + now.what
	}
	if now == t.told || c.Problem == nil {
		return
	}
	t.told = now
	c.Problem(now.what, now.hint)
}

// Reports is what a way in is to tell its state to.
func (c *Channel) Reports(name string) func(error) {
	return func(err error) {
		if err == nil {
			c.well("in by " + name)
			return
		}
		hint := ""
		var e *MailboxError
		if errors.As(err, &e) {
			hint = e.Hint
		}
		c.trouble("in by "+name, "answers cannot come in by "+name+": "+err.Error(), hintOr(hint, "permesso email setup checks the login"))
	}
}
