package telegram

import "slices"

const (
	maxIntervals      = 64     // beyond it, the lowest are dropped
	maxIntervalLength = 10_000 // beyond it, the lowest IDs are dropped
)

// intervals is the set of finished IDs: closed intervals, ascending, that neither overlap nor touch.
type intervals [][2]int64

func (s intervals) has(id int64) bool {
	return slices.ContainsFunc(s, func(in [2]int64) bool { return in[0] <= id && id <= in[1] })
}

// add adds an ID, and drops what exceeds the limits.
func (s *intervals) add(id int64) {
	if s.has(id) {
		return
	}
	at := 0
	for at < len(*s) && (*s)[at][1] < id {
		at++
	}
	*s = slices.Insert(*s, at, [2]int64{id, id})
	s.join(at)
	s.join(at - 1)
	for i, in := range *s {
		(*s)[i][0] = max(in[0], in[1]-maxIntervalLength+1)
	}
	if over := len(*s) - maxIntervals; over > 0 {
		*s = slices.Delete(*s, 0, over)
	}
}

// join merges interval i with the next one if they touch.
func (s *intervals) join(i int) {
	if i < 0 || i+1 >= len(*s) || (*s)[i][1]+1 != (*s)[i+1][0] {
		return
	}
	(*s)[i][1] = (*s)[i+1][1]
	*s = slices.Delete(*s, i+1, i+2)
}
