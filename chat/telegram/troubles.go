package telegram

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// troubles is what people should see to, by a name each.
type troubles struct {
	tell func(what, hint string) // may be nil

	mu    sync.Mutex
	now   map[string][2]string
	since map[string]time.Time // of failures that may pass by themselves
	// logged is when each was logged last.
	logged map[string]time.Time
}

// maxTold is how many troubles are told of at once.
const maxTold = 3

// set notes a trouble. One that is set again with the same words is told once.
func (t *troubles) set(name, what, hint string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == nil {
		t.now = map[string][2]string{}
	}
	if t.now[name] == [2]string{what, hint} {
		return
	}
	t.now[name] = [2]string{what, hint}
	t.say()
}

// clear ends a trouble; one that was not there is none.
func (t *troubles) clear(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.since, name)
	if _, there := t.now[name]; there {
		delete(t.now, name)
		t.say()
	}
}

// anew tells of all again: what was told in an earlier life may be over.
func (t *troubles) anew() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.say()
}

// names lists the troubles there are.
func (t *troubles) names() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.now))
}

// failing says for how long something has failed without a success.
func (t *troubles) failing(name string, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.since == nil {
		t.since = map[string]time.Time{}
	}
	if _, there := t.since[name]; !there {
		t.since[name] = now
	}
	return now.Sub(t.since[name])
}

// logEvery is how often one kind of failure is worth a line in the log.
const logEvery = time.Minute

// worth says whether a failure that may pass is to be logged: its first time, and now and then.
func (t *troubles) worth(name string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.logged == nil {
		t.logged = map[string]time.Time{}
	}
	if last, ok := t.logged[name]; ok && now.Sub(last) < logEvery {
		return false
	}
	t.logged[name] = now
	return true
}

// say wants t.mu.
func (t *troubles) say() {
	if t.tell == nil {
		return
	}
	var whats, hints []string
	for _, name := range slices.Sorted(maps.Keys(t.now)) {
		whats = append(whats, t.now[name][0])
		if hint := t.now[name][1]; !slices.Contains(hints, hint) {
			hints = append(hints, hint)
		}
	}
	if len(whats) > maxTold {
		whats = append(whats[:maxTold], "and more")
		hints = hints[:min(len(hints), maxTold)]
	}
	t.tell(strings.Join(whats, "; "), strings.Join(hints, "; "))
}
