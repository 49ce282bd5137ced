package deliver

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// warnings are the open problems that the operator should fix, by name.
type warnings struct {
	report func(what, hint string) // may be nil

	mu      sync.Mutex
	current map[string][2]string
	since   map[string]time.Time // of transient failures
	// logged is when each failure was last logged.
	logged map[string]time.Time
}

// maxPublished is how many warnings are reported at once.
const maxPublished = 3

// set adds a warning. Setting it again with the same text reports nothing.
func (t *warnings) set(name, what, hint string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current[name] == [2]string{what, hint} {
		return
	}
	t.current[name] = [2]string{what, hint}
	t.publish()
}

// clear removes a warning.
func (t *warnings) clear(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.since, name)
	if _, there := t.current[name]; there {
		delete(t.current, name)
		t.publish()
	}
}

// publishAgain reports all warnings again: reports of an earlier session may be outdated.
func (t *warnings) publishAgain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.publish()
}

// names lists the open warnings.
func (t *warnings) names() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.current))
}

// logInterval is how often a repeated failure is logged.
const logInterval = time.Minute

// failing returns for how long a call has failed without a success, and whether to log it: the first time, then
// once per logInterval.
func (t *warnings) failing(name string, now time.Time) (lasts time.Duration, log bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, there := t.since[name]; !there {
		t.since[name] = now
	}
	if last, ok := t.logged[name]; !ok || now.Sub(last) >= logInterval {
		t.logged[name], log = now, true
	}
	return now.Sub(t.since[name]), log
}

// publish needs t.mu.
func (t *warnings) publish() {
	if t.report == nil {
		return
	}
	var texts, hints []string
	for _, name := range slices.Sorted(maps.Keys(t.current)) {
		texts = append(texts, t.current[name][0])
		if hint := t.current[name][1]; !slices.Contains(hints, hint) {
			hints = append(hints, hint)
		}
	}
	if len(texts) > maxPublished {
		texts = append(texts[:maxPublished], "and more")
		hints = hints[:min(len(hints), maxPublished)]
	}
	t.report(strings.Join(texts, "; "), strings.Join(hints, "; "))
}
