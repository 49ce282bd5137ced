package move_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/move"
)

// noon is the time of every call of Next; the documents are dated around it.
func noon() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// input is the input of one call of Next.
type input struct {
	move.Documents
	now time.Time
}

func (m input) hasQ() bool   { return m.Request != move.Absent }
func (m input) hasP() bool   { return m.Pending == move.Valid } // without a MAC it is not P: row 13
func (m input) hasD() bool   { return m.Decision != move.Absent }
func (m input) ownQ() bool   { return m.Request == move.Valid && m.RequestMatches }
func (m input) isYes() bool  { return m.Verdict == approval.Approved }
func (m input) inTime() bool { return m.now.Compare(m.RunBefore) <= 0 }
func (m input) leftover() bool {
	return m.Pending != move.Absent || m.hasD() || m.Claim || m.hasQ() || m.Cancel
}

// line is one line of the state table. A row can have several.
type line struct {
	row  int
	fits func(input) bool
	move move.Move
	wake func(input) time.Time // nil: no wake-up
}

// table is the table of the package comment, line by line. The first line that fits
// counts.
func table() []line {
	return []line{
		{1, func(m input) bool {
			return m.Record && (m.leftover() || m.Retained && m.Response != move.Valid)
		}, move.Settle, nil},
		{16, func(m input) bool { return m.Record }, move.None, nil}, // settled: rows 2 to 15 need the absence of C
		{2, func(m input) bool { return m.Claim && m.Running }, move.WaitRunning, nil},
		{3, func(m input) bool { return m.Claim && m.Task }, move.ResumeTask, nil},
		{3, func(m input) bool { return m.Claim && m.Idempotent && !m.Again }, move.RunAgain, nil},
		{3, func(m input) bool { return m.Claim }, move.EndInterrupted, nil},
		{4, func(m input) bool { return m.hasP() && m.Decision == move.Invalid }, move.RejectDecision, nil},
		{5, func(m input) bool {
			return m.hasP() && m.hasD() && m.isYes() && m.inTime() && m.Tool == move.ToolSame
		}, move.RunClaim, nil},
		{5, func(m input) bool {
			return m.hasP() && m.hasD() && m.isYes() && m.inTime() && m.Tool == move.ToolGone
		}, move.EndToolGone, nil},
		{5, func(m input) bool {
			return m.hasP() && m.hasD() && m.isYes() && m.inTime() && m.Tool == move.ToolChanged
		}, move.EndToolChanged, nil},
		{6, func(m input) bool { return m.hasP() && m.hasD() && m.isYes() && !m.inTime() }, move.EndLate, nil},
		{7, func(m input) bool { return m.hasP() && m.hasD() && !m.isYes() }, move.EndVerdict, nil},
		{8, func(m input) bool { return m.hasP() && m.hasQ() && m.ownQ() }, move.DropRequest, nil},
		{8, func(m input) bool { return m.hasP() && m.hasQ() && !m.ownQ() }, move.RejectRequest, nil},
		{9, func(m input) bool { return m.hasP() && m.Cancel }, move.DecideCancel, nil},
		{10, func(m input) bool { return m.hasP() && m.now.Compare(m.ExpiresAt) >= 0 }, move.DecideExpiry, nil},
		{11, input.hasP, move.WaitDecision, func(m input) time.Time { return m.ExpiresAt }},
		{
			12, func(m input) bool {
				return m.Request == move.Invalid && m.now.Before(m.FirstSeen.Add(2*time.Second))
			},
			move.WaitRequest, func(m input) time.Time { return m.FirstSeen.Add(2 * time.Second) },
		},
		{13, func(m input) bool { return m.hasQ() || m.Pending == move.Invalid }, move.Intake, nil},
		{14, input.hasD, move.RejectDecision, nil},
		{15, func(m input) bool { return m.Cancel }, move.DropCancel, nil},
		{16, func(input) bool { return true }, move.None, nil},
	}
}

func firstFit(lines []line, m input) line {
	for _, l := range lines {
		if l.fits(m) {
			return l
		}
	}
	return line{} // unreachable: the last line always fits
}

// dimension is one independent variable of the documents.
type dimension struct {
	values int
	set    func(d *move.Documents, value int)
}

func flagged(set func(d *move.Documents, on bool)) dimension {
	return dimension{2, func(d *move.Documents, v int) { set(d, v == 1) }}
}

func presence(field func(d *move.Documents) *move.Presence) dimension {
	return dimension{3, func(d *move.Documents, v int) { *field(d) = move.Presence(v) }}
}

// around sets a time to an hour before noon or an hour after it.
func around(field func(d *move.Documents) *time.Time) dimension {
	return dimension{2, func(d *move.Documents, v int) { *field(d) = noon().Add(time.Duration(2*v-1) * time.Hour) }}
}

