package exec

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// The variables that every command gets from us.
const (
	envRequestID = "PERMESSO_REQUEST_ID"
	envWorkspace = "PERMESSO_WORKSPACE"
	envKey       = "PERMESSO_IDEMPOTENCY_KEY"
	envMark      = "PERMESSO_RUN"
)

const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// newMark names one run so that no other process can have the name by chance.
func newMark() (string, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("draw run mark: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}

// environment builds a command's whole environment: ours first, then the
// listed host variables, as far as they are set.
func environment(job approval.Job, mark string) ([]string, error) {
	env := []string{envRequestID + "=" + job.RequestID, envWorkspace + "=" + job.Workspace, envMark + "=" + mark}
	if job.Key != "" {
		env = append(env, envKey+"="+job.Key)
	}
	havePath := false
	for _, name := range job.Tool.Handler.Env {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
			havePath = havePath || name == "PATH"
		}
	}
	if !havePath {
		env = append(env, "PATH="+defaultPath)
	}
	for _, v := range env {
		if strings.ContainsRune(v, 0) {
			return nil, errors.New("a variable holds a NUL byte")
		}
	}
	return env, nil
}

// checkEnvName refuses what is no variable's name, and names that are ours.
func checkEnvName(name string) error {
	for i, c := range name {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return fmt.Errorf("env %q: list names only, without values", name)
		}
	}
	switch name {
	case "":
		return errors.New("env: a name is empty")
	case envRequestID, envWorkspace, envKey, envMark:
		return fmt.Errorf("env %q is set by the gate", name)
	}
	return nil
}

// lookPath finds the program in the PATH that the command itself will have,
// never in the daemon's. Relative entries are skipped: the working folder must
// not decide what runs.
func lookPath(name string, env []string) (string, error) {
	if filepath.IsAbs(name) {
		return name, executable(name)
	}
	for _, v := range env {
		list, ok := strings.CutPrefix(v, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			file := filepath.Join(dir, name)
			if filepath.IsAbs(dir) && executable(file) == nil {
				return file, nil
			}
		}
	}
	return "", fmt.Errorf("%s: no such program in PATH", name)
}

func executable(file string) error {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: no such program", file)
	case err != nil:
		return fmt.Errorf("find program: %w", err)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return fmt.Errorf("%s: not executable", file)
	}
	return nil
}
