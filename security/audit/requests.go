package audit

import (
	"errors"
	"slices"
	"time"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval"
)

// The two statuses of a request that has not ended.
const (
	StatusPending approval.Status = "pending" // a person is asked
	StatusRunning approval.Status = "running" // claimed, and no outcome is logged yet
)

// Request is what the log says of one request. An id that was pruned and used
// again is two requests.
type Request struct {
	Key        approval.Key
	Tool       string
	Capability string
	Target     string
	ActionType string // of a release-only request
	ClientID   string // who asked
	Status     approval.Status
	By, ByID   string // whoever decided; "": a rule did
	Via        string
	Rule       string
	Reason     string
	Person     bool      // a person was asked
	AskedAt    time.Time // zero where the log does not say
	DecidedAt  time.Time // when the gate saw the decision; zero: nobody has decided
	EndedAt    time.Time // zero: not yet

	began bool // the entry that a request begins with was met
}

// ByPerson says that a person made the decision: not a rule, the deadline or
// the agent.
func (r *Request) ByPerson() bool { return r.By != "" && r.Via != "gate" }

// Wanted says which requests Requests is to find. The zero Wanted is all.
type Wanted struct {
	Since time.Time // asked at that time or later
	Until time.Time // asked before; zero: no bound
	Limit int       // at most so many, those with the newest entries; 0: all
	Match func(*Request) bool
}

// slack is how far back a clock may have been set without hiding anything from
// somebody who asks for what is newer than a time.
const slack = 24 * time.Hour

var errEnough = errors.New("enough")

// Requests finds requests in the log, the newest first asked first, and says
// whether there are more than Limit. With an error it gives what it found until
// then.
func Requests(fsys afero.Fs, dir string, w Wanted) (found []*Request, more bool, err error) {
	j := &join{wanted: w, open: map[approval.Key]*Request{}}
	if !w.Since.IsZero() {
		j.stop = w.Since.Add(-slack)
	}
	err = Backwards(fsys, dir, nil, j.add)
	if errors.Is(err, errEnough) {
		err = nil
	}
	found, more = j.result()
	return found, more, err
}

// join puts entries, newest first, together to requests.
type join struct {
	wanted Wanted
	stop   time.Time
	open   map[approval.Key]*Request
	all    []*Request // by their newest entry
	done   int        // of all: their beginning was met, and they were counted
	hits   int        // of those: wanted
}

func (j *join) add(e approval.Entry) error {
	if e.Time.Before(j.stop) {
		return errEnough
	}
	k := kindOf[e.Event]
	if k.stage == aside || e.RequestID == "" {
		return nil
	}
	key := approval.Key{Workspace: e.Workspace, ID: e.RequestID}
	r := j.open[key]
	if r == nil || r.before(k.stage) {
		r = &Request{Key: key}
		j.open[key] = r
		j.all = append(j.all, r)
	}
	r.take(&e, k)
	return j.enough()
}

// enough ends the search once as many as wanted are complete, and all whose
// newest entry is newer than theirs.
func (j *join) enough() error {
	if j.wanted.Limit <= 0 {
		return nil
	}
	for ; j.done < len(j.all) && j.all[j.done].began; j.done++ {
		if j.wants(j.all[j.done]) {
			j.hits++
		}
	}
	if j.hits > j.wanted.Limit {
		return errEnough
	}
	return nil
}

func (j *join) wants(r *Request) bool {
	asked := r.Asked()
	return !asked.Before(j.wanted.Since) &&
		(j.wanted.Until.IsZero() || asked.Before(j.wanted.Until)) &&
		(j.wanted.Match == nil || j.wanted.Match(r))
}

// Asked is when it was asked or, where the log does not say that, first heard
// of.
func (r *Request) Asked() time.Time {
	for _, t := range []time.Time{r.AskedAt, r.DecidedAt} {
		if !t.IsZero() {
			return t
		}
	}
	return r.EndedAt
}

func (j *join) result() (found []*Request, more bool) {
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
	slices.SortStableFunc(found, func(a, b *Request) int { return b.Asked().Compare(a.Asked()) })
	return found, more
}

// stage is how far an event brings a request.
type stage uint8

const (
	aside   stage = iota // beside the story
	asking               // it begins: a person is asked
	claimed              // it was decided and is being carried out
	ended                // it is over
	refused              // it began and is over, in one entry
)

type kind struct {
	stage  stage
	status approval.Status
}

var kindOf = map[approval.Event]kind{
	approval.EventRequested:    {asking, StatusPending},
	approval.EventApproved:     {claimed, StatusRunning},
	approval.EventAutoApproved: {claimed, StatusRunning},
	approval.EventExecuted:     {ended, approval.StatusApproved},
	approval.EventReleased:     {ended, approval.StatusApproved},
	approval.EventFailed:       {ended, approval.StatusFailed},
	approval.EventInterrupted:  {ended, approval.StatusInterrupted},
	approval.EventDenied:       {ended, approval.StatusDenied},
	approval.EventDeniedByUser: {ended, approval.StatusDenied},
	approval.EventAnswered:     {ended, approval.StatusAnswered},
	approval.EventOverridden:   {ended, approval.StatusOverridden},
	approval.EventRequestMore:  {ended, approval.StatusRequestMore},
	approval.EventExpired:      {ended, approval.StatusExpired},
	approval.EventCancelled:    {ended, approval.StatusCancelled},
	approval.EventAutoRejected: {refused, approval.StatusAutoRejected},
	approval.EventMalformed:    {refused, approval.StatusMalformed},
}

// before says that an entry of that stage, older than all of r, belongs to an
// earlier request of the same id.
func (r *Request) before(s stage) bool {
	switch s {
	case asking:
		return r.began
	case claimed: // the second claim of an idempotent tool is met before the first
		return r.Person || r.Status == approval.StatusAutoRejected || r.Status == approval.StatusMalformed
	}
	return true // an outcome is the last entry of its request
}

func (r *Request) take(e *approval.Entry, k kind) {
	if r.Status == "" {
		r.Status = k.status
	}
	switch k.stage {
	case asking:
		r.AskedAt, r.Person, r.began = e.Time, true, true
	case claimed:
		r.DecidedAt = e.Time
		if e.Event == approval.EventAutoApproved {
			r.AskedAt, r.began = e.Time, true
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
		r.AskedAt, r.DecidedAt, r.EndedAt, r.began = e.Time, e.Time, e.Time, true
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
	fill(&r.Reason, e.Reason)
}

// decides says that an outcome is a decision, so that no claim is to be looked
// for.
func decides(e approval.Event) bool {
	switch e {
	case approval.EventExecuted, approval.EventReleased, approval.EventFailed, approval.EventInterrupted:
		return false
	}
	return true
}

func fill(to *string, value string) {
	if *to == "" {
		*to = value
	}
}
