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

// The variables that the daemon sets for every command.
const (
	envRequestID = "PERMESSO_REQUEST_ID"
	envWorkspace = "PERMESSO_WORKSPACE"
	envKey       = "PERMESSO_IDEMPOTENCY_KEY"
	envMark      = "PERMESSO_RUN"
)

const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// newMark returns a random name for one run.
func newMark() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: see crypto/rand
	return hex.EncodeToString(b[:])
}

// environment builds a command's complete environment: the daemon's variables, then
// the listed host variables that are set.
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
			return nil, errors.New("environment variable contains a NUL byte")
		}
	}
	return env, nil
}

// checkEnvName refuses invalid names and the names that the daemon sets.
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

// lookPath finds the program in the command's own PATH, never in the daemon's. It
// skips relative entries: the working folder must not determine what runs.
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
