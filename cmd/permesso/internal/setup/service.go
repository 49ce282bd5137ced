package setup

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/sandbox"
)

var (
	// SystemUnit is the unit of the system service, without its start command.
	//
	//go:embed packaging/system.service
	SystemUnit string
	//go:embed packaging/user.service
	userUnit string
	//go:embed packaging/desktop.service
	desktopUnit string
	//go:embed packaging/sysusers.conf
	systemUser string
	//go:embed packaging/socket
	socketUnit string
	//go:embed packaging/openrc
	openRC string
	//go:embed packaging/runit
	runit string
)

// UnitName is the name of the service's unit.
const UnitName = "permesso.service"

// unitMark is in the first line of every unit that install writes.
const unitMark = "Written by: permesso service install"

// Service holds the flags of install, uninstall and show.
type Service struct {
	Console      *console.Console
	System, User bool
	Root         string
	Program      string
	DryRun       bool
	Other        string // what show prints instead: socket, openrc or runit
}

// unit returns the unit's text.
func (s *Service) unit() (string, error) {
	program, err := s.programPath()
	if err != nil {
		return "", err
	}
	if s.System {
		return s.unitOfSystem(program)
	}
	return s.unitOfUser(program)
}

func (s *Service) unitOfSystem(program string) (string, error) {
	if s.Console.HomeFlag != "" && s.Console.HomeFlag != config.SystemHome {
		return "", console.Fail(console.ExitUsage, "mount or link another location there", "--home %s: the system service keeps its state in %s", s.Console.HomeFlag, config.SystemHome)
	}
	for _, hidden := range []string{"/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/"} {
		if strings.HasPrefix(program, hidden) {
			return "", console.Fail(console.ExitError, "copy it: install -m 755 "+sandbox.ShellWord(program)+" /usr/local/bin/permesso; then run that file",
				"%s is not visible to the service, which cannot access %s", program, strings.TrimSuffix(hidden, "/"))
		}
	}
	file := config.SystemFile
	if s.Console.ConfigFlag != "" {
		var err error
		if file, err = filepath.Abs(s.Console.ConfigFlag); err != nil {
			return "", err
		}
	}
	return fillUnit(SystemUnit, "@PROGRAM@", program, "@CONFIG@", file)
}

// unitOfUser writes all paths into the unit: services often lack the variables
// of a login shell.
func (s *Service) unitOfUser(program string) (string, error) { return s.fillUser(userUnit, program) }

// ShowDesktop prints the unit of the desktop notifications.
func (s *Service) ShowDesktop() error {
	program, err := s.programPath()
	if err != nil {
		return err
	}
	unit, err := s.fillUser(desktopUnit, program)
	if err != nil {
		return err
	}
	fmt.Fprint(s.Console.Out, unit)
	return nil
}

func (s *Service) fillUser(unit, program string) (string, error) {
	file, err := config.Locate(s.Console.ConfigFlag, s.Console.Env)
	if err != nil {
		return "", err
	}
	home, err := config.LocateHome(s.Console.HomeFlag, s.Console.Env)
	if err != nil {
		return "", err
	}
	option := ""
	if file != "" {
		if file, err = filepath.Abs(file); err != nil {
			return "", err
		}
		option = " --config @FILE@"
	}
	return fillUnit(strings.Replace(unit, "@CONFIG@", option, 1), "@PROGRAM@", program, "@FILE@", file, "@HOME@", home)
}

func (s *Service) programPath() (string, error) {
	program := s.Program
	if program == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find this program: %w", err)
		}
		program = self
	}
	program, err := filepath.Abs(program)
	if err != nil {
		return "", err
	}
	// systemd has other quoting rules for this word.
	if plain := sandbox.ShellWord(program); plain != program || strings.Contains(program, "%") {
		return "", console.Fail(console.ExitError, "copy it to /usr/local/bin/permesso, then run that file", "%s: systemd cannot start a program with this path", plain)
	}
	return program, nil
}

