package setup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// packagedUnit is the unit's path in a distribution package.
const packagedUnit = "/usr/lib/systemd/system/" + UnitName

// step is one action with its description.
type step struct {
	Line string `json:"do"`
	run  func(context.Context) error
}

// Install writes the unit. It does not start it, because the user first edits
// the configuration.
func (s *Service) Install(ctx context.Context) error {
	unit, err := s.unit()
	if err != nil {
		return err
	}
	if _, err := s.checkOwnUnit(s.unitFile()); err != nil {
		return err
	}
	var steps []step
	if s.System {
		if _, err := os.Stat(filepath.Join(s.Root, packagedUnit)); err == nil {
			return console.Fail(console.ExitError, "systemctl enable --now permesso; for local changes use a drop-in: systemctl edit permesso",
				"%s: already installed by a package", packagedUnit)
		}
		const users = "/etc/sysusers.d/permesso.conf"
		steps = append(steps, s.write(users, systemUser))
		if s.Console.ConfigFlag == "" && !exists(filepath.Join(s.Root, systemConfig)) {
			steps = append(steps, s.write(systemConfig, config.Example()))
		}
		steps = append(steps, s.write(s.unitFile(), unit), s.call("systemd-sysusers", users))
	} else {
		steps = append(steps, s.write(s.unitFile(), unit))
	}
	steps = append(steps, s.call(s.systemctl("daemon-reload")...))
	next := strings.Join(s.systemctl("enable", "--now", "permesso"), " ")
	if s.System {
		next = "edit " + systemConfig + ", then: " + next
	} else {
		next += "; to run it without a login: loginctl enable-linger"
	}
	return s.do(ctx, steps, "next: "+next)
}

// Uninstall removes what install wrote, but never state or configuration.
func (s *Service) Uninstall(ctx context.Context) error {
	there, err := s.checkOwnUnit(s.unitFile())
	if err != nil {
		return err
	}
	if !there {
		return s.do(ctx, nil, "nothing to remove: no "+s.unitFile())
	}
	steps := []step{
		s.call(s.systemctl("disable", "--now", UnitName)...),
		s.remove(s.unitFile()),
	}
	kept := "kept: the configuration and the state folder"
	if s.System {
		steps = append(steps, s.remove("/etc/sysusers.d/permesso.conf"))
		kept = "kept: " + systemConfig + ", " + systemHome + ", the user permesso"
	}
	return s.do(ctx, append(steps, s.call(s.systemctl("daemon-reload")...)), kept)
}

func (s *Service) write(path, text string) step {
	file := filepath.Join(s.Root, path)
	return step{"write " + file, func(context.Context) error {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		return replaceFile(file, text)
	}}
}

func replaceFile(file, text string) error {
	temp, err := writeBeside(file, text, 0o644, ourselves())
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	if err := os.Rename(temp, file); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", file, err), os.Remove(temp))
	}
	return nil
}

func (s *Service) remove(path string) step {
	file := filepath.Join(s.Root, path)
	return step{"remove " + file, func(context.Context) error {
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}}
}

func (s *Service) systemctl(args ...string) []string {
	if s.System {
		return append([]string{"systemctl"}, args...)
	}
	return append([]string{"systemctl", "--user"}, args...)
}

// call is a step that runs a systemd command, or no step without systemd.
func (s *Service) call(argv ...string) step {
	if s.Root != "" {
		return step{}
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return step{}
	}
	return step{"run " + strings.Join(argv, " "), func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(string(out)))
		}
		return nil
	}}
}

// do runs the steps, and prints the completed ones even if the next one fails.
func (s *Service) do(ctx context.Context, steps []step, end string) error {
	done := []step{}
	for _, st := range steps {
		if st.run == nil {
			continue
		}
		if !s.DryRun {
			if err := st.run(ctx); err != nil {
				return errors.Join(s.printSteps(done, ""), s.advise(err))
			}
		}
		done = append(done, st)
	}
	return s.printSteps(done, end)
}

func (s *Service) printSteps(done []step, end string) error {
	would := ""
	if s.DryRun {
		would = "would "
	}
	var lines []string
	for _, st := range done {
		lines = append(lines, would+st.Line)
	}
	if end != "" {
		lines = append(lines, end)
	}
	if len(lines) == 0 {
		return nil
	}
	return s.Console.Print(map[string]any{"steps": done, "dry_run": s.DryRun, "note": end}, strings.Join(lines, "\n"))
}

func (s *Service) advise(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		hint := "the system service needs root: use sudo, or --user"
		if !s.System {
			hint = "check the owner of that folder"
		}
		return console.Wrap(console.ExitError, err, hint)
	}
	return err
}
