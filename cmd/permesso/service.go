package main

import (
	_ "embed" // the units
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
)

var (
	//go:embed packaging/system.service
	systemUnit string
	//go:embed packaging/user.service
	userUnit string
	//go:embed packaging/sysusers.conf
	systemUser string
)

// The places of the system service. Its unit names the state folder once more.
const (
	systemConfig = "/etc/permesso/permesso.toml"
	systemHome   = "/var/lib/permesso"
	unitName     = "permesso.service"
)

// unitMark is in the first line of every unit that we wrote.
const unitMark = "Written by: permesso service install"

// service is what the flags of install, uninstall and show say.
type service struct {
	app          *app
	system, user bool
	root         string
	program      string
	dryRun       bool
}

func (a *app) serviceCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "service", Short: "Run the gate as a systemd service",
		Long: "Run the gate as a systemd service: of the whole system, under a user of its own (--system, what root gets),\n" +
			"or of one user (--user, what everybody else gets).\n\n" +
			"Handlers run inside the service's sandbox; the unit says which line to loosen for one that needs more.",
		RunE: func(*cobra.Command, []string) error {
			return fail(codeUsage, "permesso service install, permesso service uninstall, or permesso service show", "service: say what to do with it")
		},
	}
	s := &service{app: a}
	install := s.command("install", "Write the unit, and what it needs", s.install)
	uninstall := s.command("uninstall", "Stop the service and remove its unit; state and configuration stay", s.uninstall)
	for _, sub := range []*cobra.Command{install, uninstall} {
		sub.Flags().StringVar(&s.root, "root", "", "work in the tree below this `folder`, and leave the running system alone")
		sub.Flags().BoolVar(&s.dryRun, "dry-run", false, "only say what would be done")
		_ = sub.MarkFlagDirname("root")
	}
	show := s.command("show", "Print the unit", s.show)
	for _, sub := range []*cobra.Command{install, show} {
		sub.Flags().StringVar(&s.program, "program", "", "the permesso `file` that the unit starts (default this one)")
		_ = sub.MarkFlagFilename("program")
	}
	c.AddCommand(install, uninstall, show)
	return c
}

func (s *service) command(name, short string, run func() error) *cobra.Command {
	c := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			s.system = !s.user && (s.system || os.Getuid() == 0)
			return run()
		},
	}
	c.Flags().BoolVar(&s.system, "system", false, "the service of the whole system, with a user of its own")
	c.Flags().BoolVar(&s.user, "user", false, "the service of this user")
	c.MarkFlagsMutuallyExclusive("system", "user")
	return c
}

// unit is the unit's text for these flags.
func (s *service) unit() (string, error) {
	program, err := s.programPath()
	if err != nil {
		return "", err
	}
	if s.system {
		return s.unitOfSystem(program)
	}
	return s.unitOfUser(program)
}

func (s *service) unitOfSystem(program string) (string, error) {
	if s.app.homeFlag != "" && s.app.homeFlag != systemHome {
		return "", fail(codeUsage, "mount or link the place you want there", "--home: the system service keeps its state in %s", systemHome)
	}
	for _, hidden := range []string{"/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/"} {
		if strings.HasPrefix(program, hidden) {
			return "", fail(codeError, "copy it: install -m 755 "+shellWord(program)+" /usr/local/bin/permesso; and run that one",
				"%s: the service would not see it, %s is hidden from it", program, strings.TrimSuffix(hidden, "/"))
		}
	}
	file := systemConfig
	if s.app.configFlag != "" {
		var err error
		if file, err = filepath.Abs(s.app.configFlag); err != nil {
			return "", err
		}
	}
	return fill(systemUnit, "@PROGRAM@", program, "@CONFIG@", file)
}

// unitOfUser names every place: the variables of a login shell, which this
// command sees, are often unknown to services.
func (s *service) unitOfUser(program string) (string, error) {
	file, err := config.Locate(s.app.configFlag, s.app.Env)
	if err != nil {
		return "", err
	}
	home, err := config.LocateHome(s.app.homeFlag, s.app.Env)
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
	return fill(strings.Replace(userUnit, "@CONFIG@", option, 1), "@PROGRAM@", program, "@FILE@", file, "@HOME@", home)
}

func (s *service) programPath() (string, error) {
	program := s.program
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
	// systemd reads this one word by other rules than the others.
	if plain := shellWord(program); plain != program || strings.Contains(program, "%") {
		return "", fail(codeError, "copy it to /usr/local/bin/permesso, and run that one", "%s: not a path that systemd takes as it is", plain)
	}
	return program, nil
}

// fill puts paths into a unit, given as pairs.
func fill(unit string, pairs ...string) (string, error) {
	for i := 1; i < len(pairs); i += 2 {
		word, err := unitWord(pairs[i])
		if err != nil {
			return "", err
		}
		pairs[i] = word
	}
	return strings.NewReplacer(pairs...).Replace(unit), nil
}

// unitWord quotes for a command line in a unit, systemd.service(5).
func unitWord(s string) (string, error) {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }) {
		return "", fail(codeError, "rename it", "%q: not a path for a unit", s)
	}
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`, `$`, `$$`).Replace(s)
	if quoted == s && shellWord(s) == s {
		return s, nil
	}
	return `"` + quoted + `"`, nil
}

func (s *service) show() error {
	unit, err := s.unit()
	if err != nil {
		return err
	}
	return s.app.print(map[string]string{"path": s.unitFile(), "unit": unit}, strings.TrimSuffix(unit, "\n"))
}

// unitFile is where the unit lies, seen from inside --root.
func (s *service) unitFile() string {
	if s.system {
		return "/etc/systemd/system/" + unitName
	}
	base := s.app.Env("XDG_CONFIG_HOME")
	if !filepath.IsAbs(base) {
		base = filepath.Join(s.app.Env("HOME"), ".config")
	}
	return filepath.Join(base, "systemd/user", unitName)
}

// ours says whether the file is there, and refuses one that we did not write.
func (s *service) ours(path string) (bool, error) {
	b, err := os.ReadFile(filepath.Join(s.root, path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	first, _, _ := strings.Cut(string(b), "\n")
	if !strings.Contains(first, unitMark) {
		return false, fail(codeError, "move it away first; changes of your own belong into a drop-in: systemctl edit permesso",
			"%s: somebody else wrote this unit", path)
	}
	return true, nil
}