func dimensions() []dimension {
	verdicts := []approval.Verdict{approval.Approved, approval.Denied, approval.Expired, approval.Answered, ""}
	return []dimension{
		presence(func(d *move.Documents) *move.Presence { return &d.Request }),
		flagged(func(d *move.Documents, on bool) { d.RequestMatches = on }),
		flagged(func(d *move.Documents, on bool) { d.Cancel = on }),
		presence(func(d *move.Documents) *move.Presence { return &d.Pending }),
		presence(func(d *move.Documents) *move.Presence { return &d.Decision }),
		{len(verdicts), func(d *move.Documents, v int) { d.Verdict = verdicts[v] }},
		around(func(d *move.Documents) *time.Time { return &d.RunBefore }),
		flagged(func(d *move.Documents, on bool) { d.Claim = on }),
		flagged(func(d *move.Documents, on bool) { d.Again = on }),
		flagged(func(d *move.Documents, on bool) { d.Record = on }),
		presence(func(d *move.Documents) *move.Presence { return &d.Response }),
		flagged(func(d *move.Documents, on bool) { d.Retained = on }),
		{3, func(d *move.Documents, v int) { d.Tool = move.ToolState(v) }},
		flagged(func(d *move.Documents, on bool) { d.Running = on }),
		flagged(func(d *move.Documents, on bool) { d.Idempotent = on }),
		flagged(func(d *move.Documents, on bool) { d.Task = on }),
		around(func(d *move.Documents) *time.Time { return &d.ExpiresAt }),
		{2, func(d *move.Documents, v int) {
			d.FirstSeen = noon().Add(-time.Second - time.Duration(v)*time.Minute)
		}},
	}
}

// everyCombination calls visit with all 4,976,640 combinations and returns their
// number.
func everyCombination(dims []dimension, visit func(move.Documents)) int {
	digits, d, n := make([]int, len(dims)), move.Documents{}, 0
	for _, dim := range dims {
		dim.set(&d, 0)
	}
	for {
		visit(d)
		n++
		i := 0
		for ; i < len(dims); i++ {
			digits[i] = (digits[i] + 1) % dims[i].values
			dims[i].set(&d, digits[i])
			if digits[i] != 0 {
				break
			}
		}
		if i == len(dims) {
			return n
		}
	}
}

func TestNextAgreesWithTheTableOnEveryCombination(t *testing.T) {
	lines, rows, moves := table(), map[int]int{}, map[move.Move]int{}
	n := everyCombination(dimensions(), func(d move.Documents) {
		m := input{d, noon()}
		want, wake := firstFit(lines, m), time.Time{}
		if want.wake != nil {
			wake = want.wake(m)
		}
		rows[want.row]++
		moves[want.move]++
		if next, at := move.Next(d, m.now); next != want.move || !at.Equal(wake) {
			t.Fatalf("%+v\nNext says move %d at %v\nrow %d says move %d at %v", d, next, at, want.row, want.move, wake)
		}
	})
	require.Equal(t, 4_976_640, n, "the product of all dimensions")
	for row := 1; row <= 16; row++ {
		require.Positive(t, rows[row], "row %d is never the first that fits", row)
	}
	for next := move.None; next <= move.DropCancel; next++ {
		require.Positive(t, moves[next], "move %d is never made", next)
	}
	require.Len(t, moves, int(move.DropCancel)+1)
}

// In no combination does an action run without its preconditions.
func TestNextRunsOnlyApprovedActions(t *testing.T) {
	everyCombination(dimensions(), func(d move.Documents) {
		switch next, _ := move.Next(d, noon()); next {
		case move.RunClaim:
			if d.Pending != move.Valid || d.Decision != move.Valid || d.Verdict != approval.Approved ||
				d.Tool != move.ToolSame || d.Claim || d.Record || noon().After(d.RunBefore) {
				t.Fatalf("runs: %+v", d)
			}
		case move.RunAgain:
			if !d.Claim || d.Again || d.Record || d.Running || d.Task || !d.Idempotent {
				t.Fatalf("runs again: %+v", d)
			}
		case move.Intake:
			if d.Claim || d.Record || d.Pending == move.Valid {
				t.Fatalf("evaluated again: %+v", d)
			}
		}
	})
}

