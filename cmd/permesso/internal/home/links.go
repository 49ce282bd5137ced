package home

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// maxLinks bounds the links on one path, as the kernel does.
const maxLinks = 40

// Resolve returns an absolute path with every link resolved. What does not exist stays as
// it is: a link may lead to nothing, and a file may be about to be written. Links of /proc
// are not resolved: they depend on who asks.
func Resolve(name string) (string, error) {
	if !strings.HasPrefix(name, "/") {
		return "", fmt.Errorf("resolve %q: not an absolute path", name)
	}
	done, folder, missing, links := "/", true, false, 0
	for rest := strings.Split(name, "/"); len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch {
		case part == "" || part == ".":
			continue
		case part == ".." && (missing || !folder):
			return "", fmt.Errorf("resolve %q: %q is no folder", name, done)
		case part == "..":
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, part)
		if missing {
			done = next
			continue
		}
		info, err := os.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = true
		case err != nil:
			return "", err
		case info.Mode()&fs.ModeSymlink != 0 && strings.HasPrefix(next, "/proc/"):
			return "", fmt.Errorf("resolve %q: %q leads elsewhere for another process", name, next)
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(next)
			if err != nil {
				return "", err
			}
			if links++; links > maxLinks {
				return "", fmt.Errorf("resolve %q: more than %d links", name, maxLinks)
			}
			if strings.HasPrefix(to, "/") {
				next = "/"
			} else {
				next = done
			}
			rest = append(strings.Split(to, "/"), rest...)
			folder = true // what precedes the link is one
		default:
			folder = info.IsDir()
		}
		done = next
	}
	return done, nil
}
