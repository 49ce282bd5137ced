package read

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/event"
)

// The two statuses of a request that has not ended.
const (
	StatusPending approval.Status = "pending" // a person is asked
	StatusRunning approval.Status = "running" // claimed, and no outcome is logged yet
)

// Statuses lists the statuses by which requests can be searched.
func Statuses() []string {
	return []string{
		string(StatusPending), string(StatusRunning),
		string(approval.StatusApproved), string(approval.StatusAutoApproved), string(approval.StatusDenied),
		string(approval.StatusAutoRejected), string(approval.StatusExpired), string(approval.StatusCancelled),
		string(approval.StatusRequestMore), string(approval.StatusOverridden), string(approval.StatusAnswered),
		string(approval.StatusFailed), string(approval.StatusInterrupted), string(approval.StatusMalformed),
	}
}

// Request is the log's information about one request. An id that was pruned and
// used again is two requests.
type Request struct {
	Key        approval.Key
	Tool       string
	Capability string
	Target     string
	ActionType string // of a release-only request
	ClientID   string // the requesting client
	Status     approval.Status
	By, ByID   string // the decider; "": a rule
	Via        string
	Rule       string
	Grant      string // id of the grant that allowed it
	Reason     string
	Person     bool      // a person was asked
	AskedAt    time.Time // zero: not in the log
	DecidedAt  time.Time // when the daemon logged the decision; zero: not decided
	EndedAt    time.Time // zero: not yet

	// Undone is the verdict of a decision that is not carried out yet; "": none.
	Undone approval.Verdict

	complete bool // the request's first entry was read
}

// ByPerson says that a person decided, not a rule, the deadline or the agent.
func (r *Request) ByPerson() bool { return r.By != "" && r.Via != "gate" }

// Ended says that the request is settled.
func (r *Request) Ended() bool { return r.Status != StatusPending && r.Status != StatusRunning }

// Kind is the request's tool or, without one, its action type.
func (r *Request) Kind() string { return cmp.Or(r.Tool, r.ActionType) }

// Query selects requests. The zero Query selects all.
type Query struct {
	Workspaces []string  // nil: all
	Since      time.Time // asked at this time or later
	Until      time.Time // asked before; zero: no bound
	Limit      int       // at most this many, those with the newest entries; 0: all
	Match      func(*Request) bool
}

// slack is how far the clock may have been set back without hiding a request from a
// search with Since.
const slack = 24 * time.Hour

var errStop = errors.New("enough")

// Requests finds requests in a log, ordered by the time of asking, newest first.
// more says whether there are more than Limit. With an error it also returns the
// requests found so far.
func Requests(log Log, q Query) (found []*Request, more bool, err error) {
	j := &collector{wanted: q, open: map[approval.Key]*Request{}}
	if !q.Since.IsZero() {
		j.stop = q.Since.Add(-slack)
	}
	err = log(nil, j.add)
	if errors.Is(err, errStop) {
		err = nil
	}
	found, more = j.result()
	return found, more, err
}

// Each calls each for the requests of a log, in the order in which they were asked by the
// log, newest first. Those whose first entry the log does not have come last. It keeps no
// request of which it has read the first entry. q.Limit is not used. It returns the error
// of each; after another one it has called each for the requests found so far.
func Each(log Log, q Query, each func(*Request) error) error {
	var stopped error
	j := &collector{wanted: q, open: map[approval.Key]*Request{}}
	if !q.Since.IsZero() {
		j.stop = q.Since.Add(-slack)
	}
	j.each = func(r *Request) error {
		if j.wants(r) {
			stopped = each(r)
		}
		return stopped
	}
	err := log(nil, j.add)
	if errors.Is(err, errStop) {
		err = nil
	}
	rest := slices.AppendSeq(j.all, maps.Values(j.open))
	slices.SortFunc(rest, newestFirst)
	for _, r := range rest {
		if stopped == nil {
			_ = j.each(r)
		}
	}
	return cmp.Or(stopped, err)
}

// Requests is the function Requests for this log. An outcome that the log does not have,
// because its entry is not written yet or was lost in a power cut, comes from the record.
func (v *Viewer) Requests(q Query) (found []*Request, more bool, err error) {
	return Requests(v.Log, v.withOutcomes(q))
}

