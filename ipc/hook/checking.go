package hook

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Checking names, in the environment of an agent, the folder of a check of its hook. A hook that has it records there that
// it was called, asks no gate, and denies: it can take an approval away, and never give one.
const Checking = "PERMESSO_HOOK_CHECK"

// CheckFolder is how the name of such a folder begins. A hook writes in no other.
const CheckFolder = "permesso-hook-check-"

const calledFile = "called"

// checked records a call, and is the reason why it is denied.
func (h Hook) checked(c Call) error {
	if err := recordCall(h.Check, c); err != nil {
		return fmt.Errorf("%s is set, so this call is denied, and it cannot be recorded: %w", Checking, err)
	}
	return fmt.Errorf("%s is set: the hook is only being checked, and denies each call", Checking)
}

// recordCall creates one file, once, and only in a folder that a check has made.
func recordCall(dir string, c Call) error {
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return err
	case !filepath.IsAbs(dir) || !strings.HasPrefix(filepath.Base(dir), CheckFolder) || !info.IsDir(),
		runtime.GOOS != "windows" && info.Mode().Perm() != 0o700:
		return fmt.Errorf("%s is not the folder of a check", dir)
	}
	f, err := os.OpenFile(filepath.Join(dir, calledFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil // of another hook for the call
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(oneLine(c.Event + " " + c.Tool))
	return errors.Join(err, f.Close())
}

// Recorded is the event and the tool of the first call that a hook has recorded in the folder of a check.
func Recorded(dir string) (call string, ok bool) {
	b, err := os.ReadFile(filepath.Join(dir, calledFile))
	return string(b), err == nil
}
