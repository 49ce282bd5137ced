package gate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/store"
)

// The ranks of settled requests: the lowest goes first, and what ran never for room.
const (
	rankRefused = iota
	rankDenied
	rankUndecided
	rankRan
)

// settledDoc is what the model knows of a request that has ended, from what the test did with it.
type settledDoc struct {
	key   approval.Key
	rank  int
	order int
	ended time.Time // on the gate's clock
	mark  bool      // its receipt was redeemed
}

// budgetModel makes a gate do whatever comes, and knows what may be on the disk after it.
type budgetModel struct {
	*rig
	r       *rand.Rand
	budget  int64
	due     int64 // what may be there beyond it: of a larger budget, and of outcomes, since the last sweep
	n       int   // ids so far
	output  int   // bytes of the next run's
	settled map[approval.Key]*settledDoc
	gone    []approval.Key // pruned or removed
	waiting []approval.Key // pending
	seen    map[string]int // what has happened, by name: the test must reach all of it
}

// diskUse is what du would say: whole blocks of 4 KiB. It is no code of the gate's.
func diskUse(t testing.TB, dirs ...string) (all int64) {
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			info, err := e.Info()
			require.NoError(t, err)
			all += (info.Size() + 4095) >> 12 << 12
		}
	}
	return all
}

func (m *budgetModel) use(ws string) int64 {
	return diskUse(m.t, m.layout.Records(ws), m.layout.Responses(ws), m.layout.Errors(ws))
}

// files are the names of the records and responses.
func (m *budgetModel) files() map[string]bool {
	all := map[string]bool{}
	for _, ws := range []string{personal, other} {
		for kind, dir := range map[string]string{"/records/": m.layout.Records(ws), "/responses/": m.layout.Responses(ws)} {
			entries, err := os.ReadDir(dir)
			require.NoError(m.t, err)
			for _, e := range entries {
				all[ws+kind+e.Name()] = true
			}
		}
	}
	return all
}

// stays is what no sweep may remove: what ran, marks, and descriptions.
func (m *budgetModel) stays(ws string) int64 {
	all := m.use(ws)
	for _, dir := range []string{m.layout.Records(ws), m.layout.Responses(ws)} {
		entries, err := os.ReadDir(dir)
		require.NoError(m.t, err)
		for _, e := range entries {
			s := m.settled[approval.Key{Workspace: ws, ID: strings.TrimSuffix(e.Name(), ".json")}]
			if info, err := e.Info(); s != nil && s.rank != rankRan {
				require.NoError(m.t, err)
				all -= (info.Size() + 4095) >> 12 << 12
			}
		}
	}
	return all
}

func (m *budgetModel) newKey(ws string) approval.Key {
	if len(m.gone) > 0 && m.r.IntN(4) == 0 { // a pruned id is new
		i := m.r.IntN(len(m.gone))
		k := m.gone[i]
		m.gone = slices.Delete(m.gone, i, i+1)
		if k.Workspace == ws {
			m.seen["an id again"]++
			return k
		}
	}
	m.n++
	return keyIn(ws, m.n)
}

func (m *budgetModel) end(k approval.Key, rank int) {
	require.True(m.t, m.isSettled(k), "%s: its end is written", k)
	m.settled[k] = &settledDoc{key: k, rank: rank, order: len(m.settled) + m.n*1000, ended: m.record(k).EndedAt}
}

const fullReason = "auto_rejected: limit_stored"

// request writes a request, and returns its outcome. It checks that it is refused for want of
// room if, and only if, what stays has taken its share. Descriptions may go before: then either is right.
func (m *budgetModel) request(k approval.Key, body string) string {
	descriptions := func() int64 { return diskUse(m.t, m.layout.Errors(k.Workspace)) }
	stays, before := m.stays(k.Workspace), descriptions()
	m.writeRequest(k, body)
	m.step(k)
	if k.Workspace == personal {
		m.due = 0
	}
	got, least := m.outcome(k), stays-max(0, before-descriptions())
	if strings.HasPrefix(got, "auto_rejected: ") && !strings.HasPrefix(got, fullReason) || strings.HasPrefix(got, "malformed") {
		return got // for another reason, which comes first
	}
	full := strings.HasPrefix(got, fullReason)
	if share := m.budget / 16 * 15; stays < share || least >= share {
		require.Equal(m.t, least >= share, full, "%s: %s; %d of %d stay", k, got, least, m.budget)
	}
	if full {
		m.seen["refused: full"]++
	}
	return got
}

