package botapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const installTimeout = 3 * time.Minute

// Install returns the folder with the npm packages of a lock, which is a package.json with its
// package-lock.json. They go into the user's cache, under the name and the lock's checksum, unless they are
// there already. The folder is made under another name and renamed, so that tests which run at once do not
// see half of it.
func Install(ctx context.Context, name string, lock fs.FS) (dir string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	files, sum := map[string][]byte{}, sha256.New()
	for _, file := range []string{"package.json", "package-lock.json"} {
		if files[file], err = fs.ReadFile(lock, file); err != nil {
			return "", err
		}
		sum.Write(files[file])
	}
	parent := filepath.Join(cache, "permesso")
	dir = filepath.Join(parent, name+"-"+hex.EncodeToString(sum.Sum(nil))[:12])
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", err
	}
	temp, err := os.MkdirTemp(parent, ".installing-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(temp, name), b, 0o600); err != nil {
			return "", err
		}
	}
	if err := npmCI(ctx, temp); err != nil {
		return "", err
	}
	if err := os.Rename(temp, dir); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return dir, nil
}

// npmCI installs what the lock says, without running anything of it.
func npmCI(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=1")
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}
