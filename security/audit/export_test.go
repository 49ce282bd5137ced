package audit

import (
	"maps"
	"math"
	"slices"

	"github.com/spf13/afero"

	"github.com/permesso-dev/permesso/approval/event"
)

// Snapshots are the states of one verification before each line. A change is not
// detectable before its line, so a test can continue from that line's state instead
// of reading the log from the beginning.
type Snapshots struct {
	check  *Check
	states []verifier // [i]: before number i+1
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
	err = w.lines(a.all, s.places[0], math.MaxInt64, func(line []byte, e event.Entry, next place) error {
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

func (a *verifier) clone(c *Check) verifier {
	b := *a
	b.Check = c
	b.tree.edge = slices.Clone(a.tree.edge)
	b.repeated, b.repeatedCount, b.missing = maps.Clone(a.repeated), maps.Clone(a.repeatedCount), a.missing.clone()
	b.uncounted = nil
	for _, r := range a.uncounted {
		again := *r
		again.leaves = maps.Clone(r.leaves)
		b.uncounted = append(b.uncounted, &again)
	}
	b.report.Notes = slices.Clone(a.report.Notes)
	return b
}

// Resume verifies the log in fsys from a line, counted from 0.
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

// Complete and Compare are the two ways of Recover.
func Complete(fsys FS, dir string, lines [][]byte) error {
	_, err := Recover(fsys, dir, nil, lines)
	return err
}

func Compare(fsys FS, dir string, line []byte) error {
	_, err := Recover(fsys, dir, line, nil)
	return err
}
