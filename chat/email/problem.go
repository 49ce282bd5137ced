package email

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/permesso-dev/permesso/approval/hints"
)

// problems are the problems that the operator must fix, reported as one.
type problems struct {
	mu       sync.Mutex
	all      map[string]problem
	report   func(what, hint string) // gets each change; may be nil
	reported problem
}

type problem struct{ what, hint string }

// set sets a problem under a name; clear clears it.
func (t *problems) set(name, what, hint string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[string]problem{}
	}
	t.all[name] = problem{what, hint}
	t.reportChange()
}

func (t *problems) clear(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, name)
	t.reportChange()
}

func (t *problems) reportChange() {
	var now problem
	var what []string
	for _, name := range slices.Sorted(maps.Keys(t.all)) {
		what = append(what, t.all[name].what)
		if now.hint == "" {
			now.hint = t.all[name].hint
		}
	}
	if now.what = strings.Join(what, "; "); now != t.reported && t.report != nil {
		t.reported = now
		t.report(now.what, now.hint)
	}
}

// Reports returns the Report function for the mailbox of that name.
func (c *Channel) Reports(name string) func(error) {
	return func(err error) {
		if err == nil {
			c.problems.clear("from " + name)
			return
		}
		c.problems.set("from "+name, "cannot receive replies from "+name+": "+err.Error(), hints.Of(err))
	}
}