// fillUnit replaces placeholders in a unit by paths, given as pairs.
func fillUnit(unit string, pairs ...string) (string, error) {
	for i := 1; i < len(pairs); i += 2 {
		word, err := UnitWord(pairs[i])
		if err != nil {
			return "", err
		}
		pairs[i] = word
	}
	return strings.NewReplacer(pairs...).Replace(unit), nil
}

// UnitWord quotes a word for a command line in a unit, systemd.service(5).
func UnitWord(s string) (string, error) {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }) {
		return "", console.Fail(console.ExitError, "rename the file or folder", "%q: path with characters that a unit cannot have", s)
	}
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`, `$`, `$$`).Replace(s)
	if quoted == s && sandbox.ShellWord(s) == s {
		return s, nil
	}
	return `"` + quoted + `"`, nil
}

// Show prints the unit, or the file of another kind.
func (s *Service) Show(context.Context) error {
	path, text := s.unitFile(), ""
	var err error
	switch s.Other {
	case "socket":
		path, text = "/etc/systemd/system/permesso.socket", socketUnit
	case "openrc":
		path = "/etc/init.d/permesso"
		text, err = s.script(openRC)
	case "runit":
		path = "/etc/sv/permesso/run"
		text, err = s.script(runit)
	default:
		text, err = s.unit()
	}
	if err != nil {
		return err
	}
	return s.Console.PrintToCopy(map[string]string{"path": path, "unit": text}, strings.TrimSuffix(text, "\n"))
}

// script fills in the script of another init system. Its service is the system's.
func (s *Service) script(text string) (string, error) {
	program, err := s.programPath()
	if err != nil {
		return "", err
	}
	file := config.SystemFile
	if s.Console.ConfigFlag != "" {
		if file, err = filepath.Abs(s.Console.ConfigFlag); err != nil {
			return "", err
		}
	}
	if plain := sandbox.ShellWord(file); plain != file {
		return "", console.Fail(console.ExitError, "use a plain path", "%s: not a path for a script of a service", plain)
	}
	return strings.NewReplacer("@PROGRAM@", program, "@CONFIG@", file, "@FOLDER@", filepath.Dir(file)).Replace(text), nil
}

// unitFile is the unit's path, relative to --root.
func (s *Service) unitFile() string {
	if s.System {
		return "/etc/systemd/system/" + UnitName
	}
	base := s.Console.Env("XDG_CONFIG_HOME")
	if !filepath.IsAbs(base) {
		base = filepath.Join(s.Console.Env("HOME"), ".config")
	}
	return filepath.Join(base, "systemd/user", UnitName)
}

// checkOwnUnit reports whether the unit exists, and refuses one that install did not write.
func (s *Service) checkOwnUnit(path string) (bool, error) {
	b, err := os.ReadFile(filepath.Join(s.Root, path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	first, _, _ := strings.Cut(string(b), "\n")
	if !strings.Contains(first, unitMark) {
		return false, console.Fail(console.ExitError, "move it away; for local changes use a drop-in: systemctl edit permesso",
			"%s: not written by permesso service install", path)
	}
	return true, nil
}

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
		if s.Console.ConfigFlag == "" && !exists(filepath.Join(s.Root, config.SystemFile)) {
			steps = append(steps, s.write(config.SystemFile, config.Example()))
		}
		steps = append(steps, s.write(s.unitFile(), unit), s.call("systemd-sysusers", users))
	} else {
		steps = append(steps, s.write(s.unitFile(), unit))
	}
	steps = append(steps, s.call(s.systemctl("daemon-reload")...))
	next := strings.Join(s.systemctl("enable", "--now", "permesso"), " ")
	if s.System {
		next = "edit " + config.SystemFile + ", then: " + next
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
		kept = "kept: " + config.SystemFile + ", " + config.SystemHome + ", the user permesso"
	}
	return s.do(ctx, append(steps, s.call(s.systemctl("daemon-reload")...)), kept)
}

func (s *Service) write(path, text string) step {
	file := filepath.Join(s.Root, path)
	return step{"write " + file, func(context.Context) error {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		return replaceFile(file, text, 0o644, ourselves(), func() error { return nil })
	}}
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
