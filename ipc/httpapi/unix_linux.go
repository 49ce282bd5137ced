package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Supported reports whether this system identifies users who connect.
const Supported = true

// overflow stands for a UID that is not mapped into this namespace.
const overflow = 65534

// errNested says that the peer is in a sandbox or container.
var errNested = errors.New("peer is in a nested user namespace")

// peer is the effective UID with which a process connected, reported by the kernel,
// whichever process holds the other end now. With an errNested the UID is known, but it is
// not a user of this host.
//
// An agent in a sandbox that its user started has that user's UID, which may be an
// approver's. No process leaves a user or process namespace for the one above, so a
// process seen below has connected from below. This is visible only where /proc shows
// processes of other users, and with kernel 6.5 or newer; otherwise only the UID counts.
// Mount namespaces prove nothing: a service has one of its own.
func peer(c *net.UnixConn) (uid uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("identify peer: %w", err)
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
		err = checkNested(int(fd), int(cred.Pid))
	})
	if err = errors.Join(ctlErr, err); err != nil {
		return uid, fmt.Errorf("identify peer: %w", err)
	}
	return uid, nil
}

// checkNested returns errNested for a process in a namespace below ours. The process's
// descriptor keeps its number from being reused.
func checkNested(fd, pid int) error {
	pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process has ended: %w", err)
	}
	defer unix.Close(pidfd)
	if pid == 0 {
		return nil // this process is in a container
	}
	below, err := isBelow(pid)
	n, pollErr := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
	switch {
	case pollErr != nil || n > 0:
		return errors.New("process has ended")
	case err != nil:
		return nil //nolint:nilerr // hidden; see Hidden
	case below:
		return errNested
	}
	return nil
}

// isBelow compares what every user may read of a process with this process. Only root can
// create a nested namespace with the same map.
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

// pidDepth is the number of visible process namespaces in which a process has a number.
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

// Hidden reports whether processes of other users are hidden, so that an approver's
// sandboxed agent is treated as that approver.
func Hidden() bool {
	_, err := os.ReadFile("/proc/1/uid_map")
	return err != nil
}

// maxSocketName is the longest name that fits into a socket's address.
const maxSocketName = 107

// shortName is a name for a socket that fits into an address, valid until done.
func shortName(path string) (name string, done func(), err error) {
	if len(path) <= maxSocketName {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { _ = dir.Close() }, nil
}
