package email

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/permesso-dev/permesso/approval"
)

// problems are the problems that the operator must fix, reported as one. It has its
// own lock.
type problems struct {
	mu       sync.Mutex
	all      map[string]problem
	reported problem
}

type problem struct{ what, hint string }

// setProblem sets a problem under a name.
func (c *Channel) setProblem(name, what, hint string) {
	t := &c.problems
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[string]problem{}
	}
	t.all[name] = problem{what, hint}
	c.reportProblems()
}

// clearProblem clears it.
func (c *Channel) clearProblem(name string) {
	t := &c.problems
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.all[name]; ok {
		delete(t.all, name)
		c.reportProblems()
	}
}

// reportProblems reports a change. The caller holds the lock of problems.
func (c *Channel) reportProblems() {
	t := &c.problems
	var now problem
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
	if now == t.reported || c.Problem == nil {
		return
	}
	t.reported = now
	c.Problem(now.what, now.hint)
}

// Reports returns the Report function for the mailbox of that name.
func (c *Channel) Reports(name string) func(error) {
	return func(err error) {
		if err == nil {
			c.clearProblem("from " + name)
			return
		}
		c.setProblem("from "+name, "cannot receive replies from "+name+": "+err.Error(), approval.Hint(err))
	}
}
