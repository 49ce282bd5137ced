package local

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Supported says whether this system tells who connected.
const Supported = true

// overflow is what the kernel calls a uid that has no name in our namespace.
const overflow = 65534

// errNested says that the peer is in a sandbox or container.
var errNested = errors.New("peer is in a nested user namespace")

// peer is the uid that connected, by the kernel's word: the effective one at
// that moment, regardless of the process that holds the other end now. With an errNested the uid is
// known, but is no user of this host.
//
// An agent in a sandbox of its user's making has that user's uid, which may be
// an approver's. No process leaves a user or process namespace for the one above
// it, so that who is seen below has connected from below. They can be seen only
// where /proc shows other people's processes, and not at all by a kernel before
// 6.5: there the uid alone speaks. Mount namespaces say nothing: a service has
// one of its own.
func peer(c *net.UnixConn) (uid uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("look who connected: %w", err)
	}
	ctlErr := raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil {
			return
		}
		if uid = cred.Uid; uid == overflow {
			err = errNested
			return
		}
		err = lookBelow(int(fd), int(cred.Pid))
	})
	if err = errors.Join(ctlErr, err); err != nil {
		return uid, fmt.Errorf("look who connected: %w", err)
	}
	return uid, nil
}

// lookBelow gives errNested for a process in a namespace below ours. The
// descriptor of the process keeps its number from meaning another one.
func lookBelow(fd, pid int) error {
	pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("gone already: %w", err)
	}
	defer unix.Close(pidfd)
	if pid == 0 {
		return nil // it is we who are in a container
	}
	below, err := isBelow(pid)
	n, pollErr := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
	switch {
	case pollErr != nil || n > 0:
		return errors.New("gone already")
	case err != nil:
		return nil //nolint:nilerr // hidden from us; see Hidden
	case below:
		return errNested
	}
	return nil
}

// isBelow compares with ourselves what everybody may read of a process, in our
// own view of it. Only root could make a namespace below with our whole map.
func isBelow(pid int) (bool, error) {
	ours, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false, err
	}
	theirs, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", pid))
	if err != nil {
		return false, err
	}
	depth, err := pidDepth("self")
	if err != nil {
		return false, err
	}
	deeper, err := pidDepth(fmt.Sprint(pid))
	return !bytes.Equal(ours, theirs) || deeper > depth, err
}

// pidDepth is in how many process namespaces, as far as we see, a process has a
// number.
func pidDepth(pid string) (int, error) {
	b, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if list, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return len(strings.Fields(list)), nil
		}
	}
	return 0, errors.New("no NSpid")
}

// Hidden says whether other people's processes cannot be looked at, so that an
// approver's agent in a sandbox is taken for the approver.
func Hidden() bool {
	_, err := os.ReadFile("/proc/1/uid_map")
	return err != nil
}
