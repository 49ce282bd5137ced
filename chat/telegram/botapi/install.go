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

// Install returns a folder with the npm packages of lock, which holds package.json and package-lock.json. It
// installs them into the user's cache, named after the lock's checksum, unless they are there. The folder is
// renamed when complete, so that concurrent tests see all of it or nothing.
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

// npmCI installs the locked packages without running their scripts.
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
