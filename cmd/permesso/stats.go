package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/security/audit"
)

func (a *app) statsCmd() *cobra.Command {
	var f historyFlags
	c := &cobra.Command{
		Use: "stats", Short: "Show statistics of requests and decisions", Args: cobra.NoArgs,
		Long: "Show statistics of requests and decisions, from the audit log: outcomes, approvers and times to decide.\n\n" +
			"An approver who approves nearly everything within seconds does not read the requests: shares and times show that.\n" +
			"For --since " + timeHelp + ".",
		RunE: func(*cobra.Command, []string) error { return a.stats(f) },
	}
	c.Flags().StringVar(&f.since, "since", "", "only requests made at this `time` or later")
	c.Flags().StringVar(&f.until, "until", "", "only requests made before this `time`")
	c.Flags().StringVar(&f.workspace, "workspace", "", "only requests of this `workspace`")
	a.completeHistory(c)
	return c
}

// stats is what stats --json prints. Shares are 0 to 1, times in seconds; both
// are null without decisions.
type stats struct {
	Requests  int                     `json:"requests"`
	Asked     int                     `json:"asked"` // asked a person
	Statuses  map[approval.Status]int `json:"statuses"`
	Median    *float64                `json:"median_sec_to_decide"`
	Approvers []tally                 `json:"approvers"`
	Tools     []tally                 `json:"tools"`
}

// tally counts the decisions of one approver or on one tool.
type tally struct {
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

func (a *app) stats(f historyFlags) error {
	f.all, f.limit = true, 1
	w, err := f.query(time.Now())
	if err != nil {
		return err
	}
	h, k, err := a.openHome()
	if err != nil {
		return err
	}
	found, _, err := h.requests(k, w)
	st := newStats(found)
	if a.json {
		err = errors.Join(err, a.print(st, ""))
	} else {
		a.printStats(st)
	}
	if err != nil {
		return withAuditHint(err)
	}
	return nil
}

func newStats(found []*audit.Request) *stats {
	st := &stats{Requests: len(found), Statuses: map[approval.Status]int{}}
	people, tools := map[string]*tally{}, map[string]*tally{}
	var took []time.Duration
	for _, r := range found {
		st.Statuses[r.Status]++
		tool := tallyOf(tools, toolName(r))
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

func toolName(r *audit.Request) string {
	return cmp.Or(r.Tool, r.ActionType, "(none)")
}

func tallyOf(m map[string]*tally, name string) *tally {
	t := m[name]
	if t == nil {
		t = &tally{Name: name}
		m[name] = t
	}
	return t
}

func (t *tally) add(r *audit.Request) {
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
func approvedBy(r *audit.Request) bool {
	switch r.Status {
	case approval.StatusApproved, approval.StatusFailed, approval.StatusInterrupted, audit.StatusRunning,
		approval.StatusExpired: // approved in time, but the daemon was down
		return true
	}
	return false
}

// toDecide is the time from the request to the decision, by the log.
func toDecide(r *audit.Request) (time.Duration, bool) {
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
func tallies(m map[string]*tally) []tally {
	list := make([]tally, 0, len(m))
	for _, t := range m {
		if t.Decided > 0 {
			share := float64(t.Approved) / float64(t.Decided)
			t.Share = &share
		}
		t.Median = median(t.took)
		list = append(list, *t)
	}
	slices.SortFunc(list, func(a, b tally) int {
		return cmp.Or(b.Requests-a.Requests, cmp.Compare(a.Name, b.Name))
	})
	return list
}

func (a *app) printStats(st *stats) {
	fmt.Fprintf(a.Out, "%d requests, %d of them asked a person\n", st.Requests, st.Asked)
	for _, s := range statuses() {
		if n := st.Statuses[approval.Status(s)]; n > 0 {
			fmt.Fprintf(a.Out, "  %-13s %6d\n", s, n)
		}
	}
	fmt.Fprintf(a.Out, "median time to decide: %s\n", seconds(st.Median))
	for _, part := range []struct {
		head string
		list []tally
	}{{"APPROVER", st.Approvers}, {"TOOL", st.Tools}} {
		if len(part.list) == 0 {
			continue
		}
		fmt.Fprintln(a.Out)
		t := a.table(part.head, "REQUESTS", "DECIDED", "APPROVED", "MEDIAN", "WITHIN 5s")
		for _, l := range part.list {
			t.row(truncate(chat.Escape(l.Name)), fmt.Sprint(l.Requests), fmt.Sprint(l.Decided), percent(l.Share), seconds(l.Median), fmt.Sprint(l.Hasty))
		}
		t.print()
	}
	for _, l := range st.Approvers {
		if l.rubberStamps() {
			fmt.Fprintf(a.Out, "\n%s approves %s, half of it within %s: too fast to read the requests. Allow by a rule what is always\n"+
				"approved, so that approvers read the rest.\n", chat.Escape(l.Name), percent(l.Share), seconds(l.Median))
		}
	}
}

// rubberStamps reports rubber-stamping: enough decisions to judge, hardly a denial,
// and most within seconds.
func (t *tally) rubberStamps() bool {
	return t.Decided >= 20 && *t.Share >= 0.98 && t.Median != nil && *t.Median < hasty.Seconds()
}

func percent(share *float64) string {
	if share == nil {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", *share*100)
}

func seconds(s *float64) string {
	if s == nil {
		return "–"
	}
	return shortDuration(time.Duration(*s * float64(time.Second)))
}
