package daemon

import (
	"context"
	"errors"
	"fmt"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// Sweep processes due work once. The daemon must be stopped.
func Sweep(a *console.Console) error {
	h, err := home.Load(a)
	if err != nil {
		return err
	}
	s := &server{Home: h, app: a, rounds: map[string]int{}, changes: make(chan approval.Key, 1)}
	s.log, s.logWriter = NewLog(a.Err, h.Config.LogLevel, h.Config.LogFormat)
	if err := s.open(context.Background()); err != nil {
		return err
	}
	s.gate.Inline = true
	moved := 0
	var stepErr error
	for _, k := range s.pending {
		if _, err := s.gate.Step(context.Background(), k); err != nil {
			stepErr = errors.Join(stepErr, fmt.Errorf("%s: %w", k, err))
			continue
		}
		moved++
	}
	problem, degraded := s.gate.Degraded()
	if err := errors.Join(stepErr, s.close()); err != nil {
		return err
	}
	if degraded {
		return console.Fail(console.ExitError, problem.Hint, "some requests are not settled: %s", problem.Reason)
	}
	return a.Print(map[string]int{"looked_at": moved}, fmt.Sprintf("processed %d requests", moved))
}
