package telegram

import "slices"

const (
	maxIntervals      = 64     // the lowest are forgotten first
	maxIntervalLength = 10_000 // of each, the highest ids are remembered
)

// intervals is a set of ids, of those that are done: closed intervals, from low to high, that neither
// overlap nor touch.
type intervals [][2]int64

func (s intervals) has(id int64) bool {
	return slices.ContainsFunc(s, func(in [2]int64) bool { return in[0] <= id && id <= in[1] })
}

// add puts an id in, and forgets what is beyond the bounds.
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

// join makes interval i and the next one into one where they touch.
func (s *intervals) join(i int) {
	if i < 0 || i+1 >= len(*s) || (*s)[i][1]+1 != (*s)[i+1][0] {
		return
	}
	(*s)[i][1] = (*s)[i+1][1]
	*s = slices.Delete(*s, i+1, i+2)
}
