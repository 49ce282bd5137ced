//go:build !linux

package local

import (
	"errors"
	"net"
)

func peer(*net.UnixConn) (uint32, error) {
	return 0, errors.New("look who connected: not on this system")
}

// Supported says whether this system tells who connected.
const Supported = false
