package approval_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
)

// noon is the time of every call of Next; the documents are dated around it.
func noon() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// input is the input of one call of Next.
type input struct {
	approval.Documents
	now time.Time
}

func (m input) hasQ() bool   { return m.Request != approval.Absent }
func (m input) hasP() bool   { return m.Pending == approval.Valid } // without a MAC it is not P: row 13
func (m input) hasD() bool   { return m.Decision != approval.Absent }
func (m input) ownQ() bool   { return m.Request == approval.Valid && m.RequestMatches }
func (m input) isYes() bool  { return m.Verdict == approval.Approved }
func (m input) inTime() bool { return m.now.Compare(m.RunBefore) <= 0 }
func (m input) leftover() bool {
	return m.Pending != approval.Absent || m.hasD() || m.Claim || m.hasQ() || m.Cancel
}

// line is one line of the state table. A row can have several.
type line struct {
	row  int
	fits func(input) bool
	move approval.Move
	wake func(input) time.Time // nil: no wake-up
}

// table is the table of the package comment, line by line. The first line that fits
// counts.
func table() []line {
	return []line{
		{1, func(m input) bool {
			return m.Record && (m.leftover() || m.Retained && m.Response != approval.Valid)
		}, approval.Settle, nil},
		{16, func(m input) bool { return m.Record }, approval.NoMove, nil}, // settled: rows 2 to 15 need the absence of C
		{2, func(m input) bool { return m.Claim && m.Running }, approval.WaitRunning, nil},
		{3, func(m input) bool { return m.Claim && m.Idempotent && !m.Again }, approval.RunAgain, nil},
		{3, func(m input) bool { return m.Claim }, approval.EndInterrupted, nil},
		{4, func(m input) bool { return m.hasP() && m.Decision == approval.Invalid }, approval.RejectDecision, nil},
		{5, func(m input) bool {
			return m.hasP() && m.hasD() && m.isYes() && m.inTime() && m.Tool == approval.ToolSame
		}, approval.RunClaim, nil},
		{5, func(m input) bool {
			return m.hasP() && m.hasD() && m.isYes() && m.inTime() && m.Tool == approval.ToolGone
		}, approval.EndToolGone, nil},
		{5, func(m input) bool {
			return m.hasP() && m.hasD() && m.isYes() && m.inTime() && m.Tool == approval.ToolChanged
		}, approval.EndToolChanged, nil},
		{6, func(m input) bool { return m.hasP() && m.hasD() && m.isYes() && !m.inTime() }, approval.EndLate, nil},
		{7, func(m input) bool { return m.hasP() && m.hasD() && !m.isYes() }, approval.EndVerdict, nil},
		{8, func(m input) bool { return m.hasP() && m.hasQ() && m.ownQ() }, approval.DropRequest, nil},
		{8, func(m input) bool { return m.hasP() && m.hasQ() && !m.ownQ() }, approval.RejectRequest, nil},
		{9, func(m input) bool { return m.hasP() && m.Cancel }, approval.DecideCancel, nil},
		{10, func(m input) bool { return m.hasP() && m.now.Compare(m.ExpiresAt) >= 0 }, approval.DecideExpiry, nil},
		{11, input.hasP, approval.WaitDecision, func(m input) time.Time { return m.ExpiresAt }},
		{
			12, func(m input) bool {
				return m.Request == approval.Invalid && m.now.Before(m.FirstSeen.Add(2*time.Second))
			},
			approval.WaitRequest, func(m input) time.Time { return m.FirstSeen.Add(2 * time.Second) },
		},
		{13, func(m input) bool { return m.hasQ() || m.Pending == approval.Invalid }, approval.Intake, nil},
		{14, input.hasD, approval.RejectDecision, nil},
		{15, func(m input) bool { return m.Cancel }, approval.DropCancel, nil},
		{16, func(input) bool { return true }, approval.NoMove, nil},
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
	set    func(d *approval.Documents, value int)
}

func flagged(set func(d *approval.Documents, on bool)) dimension {
	return dimension{2, func(d *approval.Documents, v int) { set(d, v == 1) }}
}

func presence(field func(d *approval.Documents) *approval.Presence) dimension {
	return dimension{3, func(d *approval.Documents, v int) { *field(d) = approval.Presence(v) }}
}

// around sets a time to an hour before noon or an hour after it.
func around(field func(d *approval.Documents) *time.Time) dimension {
	return dimension{2, func(d *approval.Documents, v int) { *field(d) = noon().Add(time.Duration(2*v-1) * time.Hour) }}
}

func dimensions() []dimension {
	verdicts := []approval.Verdict{approval.Approved, approval.Denied, approval.Expired, approval.Answered, ""}
	return []dimension{
		presence(func(d *approval.Documents) *approval.Presence { return &d.Request }),
		flagged(func(d *approval.Documents, on bool) { d.RequestMatches = on }),
		flagged(func(d *approval.Documents, on bool) { d.Cancel = on }),
		presence(func(d *approval.Documents) *approval.Presence { return &d.Pending }),
		presence(func(d *approval.Documents) *approval.Presence { return &d.Decision }),
		{len(verdicts), func(d *approval.Documents, v int) { d.Verdict = verdicts[v] }},
		around(func(d *approval.Documents) *time.Time { return &d.RunBefore }),
		flagged(func(d *approval.Documents, on bool) { d.Claim = on }),
		flagged(func(d *approval.Documents, on bool) { d.Again = on }),
		flagged(func(d *approval.Documents, on bool) { d.Record = on }),
		presence(func(d *approval.Documents) *approval.Presence { return &d.Response }),
		flagged(func(d *approval.Documents, on bool) { d.Retained = on }),
		{3, func(d *approval.Documents, v int) { d.Tool = approval.ToolState(v) }},
		flagged(func(d *approval.Documents, on bool) { d.Running = on }),
		flagged(func(d *approval.Documents, on bool) { d.Idempotent = on }),
		around(func(d *approval.Documents) *time.Time { return &d.ExpiresAt }),
		{2, func(d *approval.Documents, v int) {
			d.FirstSeen = noon().Add(-time.Second - time.Duration(v)*time.Minute)
		}},
	}
}

// everyCombination calls visit with all 2,488,320 combinations and returns their
// number.
func everyCombination(dims []dimension, visit func(approval.Documents)) int {
	digits, d, n := make([]int, len(dims)), approval.Documents{}, 0
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
	lines, rows, moves := table(), map[int]int{}, map[approval.Move]int{}
	n := everyCombination(dimensions(), func(d approval.Documents) {
		m := input{d, noon()}
		want, wake := firstFit(lines, m), time.Time{}
		if want.wake != nil {
			wake = want.wake(m)
		}
		rows[want.row]++
		moves[want.move]++
		if move, at := approval.Next(d, m.now); move != want.move || !at.Equal(wake) {
			t.Fatalf("%+v\nNext says move %d at %v\nrow %d says move %d at %v", d, move, at, want.row, want.move, wake)
		}
	})
	require.Equal(t, 2_488_320, n, "the product of all dimensions")
	for row := 1; row <= 16; row++ {
		require.Positive(t, rows[row], "row %d is never the first that fits", row)
	}
	for move := approval.NoMove; move <= approval.DropCancel; move++ {
		require.Positive(t, moves[move], "move %d is never made", move)
	}
	require.Len(t, moves, int(approval.DropCancel)+1)
}

// In no combination does an action run without its preconditions.
func TestNextRunsOnlyApprovedActions(t *testing.T) {
	everyCombination(dimensions(), func(d approval.Documents) {
		switch move, _ := approval.Next(d, noon()); move {
		case approval.RunClaim:
			if d.Pending != approval.Valid || d.Decision != approval.Valid || d.Verdict != approval.Approved ||
				d.Tool != approval.ToolSame || d.Claim || d.Record || noon().After(d.RunBefore) {
				t.Fatalf("runs: %+v", d)
			}
		case approval.RunAgain:
			if !d.Claim || d.Again || d.Record || d.Running || !d.Idempotent {
				t.Fatalf("runs again: %+v", d)
			}
		case approval.Intake:
			if d.Claim || d.Record || d.Pending == approval.Valid {
				t.Fatalf("evaluated again: %+v", d)
			}
		}
	})
}

func TestNextAtTheEdges(t *testing.T) {
	now := noon()
	tick := time.Nanosecond
	pending := approval.Documents{Pending: approval.Valid, ExpiresAt: now.Add(time.Hour)}
	approved := pending
	approved.Decision, approved.Verdict, approved.Tool, approved.RunBefore = approval.Valid, approval.Approved, approval.ToolSame, now
	half := approval.Documents{Request: approval.Invalid, FirstSeen: now}

	for _, c := range []struct {
		why  string
		docs approval.Documents
		now  time.Time
		move approval.Move
		wake time.Time
	}{
		{"no documents", approval.Documents{}, now, approval.NoMove, time.Time{}},
		{"no documents, at the zero time", approval.Documents{}, time.Time{}, approval.NoMove, time.Time{}},

		{"one tick left to decide", pending, pending.ExpiresAt.Add(-tick), approval.WaitDecision, pending.ExpiresAt},
		{"at the deadline it is too late", pending, pending.ExpiresAt, approval.DecideExpiry, time.Time{}},
		{"a missing deadline has passed", approval.Documents{Pending: approval.Valid}, now, approval.DecideExpiry, time.Time{}},

		{"at run_before it is in time", approved, now, approval.RunClaim, time.Time{}},
		{"one tick later it is not", approved, now.Add(tick), approval.EndLate, time.Time{}},
		{
			"approved before the deadline, loaded after it: only run_before counts",
			func() approval.Documents { d := approved; d.ExpiresAt = now.Add(-time.Hour); return d }(),
			now, approval.RunClaim,
			time.Time{},
		},
		{
			"an approval without run_before runs nothing",
			func() approval.Documents { d := approved; d.RunBefore = time.Time{}; return d }(),
			now, approval.EndLate,
			time.Time{},
		},
		{
			"unknown tool state: nothing runs",
			func() approval.Documents { d := approved; d.Tool = 0; return d }(),
			now, approval.EndToolGone,
			time.Time{},
		},

		{"half a request, just seen", half, now, approval.WaitRequest, now.Add(approval.IncompleteGrace)},
		{"one tick of the grace period left", half, now.Add(approval.IncompleteGrace - tick), approval.WaitRequest, now.Add(approval.IncompleteGrace)},
		{"the grace period is over", half, now.Add(approval.IncompleteGrace), approval.Intake, time.Time{}},
		{"clock set back to before FirstSeen: still in the grace period", half, now.Add(-time.Hour), approval.WaitRequest, now.Add(approval.IncompleteGrace)},
		{"without FirstSeen there is no grace period", approval.Documents{Request: approval.Invalid}, now, approval.Intake, time.Time{}},
		{
			"half a request beside a host program's: row 12 comes before row 13",
			approval.Documents{Request: approval.Invalid, FirstSeen: now, Pending: approval.Invalid},
			now, approval.WaitRequest, now.Add(approval.IncompleteGrace),
		},
		{
			"half a request cannot be the pending's request",
			approval.Documents{Request: approval.Invalid, RequestMatches: true, FirstSeen: now, Pending: approval.Valid, ExpiresAt: now.Add(time.Hour)},
			now, approval.RejectRequest,
			time.Time{},
		},
	} {
		move, wake := approval.Next(c.docs, c.now)
		require.Equal(t, c.move, move, c.why)
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

func moveWords() map[approval.Move]string {
	return map[approval.Move]string{
		approval.NoMove: "rest", approval.Settle: "settle", approval.WaitRunning: "wait",
		approval.EndInterrupted: "end interrupted", approval.RunAgain: "run once more",
		approval.RejectDecision: "reject D", approval.RunClaim: "claim, run, end",
		approval.EndToolGone: "end failed", approval.EndToolChanged: "end failed",
		approval.EndLate: "end expired", approval.EndVerdict: "end with it",
		approval.DropRequest: "drop Q", approval.RejectRequest: "reject Q",
		approval.DecideCancel: "decide cancelled", approval.DecideExpiry: "decide expired",
		approval.WaitDecision: "wait for expires_at", approval.WaitRequest: "wait",
		approval.Intake: "intake", approval.DropCancel: "drop X",
	}
}
