package daemon

import (
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/permesso-dev/permesso/cmd/permesso/config"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// inherited are the sockets that systemd has opened for this process, sd_listen_fds(3). A client that connected to one
// while no daemon ran waits there, and is not refused.
type inherited struct{ all []net.Listener }

// passed reads them once: the variables that name them are not for another process.
var passed = sync.OnceValues(activation.Listeners)

func inheritedSockets() (*inherited, error) {
	all, err := passed()
	return &inherited{slices.DeleteFunc(slices.Clone(all), func(l net.Listener) bool { return l == nil })}, err
}

// take returns the socket of an address, nil if there is none.
func (i *inherited) take(at config.Listen) net.Listener {
	for n, l := range i.all {
		if l.Addr().Network() == at.Network && l.Addr().String() == at.Address {
			i.all = slices.Delete(i.all, n, n+1)
			return l
		}
	}
	return nil
}

// unused is an error if a socket was not taken: its clients would wait forever.
func (i *inherited) unused() error {
	var names []string
	for _, l := range i.all {
		names = append(names, l.Addr().String())
	}
	if len(names) == 0 {
		return nil
	}
	return console.Fail(console.ExitError, "set listen to the same address, with unix: before a path; or remove it from the socket's unit",
		"systemd listens on %s, which the configuration's listen does not name", strings.Join(names, " and "))
}
