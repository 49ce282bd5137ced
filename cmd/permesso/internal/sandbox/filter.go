package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/permesso-dev/permesso/approval/hints"
	"github.com/permesso-dev/permesso/ipc"
)

// CheckFilter reports whether HOME has the filter of this program, for every user who may
// pass through HOME. If it has none, the error is fs.ErrNotExist.
func CheckFilter(l ipc.Layout) error {
	want := Filter()
	if want == nil {
		return nil
	}
	b, err := os.ReadFile(l.Seccomp())
	if err != nil {
		return err
	}
	info, err := os.Stat(l.Seccomp())
	switch {
	case err != nil:
		return err
	case !bytes.Equal(b, want):
		return fmt.Errorf("%s is not the filter of this version", l.Seccomp())
	case info.Mode().Perm() != filterMode:
		return fmt.Errorf("%s has mode %04o instead of %04o", l.Seccomp(), info.Mode().Perm(), filterMode)
	}
	return nil
}

const filterMode = 0o644

// WriteFilter writes the filter into HOME, if it is not there already. Without HOME it does
// nothing.
func WriteFilter(l ipc.Layout) error {
	home, err := os.Stat(l.Home)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	if err = CheckFilter(l); err == nil {
		return nil
	}
	writeErr := writeFilter(l, home)
	if errors.Is(writeErr, fs.ErrNotExist) { // a daemon that starts removes temporary files, once
		writeErr = writeFilter(l, home)
	}
	if writeErr != nil {
		return hints.Add(fmt.Errorf("write the sandbox's filter: %w", errors.Join(err, writeErr)),
			"the daemon writes it when it starts; or run this as the daemon's user")
	}
	return nil
}

func writeFilter(l ipc.Layout, home fs.FileInfo) error {
	f, err := os.CreateTemp(l.Home, ".tmp-")
	if err != nil {
		return err
	}
	_, err = f.Write(Filter())
	if st, ok := home.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 { // HOME stays its owner's
		err = errors.Join(err, f.Chown(int(st.Uid), int(st.Gid)))
	}
	err = errors.Join(err, f.Chmod(filterMode), f.Close()) // lost with the power, it is written again at the next start
	if err == nil {
		err = os.Rename(f.Name(), l.Seccomp())
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// Command returns the argv that runs bubblewrap with arguments and the filter in HOME.
// Bubblewrap takes the filter by a descriptor, which a shell opens.
func (s Sandbox) Command(args ...string) []string { return s.command(s.Bwrap, args...) }

func (s Sandbox) command(bwrap string, args ...string) []string {
	if Filter() == nil {
		return append([]string{bwrap}, args...)
	}
	script := `filter=$1; shift; exec "$0" --seccomp ` + filterFD + ` "$@" ` + filterFD + `<"$filter"`
	return append([]string{"/bin/sh", "-c", script, bwrap, s.layout.Seccomp()}, args...)
}

// filterFD is the descriptor of the filter. Some shells know only those of one digit.
const filterFD = "9"

// bwrapLine returns the arguments of bubblewrap for a shell, with a redirection for the filter.
func bwrapLine(l ipc.Layout, args []string) string {
	line := ShellWords(args)
	if Filter() != nil {
		line += " --seccomp " + filterFD + " " + filterFD + "<" + ShellWord(l.Seccomp())
	}
	return line
}
