package email

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
)

// troubles are the problems that the operator must fix, reported as one. It has its
// own lock.
type troubles struct {
	mu   sync.Mutex
	all  map[string]trouble
	told trouble
}

type trouble struct{ what, hint string }

// trouble sets a problem under a name.
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

// well clears it.
func (c *Channel) well(name string) {
	t := &c.troubles
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.all[name]; ok {
		delete(t.all, name)
		c.tell()
	}
}

// tell reports a change. The caller holds the lock of troubles.
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

// Reports returns the Report function for the mailbox of that name.
func (c *Channel) Reports(name string) func(error) {
	return func(err error) {
		if err == nil {
			c.well("mailbox " + name)
			return
		}
		hint := ""
		var e *MailboxError
		if errors.As(err, &e) {
			hint = e.Hint
		}
		c.trouble("mailbox "+name, "cannot receive replies from "+name+": "+err.Error(), hintOr(hint, "run permesso email setup to check the login"))
	}
}
