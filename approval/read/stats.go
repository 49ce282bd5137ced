package read

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// Stats is what stats --json prints. Shares are 0 to 1, times in seconds; both
// are null without decisions.
type Stats struct {
	Requests  int                     `json:"requests"`
	Asked     int                     `json:"asked"` // needed an approver
	Statuses  map[approval.Status]int `json:"statuses"`
	Median    *float64                `json:"median_sec_to_decide"`
	Approvers []Tally                 `json:"approvers"`
	Tools     []Tally                 `json:"tools"`
}

// Tally counts the decisions of one approver or on one tool.
type Tally struct {
	Name     string   `json:"name"`
	Requests int      `json:"requests"` // of a tool: including undecided ones
	Decided  int      `json:"decided"`  // by a person
	Approved int      `json:"approved"` // of those
	Share    *float64 `json:"approved_share"`
	Median   *float64 `json:"median_sec_to_decide"`
	Hasty    int      `json:"hasty"` // approved within 5 seconds

	took []time.Duration
}

// hasty is less than the time to read a card.
const hasty = 5 * time.Second

// NewStats counts requests. It keeps only the time that each decision took.
func NewStats(found iter.Seq[*Request]) *Stats {
	st := &Stats{Statuses: map[approval.Status]int{}}
	people, tools := map[string]*Tally{}, map[string]*Tally{}
	var took []time.Duration
	for r := range found {
		st.Requests++
		st.Statuses[r.Status]++
		tool := tallyOf(tools, cmp.Or(r.Kind(), "(none)"))
		tool.Requests++
		if r.Person {
			st.Asked++
		}
		if !r.ByPerson() {
			continue
		}
		tallyOf(people, r.By).Requests++
		tool.add(r)
		people[r.By].add(r)
		if d, ok := toDecide(r); ok {
			took = append(took, d)
		}
	}
	st.Median = median(took)
	st.Approvers, st.Tools = tallies(people), tallies(tools)
	return st
}

func tallyOf(m map[string]*Tally, name string) *Tally {
	t := m[name]
	if t == nil {
		t = &Tally{Name: name}
		m[name] = t
	}
	return t
}

func (t *Tally) add(r *Request) {
	t.Decided++
	d, ok := toDecide(r)
	if ok {
		t.took = append(t.took, d)
	}
	if approvedBy(r) {
		t.Approved++
		if ok && d < hasty {
			t.Hasty++
		}
	}
}

// approvedBy reports whether the person approved, whatever the outcome was.
func approvedBy(r *Request) bool {
	if r.Undone != "" {
		return r.Undone == approval.Approved
	}
	switch r.Status {
	case approval.StatusApproved, approval.StatusFailed, approval.StatusInterrupted, StatusRunning,
		approval.StatusExpired: // approved in time, but the daemon was down
		return true
	}
	return false
}

// toDecide is the time from the request to the decision, by the log.
func toDecide(r *Request) (time.Duration, bool) {
	d := r.DecidedAt.Sub(r.AskedAt)
	return d, !r.AskedAt.IsZero() && !r.DecidedAt.IsZero() && d >= 0
}

func median(took []time.Duration) *float64 {
	if len(took) == 0 {
		return nil
	}
	slices.Sort(took)
	mid := (took[(len(took)-1)/2] + took[len(took)/2]) / 2
	sec := mid.Round(time.Millisecond).Seconds()
	return &sec
}

// tallies are sorted by number of requests, then by name.
func tallies(m map[string]*Tally) []Tally {
	list := make([]Tally, 0, len(m))
	for _, t := range m {
		if t.Decided > 0 {
			share := float64(t.Approved) / float64(t.Decided)
			t.Share = &share
		}
		t.Median = median(t.took)
		list = append(list, *t)
	}
	slices.SortFunc(list, func(a, b Tally) int {
		return cmp.Or(b.Requests-a.Requests, cmp.Compare(a.Name, b.Name))
	})
	return list
}

// RubberStamps reports rubber-stamping: enough decisions to judge, hardly a denial,
// and most within seconds.
func (t *Tally) RubberStamps() bool {
	return t.Decided >= 20 && *t.Share >= 0.98 && t.Median != nil && *t.Median < hasty.Seconds()
}
