package local

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// overflow is what the kernel calls a uid that has no name in our namespace.
const overflow = 65534

// peer is the uid that connected, by the kernel's word: the effective one at
// that moment, whoever holds the other end now.
func peer(c *net.UnixConn) (uint32, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("look who connected: %w", err)
	}
	var cred *unix.Ucred
	if err2 := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err2 != nil {
		err = err2
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("look who connected: %w", err)
	case cred.Uid == overflow:
		return 0, errors.New("look who connected: a uid of another user namespace")
	}
	return cred.Uid, nil
}

// Supported says whether this system tells who connected.
const Supported = true
