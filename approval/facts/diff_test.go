package facts_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/permesso-dev/permesso/approval/facts"
)

// applied rebuilds both texts from the edits.
func applied(edits []facts.Edit, a, b []string) (old, now []string, kept int) {
	old, now = []string{}, []string{}
	for _, e := range edits {
		switch e.Sign {
		case '-':
			old = append(old, a[e.At])
		case '+':
			now = append(now, b[e.At])
		default:
			old, now = append(old, b[e.At]), append(now, b[e.At])
			kept++
		}
	}
	return old, now, kept
}

// longest is the length of a longest common subsequence.
func longest(a, b []string) int {
	row := make([]int, len(b)+1)
	for _, x := range a {
		corner := 0
		for j, y := range b {
			above := row[j+1]
			if x == y {
				row[j+1] = corner + 1
			} else {
				row[j+1] = max(above, row[j])
			}
			corner = above
		}
	}
	return row[len(b)]
}

func TestEditsAreShortest(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		line := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		a, b := rapid.SliceOfN(line, 0, 16).Draw(rt, "a"), rapid.SliceOfN(line, 0, 16).Draw(rt, "b")
		old, now, kept := applied(facts.Edits(a, b), a, b)
		require.Equal(rt, append([]string{}, a...), old)
		require.Equal(rt, append([]string{}, b...), now)
		require.Equal(rt, longest(a, b), kept)
	})
}

func TestEditsOfLargeTextsAreBounded(t *testing.T) {
	var a, b []string
	for i := range 100_000 {
		a, b = append(a, strconv.Itoa(i%7)), append(b, strconv.Itoa(i%5))
	}
	start := time.Now()
	old, now, _ := applied(facts.Edits(a, b), a, b)
	require.Equal(t, a, old)
	require.Equal(t, b, now)
	require.Less(t, time.Since(start), 5*hostileLimit)
}