func (m *budgetModel) text(max int) string { return strings.Repeat("x", m.r.IntN(max)) }

// do does one thing.
func (m *budgetModel) do() (what string) {
	ws := personal
	switch n := m.r.IntN(100); {
	case n < 40:
		what = "refuse"
		k := m.newKey(ws)
		body := []string{request(k, "never", `{"text":"`+m.text(20_000)+`"}`), request(k, "nothing", ""), "[]" + m.text(9000)}[m.r.IntN(3)]
		m.request(k, body)
		m.end(k, rankRefused)
		require.True(m.t, m.has(approval.DocResponse, k), "the agent can read why")
	case n < 52:
		what = "run"
		k := m.newKey(ws)
		m.output = m.r.IntN(50_000)
		if got := m.request(k, request(k, "auto", "")); got == "auto_approved" {
			m.end(k, rankRan)
			if m.r.IntN(3) == 0 {
				require.NoError(m.t, m.store.Commit(context.Background(), store.Put(approval.DocRedeemed, k, []byte(`{}`))))
				m.settled[k].mark = true
			}
		} else {
			m.end(k, rankRefused)
		}
	case n < 66:
		what = "ask"
		k := m.newKey(ws)
		if got := m.request(k, request(k, "run", `{"text":"`+m.text(20_000)+`"}`)); got == "none" {
			m.waiting = append(m.waiting, k)
		} else {
			m.end(k, rankRefused)
		}
	case n < 84 && len(m.waiting) > 0:
		what = m.decideOne()
	case n < 86:
		what = "description"
		require.NoError(m.t, m.store.Refuse(context.Background(), ws, m.text(30)+fmt.Sprint(m.n), "no"))
	case n < 90:
		what = "later"
		m.clock.move([]time.Duration{time.Minute, 20 * time.Minute, 5 * day, 50 * day}[m.r.IntN(4)])
	case n < 93:
		what = "prune"
		m.prune()
		m.due = 0
	case n < 95:
		what = "restart"
		m.reopen()
	case n < 96:
		what = "another budget"
		m.due = max(m.due, m.use(personal))
		m.budget = int64(m.r.IntN(8)+4) << 17
		m.options.limits.Stored = m.budget
		m.gate.Reconfigured()
	default:
		what = "another workspace"
		k := m.newKey(other)
		m.output = 0
		require.Equal(m.t, "auto_approved", m.request(k, request(k, "auto", "")), "it has its own budget")
		m.end(k, rankRan)
	}
	return what
}

// decideOne ends a pending request in one of all ways: a full workspace does not prevent it.
func (m *budgetModel) decideOne() (what string) {
	i := m.r.IntN(len(m.waiting))
	k := m.waiting[i]
	m.waiting = slices.Delete(m.waiting, i, i+1)
	if m.full(k.Workspace) {
		m.seen["an end of what was asked before, in a full workspace"]++
	}
	if m.step(k); m.outcome(k) != "none" { // its time was over
		m.end(k, rankUndecided)
		return "expire"
	}
	switch m.r.IntN(4) {
	case 0:
		m.decide(decision(k, approval.Denied))
		m.step(k)
		m.end(k, rankDenied)
		return "deny"
	case 1:
		m.cancel(k)
		m.step(k)
		m.end(k, rankUndecided)
		return "cancel"
	case 2:
		m.clock.move(2 * time.Hour)
		m.step(k)
		m.end(k, rankUndecided)
		return "expire"
	}
	m.output = m.r.IntN(50_000)
	m.decide(decision(k, approval.Approved))
	m.step(k)
	require.Equal(m.t, "approved", m.outcome(k))
	m.end(k, rankRan)
	m.due = max(m.due, m.use(personal))
	return "approve"
}

func (m *budgetModel) full(ws string) bool { return m.stays(ws) >= m.budget/16*15 }