// Each is the function Each for this log, with outcomes as in Requests.
func (v *Viewer) Each(q Query, each func(*Request) error) error {
	return Each(v.Log, v.withOutcomes(q), each)
}

// Stats counts requests, without keeping them. With an error it counts those found so far.
func (v *Viewer) Stats(q Query) (st *Stats, err error) {
	st = NewStats(func(count func(*Request) bool) {
		err = v.Each(q, func(r *Request) error { count(r); return nil })
	})
	return st, err
}

func (v *Viewer) withOutcomes(q Query) Query {
	match := q.Match
	q.Match = func(r *Request) bool {
		v.addOutcome(r)
		return match == nil || match(r)
	}
	return q
}

func (v *Viewer) addOutcome(r *Request) {
	if r.Ended() {
		return
	}
	rec, err := v.Record(context.Background(), r.Key)
	if err == nil && rec == nil && r.Status == StatusPending {
		v.addUndone(r)
	}
	if err != nil || rec == nil || rec.EndedAt.Before(r.Asked()) {
		return // no record, or that of an earlier request with this id
	}
	r.Status, r.EndedAt = rec.Status, rec.EndedAt
	if d := v.OpenDecision(r.Key, rec.Decision); d != nil {
		r.By, r.ByID, r.Via, r.DecidedAt = d.DecidedBy, d.DecidedByID, d.Via, d.DecidedAt
	}
}

// addUndone adds a decision that is not carried out yet: the log has it when it is.
func (v *Viewer) addUndone(r *Request) {
	w, err := v.Pending(r.Key)
	if err != nil || w == nil {
		return
	}
	if d, _ := v.Decided(context.Background(), *w); d != nil {
		r.Undone, r.By, r.ByID, r.Via, r.DecidedAt = d.Verdict, d.DecidedBy, d.DecidedByID, d.Via, d.DecidedAt
	}
}

// collector combines entries, newest first, into requests.
type collector struct {
	wanted Query
	stop   time.Time
	open   map[approval.Key]*Request
	each   func(*Request) error // gets a request as soon as it is complete; nil: all of them stay
	all    []*Request           // ordered by their newest entry; with each: incomplete ones whose id an older request has, too
	done   int                  // number of the first complete ones in all
	hits   int                  // number of wanted ones among those
}

func (j *collector) add(e event.Entry) error {
	if e.Time.Before(j.stop) {
		return errStop
	}
	k := kindOf[e.Event]
	if _, step := approval.CutStep(e.RequestID); k.stage == unrelated || e.RequestID == "" || step > 0 { // a step is a part of its program
		return nil
	}
	key := approval.Key{Workspace: e.Workspace, ID: e.RequestID}
	r := j.open[key]
	if r == nil || r.isEarlier(k.stage) {
		newer := r
		r = &Request{Key: key}
		j.open[key] = r
		switch {
		case j.each == nil:
			j.all = append(j.all, r)
		case newer != nil:
			j.all = append(j.all, newer)
		}
	}
	r.apply(&e, k)
	if j.each == nil {
		return j.enough()
	}
	if !r.complete {
		return nil
	}
	delete(j.open, key)
	return j.each(r)
}

// enough ends the search when Limit requests are complete, and all requests with
// newer entries.
func (j *collector) enough() error {
	if j.wanted.Limit <= 0 {
		return nil
	}
	for ; j.done < len(j.all) && j.all[j.done].complete; j.done++ {
		if j.wants(j.all[j.done]) {
			j.hits++
		}
	}
	if j.hits > j.wanted.Limit {
		return errStop
	}
	return nil
}

func (j *collector) wants(r *Request) bool {
	asked := r.Asked()
	return (j.wanted.Workspaces == nil || slices.Contains(j.wanted.Workspaces, r.Key.Workspace)) && !asked.Before(j.wanted.Since) &&
		(j.wanted.Until.IsZero() || asked.Before(j.wanted.Until)) &&
		(j.wanted.Match == nil || j.wanted.Match(r))
}

// Asked is when it was asked or, if that is not in the log, its first known time.
func (r *Request) Asked() time.Time {
	for _, t := range []time.Time{r.AskedAt, r.DecidedAt} {
		if !t.IsZero() {
			return t
		}
	}
	return r.EndedAt
}

