package audit

import (
	"maps"
	"math"
	"slices"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval"
)

// Snapshots are the states of one verification before each line. A change of
// the log cannot be seen before the line it is in, so a test may go on from
// there instead of reading everything before it again: it is the same auditor,
// in the state it had.
type Snapshots struct {
	check  *Check
	states []auditor // [i]: before number i+1
	places []place
}

func TakeSnapshots(c *Check) (*Snapshots, error) {
	s := &Snapshots{check: c}
	a, err := c.begin()
	if err != nil {
		return nil, err
	}
	keep := func(at place) {
		s.states, s.places = append(s.states, a.clone(c)), append(s.places, at)
	}
	keep(place{segment: 1, seq: 1})
	w := &walk{fs: a.FS, dir: a.Dir, left: a.left}
	err = w.lines(a.all, s.places[0], math.MaxInt64, func(line []byte, e approval.Entry, next place) error {
		err := a.line(line, e, next)
		keep(next)
		return err
	})
	if err != nil {
		return nil, err
	}
	_, err = a.end()
	return s, err
}

func (a *auditor) clone(c *Check) auditor {
	b := *a
	b.Check = c
	b.tree.edge = slices.Clone(a.tree.edge)
	b.repeated, b.twice, b.missing = maps.Clone(a.repeated), maps.Clone(a.twice), maps.Clone(a.missing)
	b.rep.Notes = slices.Clone(a.rep.Notes)
	return b
}

// Resume verifies the log in fsys from before a line on, counted from 0.
func (s *Snapshots) Resume(line int, fsys afero.Fs) (*Report, error) {
	c := *s.check
	c.FS = fsys
	a := s.states[line].clone(&c)
	var err error
	if a.all, err = segments(fsys, c.Dir); err != nil {
		return nil, err
	}
	if err := a.run(s.places[line]); err != nil {
		return nil, err
	}
	return a.end()
}
