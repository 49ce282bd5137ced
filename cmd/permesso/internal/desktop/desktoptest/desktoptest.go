// Package desktoptest simulates a desktop for tests: a bus of its own, and a notification service on it.
package desktoptest

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"
)

const (
	busName    = "org.freedesktop.Notifications"
	objectPath = "/org/freedesktop/Notifications"
)

// Notice is a notification that is shown now.
type Notice struct {
	ID      uint32
	Title   string
	Text    string
	Actions []string
	Urgency byte
	Timeout int32
}

// Desktop is a bus with a notification service.
type Desktop struct {
	Address string // of the bus

	end    func() // ends the bus
	conn   *dbus.Conn
	markup bool
	mu     sync.Mutex
	hold   chan struct{} // the answer to Notify waits until it is closed; nil: it does not wait
	last   uint32
	shown  map[uint32]Notice
}

const configuration = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:path=%s</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>`

// New starts dbus-daemon and the service. Both end with the test. With markup the service reads markup in texts.
func New(t *testing.T, markup bool) *Desktop {
	t.Helper()
	dir, err := os.MkdirTemp("", "bus-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := &Desktop{Address: "unix:path=" + filepath.Join(dir, "bus"), markup: markup, shown: map[uint32]Notice{}}
	file := filepath.Join(dir, "bus.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, configuration, filepath.Join(dir, "bus")), 0o600); err != nil {
		t.Fatal(err)
	}
	daemon := exec.CommandContext(t.Context(), "dbus-daemon", "--config-file="+file, "--nofork", "--nopidfile", "--print-address=1")
	out, err := daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatalf("%v\nhint: apt-get install dbus-daemon", err)
	}
	d.end = sync.OnceFunc(func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
	})
	t.Cleanup(d.end)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // it listens now
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	d.serve(t)
	return d
}

func (d *Desktop) serve(t *testing.T) {
	t.Helper()
	var err error
	if d.conn, err = dbus.Connect(d.Address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.conn.Close() })
	if err = d.conn.Export(service{d}, objectPath, busName); err != nil {
		t.Fatal(err)
	}
	if reply, err := d.conn.RequestName(busName, dbus.NameFlagDoNotQueue); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatal(reply, err)
	}
}

// Shown returns the notifications that are shown now, by ID.
func (d *Desktop) Shown() (all []Notice) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(d.shown)) {
		all = append(all, d.shown[id])
	}
	return all
}

// Hold keeps the answers to Notify back, until they are released.
func (d *Desktop) Hold() (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hold = make(chan struct{})
	return sync.OnceFunc(func() { close(d.hold) })
}

// Signal sends a signal about a notification, as when a person clicks on it or closes it.
func (d *Desktop) Signal(t *testing.T, name string, values ...any) {
	t.Helper()
	if err := d.conn.Emit(objectPath, busName+"."+name, values...); err != nil {
		t.Fatal(err)
	}
}

// End ends the session with its bus.
func (d *Desktop) End() { d.end() }

// service has the methods of the specification.
type service struct{ d *Desktop }

// GetCapabilities implements org.freedesktop.Notifications.
func (s service) GetCapabilities() ([]string, *dbus.Error) {
	if s.d.markup {
		return []string{"actions", "body", "body-markup"}, nil
	}
	return []string{"actions", "body"}, nil
}

// Notify implements org.freedesktop.Notifications.
func (s service) Notify(app string, replaces uint32, _, title, text string, actions []string, hints map[string]dbus.Variant, timeout int32) (uint32, *dbus.Error) {
	if app == "" || title == "" || len(actions)%2 != 0 || strings.ContainsRune(title, '\n') {
		return 0, dbus.MakeFailedError(fmt.Errorf("the notification is not valid"))
	}
	id, hold := s.d.show(replaces, title, text, actions, hints, timeout)
	if hold != nil {
		<-hold
	}
	return id, nil
}

func (d *Desktop) show(id uint32, title, text string, actions []string, hints map[string]dbus.Variant, timeout int32) (shown uint32, hold chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if id == 0 {
		d.last++
		id = d.last
	}
	urgency, _ := hints["urgency"].Value().(byte)
	d.shown[id] = Notice{id, title, text, actions, urgency, timeout}
	return id, d.hold
}

// CloseNotification implements org.freedesktop.Notifications.
func (s service) CloseNotification(id uint32) *dbus.Error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if _, ok := s.d.shown[id]; !ok {
		return dbus.MakeFailedError(fmt.Errorf("no such notification"))
	}
	delete(s.d.shown, id)
	return nil
}
