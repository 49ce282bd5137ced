package hook

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc/wholefile"
)

// calls is the folder in which the hooks of one user find each other. It holds nothing that approves: without it calls are
// only asked more often, and the ways to wait that need it deny.
type calls string

const (
	flying    = "calls"   // locked while its call is asked: the id of the request
	given     = "given"   // an end that a call has got: by whom
	handed    = "waiting" // by the agent's id of a call: the id of the request that waits for it
	keepGiven = 400 * 24 * time.Hour
	oneCall   = 30 * time.Second // in which the hooks of one call get its end
)

// sole claims a call among those that do the same at the same time. other is the request of one that is already asked, "" if
// this one is to ask: of two hooks for one call the later one with the time of the earlier one. release ends the claim.
func (k calls) sole(same string, r *approval.Request) (other string, release func()) {
	release = func() {}
	id := r.RequestID
	asks := fmt.Sprintf("%s %10d", id, r.ExpiresInSec)
	if k.makeFolder(flying) != nil {
		return "", release
	}
	f, err := os.OpenFile(k.name(flying, same), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return "", release
	}
	if wholefile.TryLock(f, true) == nil {
		if _, err := f.WriteAt([]byte(asks), 0); err == nil {
			return "", func() {
				_ = os.Remove(f.Name())
				_ = f.Close()
			}
		}
	}
	defer f.Close()
	for range 50 { // the one who has it writes its id first
		b := make([]byte, len(asks))
		if n, _ := f.ReadAt(b, 0); n == len(asks) {
			if other = string(b[:len(id)]); other != id {
				return other, release
			}
			if seconds, err := strconv.ParseInt(strings.TrimSpace(string(b[len(id):])), 10, 64); err == nil {
				r.ExpiresInSec = seconds
			}
			return "", release
		}
		time.Sleep(time.Millisecond)
	}
	return "", release
}

// errGiven says that another call has got the end of a request.
var errGiven = errors.New("was given to another call, which may have run")

// give gives the end of a request to one call, and to no other: what was approved once is not run again by an agent that
// repeats it, or is started again. to is the same for the hooks of the call, which get it within oneCall.
func (k calls) give(id, to string) error {
	if err := k.makeFolder(given); err != nil {
		return err
	}
	err := wholefile.Create(k.name(given, id), []byte(to)) // a power cut must not let it be given again
	if errors.Is(err, fs.ErrExist) {
		b, err := os.ReadFile(k.name(given, id))
		info, err2 := os.Stat(k.name(given, id))
		if err = errors.Join(err, err2); err != nil || string(b) != to || time.Since(info.ModTime()).Abs() > oneCall {
			return errors.Join(errGiven, err)
		}
		return nil
	}
	return err
}

// isGiven reports whether a call has got the end of a request.
func (k calls) isGiven(id string) bool {
	_, err := os.Lstat(k.name(given, id))
	return k != "" && err == nil
}

// note keeps the request of a call for who waits for it.
func (k calls) note(call, id string) error {
	if err := k.makeFolder(handed); err != nil {
		return err
	}
	return wholefile.Put(k.name(handed, call), []byte(id))
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

func (k calls) makeFolder(kind string) error {
	if k == "" {
		return errors.New("there is no folder for what waits: set XDG_STATE_HOME or HOME")
	}
	if err := os.MkdirAll(k.name(kind, ""), 0o700); err != nil {
		return fmt.Errorf("the folder for what waits: %w", err)
	}
	return nil
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

// taker is the same for the hooks of a call, and for no other call: without an id of its own a call is told from no other.
func (c Call) taker() string {
	if c.UseID == "" {
		return rand.Text()
	}
	return parent() + " " + c.UseID
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
