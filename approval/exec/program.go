package exec

import (
	"context"
	"errors"
	"io"
	"math"

	"github.com/permesso-dev/permesso/approval"
)

// Program is a program that the host itself runs: no request asks for it.
type Program struct {
	Argv   []string // Argv[0] is an absolute path
	Env    []string // NAME=value
	Dir    string   // absolute
	Stdout io.Writer
	Stderr io.Writer // written at the same time as Stdout
}

// Run runs a program until it ends or ctx does. When it returns, no process of the
// program is left. If this process is killed, the supervisor kills them.
func (s *Supervisor) Run(ctx context.Context, g Program) error {
	mark := newMark()
	p, err := s.start(spec{path: g.Argv[0], argv: g.Argv, env: append([]string{envMark + "=" + mark}, g.Env...), mark: mark, dir: g.Dir})
	if err != nil {
		return err
	}
	stdout, stderr := collect(p.stdout, g.Stdout), collect(p.stderr, g.Stderr)
	_, e := wait(ctx, approval.Handler{Timeout: math.MaxInt64}, p, nil)
	stdout.finish()
	stderr.finish()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case e.notStarted != "":
		return errors.New(e.notStarted)
	case e.lost:
		return errors.New("interrupted")
	case e.status != "":
		return errors.New(e.status)
	}
	return nil
}
