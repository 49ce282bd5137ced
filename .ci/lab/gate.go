package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/permesso-dev/permesso/ipc/hook/model"
)

// count is how often calls ran in the times of a trial.
type count struct{ of, ran, unallowed int }

func (c count) String() string {
	s := fmt.Sprintf("ran %d of %d", c.ran, c.of)
	if c.unallowed > 0 {
		s += fmt.Sprintf(", **%d not allowed**", c.unallowed)
	}
	return s
}

// wrong says why a trial did not end as it has to.
func (t trial) wrong(a agent, c count) error {
	open := t.open != nil && t.open(a)
	if !open && (c.unallowed > 0 || !t.any && c.ran != t.ran*max(t.times, 1)) {
		return fmt.Errorf("%s, %s: %s", t.name, a.column, c)
	}
	return nil
}

// gate runs the trials, and reports of each how often the call ran.
func (l *lab) gate(part, column string) (map[string]map[string]string, error) {
	if err := build("-o", l.program(false), "./cmd/permesso"); err != nil {
		return nil, err
	}
	if err := l.buildShifted(l.program(true)); err != nil {
		return nil, err
	}
	cells := map[string]map[string]string{}
	var wrong []error
	if strings.Contains(editing.column, column) {
		wrong = append(wrong, l.acp(part, cells))
	}
	var mu sync.Mutex
	var jobs []func()
	for _, t := range trials {
		if !strings.Contains(t.name, part) {
			continue
		}
		cells[t.name] = map[string]string{}
		for _, a := range tried {
			if _, err := l.version(a.pkg); err != nil || t.columns != nil && !t.columns(a) || !strings.Contains(a.column, column) {
				continue
			}
			times, all := max(t.times, 1), count{}
			left := times
			for range times {
				jobs = append(jobs, func() {
					began := time.Now()
					c, err := l.try(a, t)
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						wrong = append(wrong, fmt.Errorf("%s, %s: %w", t.name, a.column, err))
					}
					all = count{all.of + c.of, all.ran + c.ran, all.unallowed + c.unallowed}
					if left--; left > 0 {
						return
					}
					wrong = append(wrong, t.wrong(a, all))
					cells[t.name][a.column] = all.String()
					fmt.Printf("lab: %-22s %-22s %s (%.0f s)\n", all, a.column, t.name, time.Since(began).Seconds())
				})
			}
		}
	}
	parallel(4, jobs) // most of them wait
	return cells, errors.Join(wrong...)
}

// program is ours, or the one whose clock can be shifted.
func (l *lab) program(clock bool) string {
	if clock {
		return filepath.Join(l.folder, "clock", "permesso")
	}
	return filepath.Join(l.folder, "permesso")
}

// setting is a place for one run of an agent.
func (l *lab) setting(a agent, clock bool) (*setting, error) {
	dir, err := os.MkdirTemp("", "lab-")
	if err != nil {
		return nil, err
	}
	return &setting{
		lab: l, agent: a, program: l.program(clock), clock: clock, allowed: map[string]int{},
		place: place{dir: dir, home: filepath.Join(dir, "home"), project: filepath.Join(dir, "project")},
	}, errors.Join(os.MkdirAll(filepath.Join(dir, "effects"), 0o755), os.MkdirAll(filepath.Join(dir, "project"), 0o755))
}

func (w *setting) close() {
	if w.daemon != nil {
		_ = w.kill()
	}
	w.inside.close()
	_ = os.RemoveAll(w.dir)
}

// try runs an agent once.
func (l *lab) try(a agent, t trial) (c count, err error) {
	w, err := l.setting(a, t.clock)
	if err != nil {
		return c, err
	}
	defer w.close()
	c.of = max(t.calls, 1)
	var calls []model.Call
	for i := range c.of {
		calls = append(calls, a.shell(w.makes(strconv.Itoa(i))))
	}
	w.model = &model.Server{Turns: [][]model.Call{calls}}
	url, stop, err := serveModel(w.model)
	if err != nil {
		return c, err
	}
	defer stop()
	w.url = url
	if err := w.prepare(t); err != nil {
		return c, err
	}
	if !t.down {
		if err := w.serve(); err != nil {
			return c, err
		}
	}
	do := t.do
	if do == nil {
		do = alone
	}
	err = do(w)
	c, countErr := w.counted(c)
	if c.ran != t.ran && !t.any {
		countErr = errors.Join(countErr, w.why(t))
	}
	return c, errors.Join(err, countErr)
}

// why says what a reader needs if another number of calls ran than has to: what was allowed, and what the agent was told of
// calls that the approver did not deny. Where calls may run it is no error.
func (w *setting) why(t trial) error {
	if t.open != nil && t.open(w.agent) {
		return nil
	}
	var told []string
	for _, result := range w.model.Results() {
		if strings.Contains(result, "permesso") && !strings.Contains(result, denial) {
			told = append(told, result)
		}
	}
	return fmt.Errorf("allowed were %v; the agent was told: %q", w.allowed, told)
}

// counted adds what ran, and what of it no one allowed.
func (w *setting) counted(c count) (count, error) {
	made, err := w.effects()
	for effect, n := range made {
		c.ran += n
		c.unallowed += max(0, n-w.allowed[effect])
	}
	return c, err
}
