package hook

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// calls is the folder in which the hooks of one user find each other. It holds nothing that approves: without it calls are
// only asked more often, and the ways to wait that need it deny.
type calls string

const (
	flying    = "calls"   // locked while its call is asked: the id of the request
	given     = "given"   // an end that a call has got: by whom
	handed    = "waiting" // by the agent's id of a call: the id of the request that waits for it
	keepGiven = 400 * 24 * time.Hour
)

// sole claims a call among those that do the same at the same time. other is the request of one that is already asked, "" if
// this one is to ask. release ends the claim.
func (k calls) sole(same, id string) (other string, release func()) {
	release = func() {}
	f, err := k.open(flying, same, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return "", release
	}
	locked, err := lock(f)
	if err == nil && locked {
		if _, err := f.WriteAt([]byte(id), 0); err == nil {
			return "", func() {
				_ = os.Remove(f.Name())
				_ = f.Close()
			}
		}
	}
	defer f.Close()
	for range 50 { // the one who has it writes its id first
		b := make([]byte, len(id))
		if n, _ := f.ReadAt(b, 0); n == len(id) {
			if string(b) == id { // another hook for this very call
				return "", release
			}
			return string(b), release
		}
		time.Sleep(time.Millisecond)
	}
	return "", release
}

// errGiven says that another call has got the end of a request.
var errGiven = errors.New("was given to an earlier call, which may have run")

// give gives the end of a request to the calls of one process of an agent, and to no other: what was approved once is not
// run again by an agent that is started again.
func (k calls) give(id, to string) error {
	f, err := k.open(given, id, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if errors.Is(err, fs.ErrExist) {
		if b, err := os.ReadFile(k.name(given, id)); err != nil || string(b) != to {
			return errors.Join(errGiven, err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(to)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(f.Name())) // a power cut must not let it be given again
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// isGiven reports whether a call has got the end of a request.
func (k calls) isGiven(id string) bool {
	_, err := os.Lstat(k.name(given, id))
	return err == nil
}

// note keeps the request of a call for who waits for it.
func (k calls) note(call, id string) error {
	f, err := k.open(handed, call, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.WriteString(id)
	return errors.Join(err, f.Close())
}

// noted is what note has kept, "" if nothing.
func (k calls) noted(call string) string {
	b, err := os.ReadFile(k.name(handed, call))
	if err != nil {
		return ""
	}
	return string(b)
}

func (k calls) name(kind, name string) string { return filepath.Join(string(k), kind, name) }

func (k calls) open(kind, name string, flag int) (*os.File, error) {
	if k == "" {
		return nil, errors.New("there is no folder for what waits: set XDG_STATE_HOME or HOME")
	}
	dir := filepath.Join(string(k), kind)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, name), flag, 0o600)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("the folder for what waits: %w", err)
	}
	return f, err
}

// prune removes what is older than any response, which is kept for a year at most.
func (k calls) prune(now time.Time) {
	for _, kind := range []string{given, handed} {
		entries, err := os.ReadDir(filepath.Join(string(k), kind))
		if err != nil {
			continue
		}
		for _, e := range entries {
			if info, err := e.Info(); err == nil && now.Sub(info.ModTime()) > keepGiven {
				_ = os.Remove(k.name(kind, e.Name()))
			}
		}
	}
}

// parent names the process of the agent, not only by its number, which another one may have after a restart.
func parent() string {
	pid := strconv.Itoa(os.Getppid())
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	stat, _ := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	_, after, _ := strings.Cut(string(stat), ") ") // behind the program's name
	started := ""
	if fields := strings.Fields(after); len(fields) > 19 {
		started = fields[19]
	}
	return strings.TrimSpace(string(boot)) + " " + pid + " " + started
}
