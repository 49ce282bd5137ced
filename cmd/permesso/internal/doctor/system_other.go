//go:build !linux

package doctor

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

func changedAt(info fs.FileInfo) time.Time { return info.ModTime() }

func unsynchronized() bool { return false }

type process struct {
	pid                    int
	started                time.Time
	replaced, ignoresFsync bool
}

func findDaemon(string) (process, bool) { return process{}, false }

type agent struct {
	name string
	pid  int
	as   string
}

func findAgents(int) ([]agent, error) { return nil, errors.ErrUnsupported }

// Probe works on Linux only.
func Probe(*console.Console) error { return errors.ErrUnsupported }

func (d *Doctor) checkMounts(context.Context) []Finding {
	return notice("sandboxes are checked on Linux only", "")
}