// check compares the disk with the model. before is what was there before the last step.
func (m *budgetModel) check(before map[approval.Key]bool) {
	now := m.clock.now()
	var removed, left []*settledDoc
	files := m.files()
	for k, s := range m.settled {
		age := now.Sub(s.ended)
		there := files[k.Workspace+"/records/"+k.ID+".json"]
		response := files[k.Workspace+"/responses/"+k.ID+".json"]
		switch {
		case !there && s.rank == rankRan:
			require.GreaterOrEqual(m.t, age, 90*day, "%s ran: it stays until its retention ends", k)
		case !there && age < 90*day && before[k]:
			removed = append(removed, s)
		case there && before[k]:
			left = append(left, s)
			require.True(m.t, response || age >= 7*day, "%s: its response stays as long", k)
			require.True(m.t, !s.mark || files[k.Workspace+"/records/"+k.ID+".redeemed"], "%s: the mark of its receipt stays", k)
		}
		if !there {
			require.False(m.t, response, "%s: no response without a record", k)
			delete(m.settled, k)
			m.gone = append(m.gone, k)
		}
	}
	for _, gone := range removed {
		m.seen[fmt.Sprint("removed for room: ", gone.rank)]++
		for _, s := range left {
			after := s.rank > gone.rank || s.rank == gone.rank && s.ended.After(gone.ended)
			require.True(m.t, after || s.key.Workspace != gone.key.Workspace, "%+v went before %+v", gone, s)
		}
	}
	for _, ws := range []string{personal, other} {
		use := m.use(ws)
		st, err := m.gate.Storage(context.Background(), ws)
		require.NoError(m.t, err)
		require.Equal(m.t, use, st.Used, "what the gate counts is on the disk")
	}
}

// bounded checks that a workspace has no more than its budget, except for what must stay.
func (m *budgetModel) bounded() {
	use, stays := m.use(personal), m.stays(personal)
	const outcome = 256 << 10 // of one step
	require.LessOrEqual(m.t, use, max(m.budget, stays+m.budget/16, m.due)+outcome)
}

// Whatever comes, in whatever order: a workspace has no more on the disk than its budget and what
// must stay, things go in their order, and the other workspace does not feel it.
func TestBudgetModel(t *testing.T) {
	seed, err := strconv.ParseUint(os.Getenv("PERMESSO_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	steps := 400
	if os.Getenv("PERMESSO_SOAK") != "" {
		steps = 60_000
	}
	t.Logf("PERMESSO_SEED=%d", seed)
	m := newBudgetModel(t, rand.New(rand.NewPCG(seed, 0)))
	for n := range 100_000 {
		if n >= steps && m.sawAll() {
			break
		}
		before := map[approval.Key]bool{}
		for k := range m.settled {
			before[k] = true
		}
		what := m.do()
		m.seen[what]++
		m.check(before)
		m.bounded()
		if len(m.settled) > 400 { // 90 days later the test is faster
			m.clock.move(91 * day)
			m.prune()
		}
	}
	t.Log(m.seen)
	require.True(t, m.sawAll())
}

// sawAll reports that everything has happened that the model is about.
func (m *budgetModel) sawAll() bool {
	for _, what := range []string{
		"refuse", "run", "ask", "deny", "cancel", "expire", "approve", "prune", "restart", "another budget", "an id again",
		"removed for room: 0", "removed for room: 1", "removed for room: 2", "refused: full", "another workspace",
		"an end of what was asked before, in a full workspace",
	} {
		if m.seen[what] == 0 {
			return false
		}
	}
	return true
}

func newBudgetModel(t *testing.T, r *rand.Rand) *budgetModel {
	m := &budgetModel{r: r, budget: 1 << 20, settled: map[approval.Key]*settledDoc{}, seen: map[string]int{}}
	m.rig = newRig(t, options{inline: true, timeout: time.Hour, limits: approval.Limits{
		Pending: 10_000, AskPerMinute: 1 << 30, PerMinute: 1 << 30, Stored: m.budget,
	}})
	m.executor.do = func(approval.Job) approval.Effect {
		return approval.Effect{Result: approval.Raw(`{"output":"` + strings.Repeat("o", m.output) + `"}`)}
	}
	return m
}
