package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// What net/http itself says is in the daemon's log, for each of its servers, and has nothing of a client.
func TestLibrariesLogInTheDaemonsFormat(t *testing.T) {
	t.Parallel()
	h := newRig(t, "default", "log_format = \"json\"\nlisten = \"127.0.0.1:0\"\nui = \"127.0.0.1:0\"\n[workspaces.default]\n")
	d := h.serve()
	d.awaitLog("web UI listening")
	addresses := regexp.MustCompile(`"path":"([^"]+:\d+)",[^\n]*"message":"(?:HTTP API|web UI) listening"`).FindAllStringSubmatch(d.logged(), -1)
	require.Len(t, addresses, 2)
	for _, a := range addresses {
		for _, text := range []string{"\x16\x03\x01\x02\x00\x01planted\r\n\r\n", "planted\r\n\r\n", "GET /planted?planted;planted HTTP/1.1\r\nHost: planted\r\n\r\n"} {
			speak(t, a[1], text)
		}
		d.withoutDescriptors(func() {
			for range 20 { // the daemon may have closed some files meanwhile
				c, err := net.Dial("tcp", a[1])
				require.NoError(t, err)
				defer c.Close()
			}
			d.awaitLog("http: Accept error: accept tcp " + a[1])
		})
	}
	d.stop()
	require.NotContains(t, d.logged(), "planted")
	for line := range strings.Lines(d.logged()) {
		requireValidLine(t, "json", strings.TrimSuffix(line, "\n"))
	}
}

// speak sends bytes, and waits until the server answers and closes.
func speak(t *testing.T, address, text string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, text)
	require.NoError(t, err)
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	answer, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Contains(t, string(answer), "HTTP/1.1 4")
}

// withoutDescriptors does something while the daemon can open no file.
func (d *daemonProcess) withoutDescriptors(do func()) {
	d.t.Helper()
	free := 0
	for ; ; free++ {
		if _, err := os.Lstat(filepath.Join("/proc", strconv.Itoa(d.cmd.Process.Pid), "fd", strconv.Itoa(free))); err != nil {
			break
		}
	}
	var before unix.Rlimit
	require.NoError(d.t, unix.Prlimit(d.cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &before))
	require.NoError(d.t, unix.Prlimit(d.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(free), Max: before.Max}, nil))
	defer func() { require.NoError(d.t, unix.Prlimit(d.cmd.Process.Pid, unix.RLIMIT_NOFILE, &before, nil)) }()
	do()
}