func (j *collector) result() (found []*Request, more bool) {
	for _, r := range j.all {
		if !j.wants(r) {
			continue
		}
		if j.wanted.Limit > 0 && len(found) == j.wanted.Limit {
			more = true
			break
		}
		found = append(found, r)
	}
	slices.SortStableFunc(found, newestFirst)
	return found, more
}

func newestFirst(a, b *Request) int { return b.Asked().Compare(a.Asked()) }

// stage is the stage of a request that an event belongs to.
type stage uint8

const (
	unrelated stage = iota // not part of the request's states
	asked                  // first entry: a person is asked
	claimed                // it is decided and runs
	ended                  // it has ended
	refused                // it was refused at once, in one entry
)

type kind struct {
	stage  stage
	status approval.Status
}

var kindOf = map[event.Kind]kind{
	event.Requested:    {asked, StatusPending},
	event.Approved:     {claimed, StatusRunning},
	event.AutoApproved: {claimed, StatusRunning},
	event.Executed:     {ended, approval.StatusApproved},
	event.Released:     {ended, approval.StatusApproved},
	event.Failed:       {ended, approval.StatusFailed},
	event.Interrupted:  {ended, approval.StatusInterrupted},
	event.Denied:       {ended, approval.StatusDenied},
	event.DeniedByUser: {ended, approval.StatusDenied},
	event.Answered:     {ended, approval.StatusAnswered},
	event.Overridden:   {ended, approval.StatusOverridden},
	event.RequestMore:  {ended, approval.StatusRequestMore},
	event.Expired:      {ended, approval.StatusExpired},
	event.Cancelled:    {ended, approval.StatusCancelled},
	event.AutoRejected: {refused, approval.StatusAutoRejected},
	event.Malformed:    {refused, approval.StatusMalformed},
}

// EndedBy is the status with which an entry ends its request, "" if it ends none.
func EndedBy(e *event.Entry) approval.Status {
	k := kindOf[e.Event]
	switch {
	case k.stage != ended && k.stage != refused:
		return ""
	case k.status == approval.StatusApproved && e.By == "":
		return approval.StatusAutoApproved
	}
	return k.status
}

// isEarlier says that an entry of that stage, older than all of r, belongs to an
// earlier request of the same id.
func (r *Request) isEarlier(s stage) bool {
	switch s {
	case asked:
		return r.complete
	case claimed: // the second claim of an idempotent tool is read before the first
		return r.Person || r.Status == approval.StatusAutoRejected || r.Status == approval.StatusMalformed
	}
	return true // an outcome is the last entry of its request
}

func (r *Request) apply(e *event.Entry, k kind) {
	if r.Status == "" {
		r.Status = k.status
	}
	switch k.stage {
	case asked:
		r.AskedAt, r.Person, r.complete = e.Time, true, true
	case claimed:
		r.DecidedAt = e.Time
		if e.Event == event.AutoApproved {
			r.AskedAt, r.complete = e.Time, e.Detail != event.DetailAgain
		}
	case ended:
		r.EndedAt = e.Time
		if r.Status == approval.StatusApproved && e.By == "" {
			r.Status = approval.StatusAutoApproved
		}
		if decides(e.Event) {
			r.DecidedAt = e.Time
		}
	default:
		r.AskedAt, r.DecidedAt, r.EndedAt, r.complete = e.Time, e.Time, e.Time, true
	}
	fill(&r.Tool, e.Tool)
	fill(&r.Capability, e.Capability)
	fill(&r.Target, e.Target)
	fill(&r.ActionType, e.ActionType)
	fill(&r.ClientID, e.ClientID)
	fill(&r.By, e.By)
	fill(&r.ByID, e.ByID)
	fill(&r.Via, e.Via)
	fill(&r.Rule, e.Rule)
	fill(&r.Grant, e.Grant)
	fill(&r.Reason, e.Reason)
}

// decides says that an outcome is also the decision, so that there is no claim.
func decides(e event.Kind) bool {
	switch e {
	case event.Executed, event.Released, event.Failed, event.Interrupted:
		return false
	}
	return true
}

func fill(to *string, value string) {
	if *to == "" {
		*to = value
	}
}