func TestNextAtTheEdges(t *testing.T) {
	now := noon()
	tick := time.Nanosecond
	pending := move.Documents{Pending: move.Valid, ExpiresAt: now.Add(time.Hour)}
	approved := pending
	approved.Decision, approved.Verdict, approved.Tool, approved.RunBefore = move.Valid, approval.Approved, move.ToolSame, now
	half := move.Documents{Request: move.Invalid, FirstSeen: now}

	for _, c := range []struct {
		why  string
		docs move.Documents
		now  time.Time
		move move.Move
		wake time.Time
	}{
		{"no documents", move.Documents{}, now, move.None, time.Time{}},
		{"no documents, at the zero time", move.Documents{}, time.Time{}, move.None, time.Time{}},

		{"one tick left to decide", pending, pending.ExpiresAt.Add(-tick), move.WaitDecision, pending.ExpiresAt},
		{"at the deadline it is too late", pending, pending.ExpiresAt, move.DecideExpiry, time.Time{}},
		{"a missing deadline has passed", move.Documents{Pending: move.Valid}, now, move.DecideExpiry, time.Time{}},

		{"at run_before it is in time", approved, now, move.RunClaim, time.Time{}},
		{"one tick later it is not", approved, now.Add(tick), move.EndLate, time.Time{}},
		{
			"approved before the deadline, loaded after it: only run_before counts",
			func() move.Documents { d := approved; d.ExpiresAt = now.Add(-time.Hour); return d }(),
			now, move.RunClaim,
			time.Time{},
		},
		{
			"an approval without run_before runs nothing",
			func() move.Documents { d := approved; d.RunBefore = time.Time{}; return d }(),
			now, move.EndLate,
			time.Time{},
		},
		{
			"unknown tool state: nothing runs",
			func() move.Documents { d := approved; d.Tool = 0; return d }(),
			now, move.EndToolGone,
			time.Time{},
		},

		{"half a request, just seen", half, now, move.WaitRequest, now.Add(move.IncompleteGrace)},
		{"one tick of the grace period left", half, now.Add(move.IncompleteGrace - tick), move.WaitRequest, now.Add(move.IncompleteGrace)},
		{"the grace period is over", half, now.Add(move.IncompleteGrace), move.Intake, time.Time{}},
		{"clock set back to before FirstSeen: still in the grace period", half, now.Add(-time.Hour), move.WaitRequest, now.Add(move.IncompleteGrace)},
		{"without FirstSeen there is no grace period", move.Documents{Request: move.Invalid}, now, move.Intake, time.Time{}},
		{
			"half a request beside a host program's: row 12 comes before row 13",
			move.Documents{Request: move.Invalid, FirstSeen: now, Pending: move.Invalid},
			now, move.WaitRequest, now.Add(move.IncompleteGrace),
		},
		{
			"half a request cannot be the pending's request",
			move.Documents{Request: move.Invalid, RequestMatches: true, FirstSeen: now, Pending: move.Valid, ExpiresAt: now.Add(time.Hour)},
			now, move.RejectRequest,
			time.Time{},
		},
	} {
		next, wake := move.Next(c.docs, c.now)
		require.Equal(t, c.move, next, c.why)
		require.True(t, wake.Equal(c.wake), "%s: wakes at %v", c.why, wake)
	}
}

// The table in the package comment has the rows and moves that the tests check.
func TestPackageCommentPublishesTheTable(t *testing.T) {
	src, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, body, found := strings.Cut(string(src), "//\trow  files  when")
	require.True(t, found, "the table's head")
	body, _, found = strings.Cut(body, "\n//\n")
	require.True(t, found, "the table's end")

	published, rows := map[int]string{}, []int{}
	for text := range strings.Lines(body) {
		if m := regexp.MustCompile(`^//\t(\d+) `).FindStringSubmatch(text); m != nil {
			row, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			rows = append(rows, row)
		}
		if len(rows) > 0 {
			published[rows[len(rows)-1]] += text
		}
	}
	require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, rows)

	words, tested := moveWords(), map[int]bool{}
	for _, l := range table() {
		require.Contains(t, published[l.row], words[l.move], "row %d", l.row)
		tested[l.row] = true
	}
	require.Len(t, tested, len(rows), "rows of the test")
}

func moveWords() map[move.Move]string {
	return map[move.Move]string{
		move.None: "rest", move.Settle: "settle", move.WaitRunning: "wait",
		move.EndInterrupted: "end interrupted", move.RunAgain: "run once more", move.ResumeTask: "await its end",
		move.RejectDecision: "reject D", move.RunClaim: "claim, run, end",
		move.EndToolGone: "end failed", move.EndToolChanged: "end failed",
		move.EndLate: "end expired", move.EndVerdict: "end with it",
		move.DropRequest: "drop Q", move.RejectRequest: "reject Q",
		move.DecideCancel: "decide cancelled", move.DecideExpiry: "decide expired",
		move.WaitDecision: "wait for expires_at", move.WaitRequest: "wait",
		move.Intake: "intake", move.DropCancel: "drop X",
	}
}
