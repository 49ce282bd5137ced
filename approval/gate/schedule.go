package gate

import (
	"container/heap"
	"time"

	"github.com/permesso-dev/permesso/approval"
)

// schedule holds when keys are due, in the order of the wall clock.
type schedule struct {
	byKey map[approval.Key]*dueKey
	order dueOrder
	taken time.Time // the time of the last take
}

// dueKey is a key and when it is due.
type dueKey struct {
	key   approval.Key
	at    time.Time
	index int // in the order
}

func newSchedule() schedule { return schedule{byKey: map[approval.Key]*dueKey{}} }

func (s *schedule) set(k approval.Key, at time.Time) {
	at = at.Round(0) // one clock: a mixed order would not be an order
	if d := s.byKey[k]; d != nil {
		d.at = at
		heap.Fix(&s.order, d.index)
		return
	}
	d := &dueKey{key: k, at: at}
	s.byKey[k] = d
	heap.Push(&s.order, d)
}

func (s *schedule) remove(k approval.Key) {
	if d := s.byKey[k]; d != nil {
		heap.Remove(&s.order, d.index)
		delete(s.byKey, k)
	}
}

// next returns when the first key is due; zero: none is scheduled.
func (s *schedule) next() time.Time {
	if len(s.order) == 0 {
		return time.Time{}
	}
	return s.order[0].at
}

// take returns and forgets the keys that are due. After the clock was set back that is
// every key: a retry a second from then would wait for the clock to catch up.
func (s *schedule) take(now time.Time) (keys []approval.Key) {
	now = now.Round(0)
	back := now.Before(s.taken.Add(-time.Second))
	s.taken = now
	for len(s.order) > 0 && (back || !s.order[0].at.After(now)) {
		k := s.order[0].key
		keys = append(keys, k)
		s.remove(k)
	}
	return keys
}

// dueOrder is a heap of keys, the first due at the top.
type dueOrder []*dueKey

func (o dueOrder) Len() int           { return len(o) }
func (o dueOrder) Less(i, j int) bool { return o[i].at.Before(o[j].at) }

func (o dueOrder) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].index, o[j].index = i, j
}

// Push implements heap.Interface.
func (o *dueOrder) Push(x any) {
	d := x.(*dueKey)
	d.index = len(*o)
	*o = append(*o, d)
}

// Pop implements heap.Interface.
func (o *dueOrder) Pop() any {
	last := len(*o) - 1
	d := (*o)[last]
	(*o)[last] = nil
	*o = (*o)[:last]
	return d
}
