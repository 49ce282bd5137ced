// Package desktop shows pending requests as notifications of the desktop, over D-Bus: the Desktop Notifications
// Specification. They have words of the host alone, see chat.Notice. A click opens the request's page; nothing is
// decided here.
package desktop

import (
	"context"
	"errors"
	"fmt"
	"html"
	"slices"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// Source follows the pending requests of a daemon.
type Source interface {
	// Follow lists them once they have changed since a position, or after a while, and returns the new position.
	Follow(ctx context.Context, after int64) (list []approval.StoredPending, at int64, err error)
	Style() chat.Style
}

// Notifier shows what a daemon's approver has to decide. Set the fields, then call Run.
type Notifier struct {
	Dial func(ctx context.Context) (Source, error)
	Open func(ctx context.Context, k approval.Key) error // opens a request's page, or the list for the zero key
	Log  func(error)

	bus     *dbus.Conn
	object  dbus.BusObject
	markup  bool // the server reads markup in texts
	shown   map[approval.Key]uint32
	more    uint32 // the notification about the others; 0: none
	nothing approval.Key
}

const (
	busName      = "org.freedesktop.Notifications"
	objectPath   = "/org/freedesktop/Notifications"
	defaultClick = "default" // the action of a click on the notification itself
	maxShown     = 5         // requests with their own notification
	retryAfter   = 5 * time.Second
	callTimeout  = 5 * time.Second
	urgent       = byte(2)
)

// ErrNoBus says that there is no desktop session to show notifications in.
var ErrNoBus = errors.New("no D-Bus session")

// Run shows notifications until ctx ends, or the desktop's session does. While the daemon is down it tries again.
func (n *Notifier) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	bus, err := dbus.ConnectSessionBus()
	if err != nil {
		return ErrNoBus // the library says which program it could not start
	}
	defer bus.Close()
	n.bus, n.object, n.shown = bus, bus.Object(busName, objectPath), map[approval.Key]uint32{}
	var abilities []string
	if err := n.object.CallWithContext(ctx, busName+".GetCapabilities", 0).Store(&abilities); err != nil {
		return fmt.Errorf("ask the desktop's notification service: %w", err)
	}
	n.markup = slices.Contains(abilities, "body-markup")
	signals := make(chan *dbus.Signal, 64)
	bus.Signal(signals)
	if err := bus.AddMatchSignalContext(ctx, dbus.WithMatchInterface(busName), dbus.WithMatchObjectPath(objectPath)); err != nil {
		return fmt.Errorf("listen for clicks: %w", err)
	}
	lists := make(chan update)
	go n.follow(ctx, lists)
	for {
		select {
		case <-ctx.Done():
			n.show(ctx, update{})
			return nil
		case <-bus.Context().Done():
			return ErrNoBus
		case now := <-lists:
			n.show(ctx, now)
		case s := <-signals:
			n.handle(ctx, s)
		}
	}
}

// update is what waits now. Without a daemon nothing does.
type update struct {
	waiting []approval.StoredPending
	style   chat.Style
}

// follow passes on what waits. It reports each failure once.
func (n *Notifier) follow(ctx context.Context, lists chan<- update) {
	said := ""
	for ctx.Err() == nil {
		err := n.followOnce(ctx, lists)
		if ctx.Err() == nil && err.Error() != said {
			n.Log(err)
			said = err.Error()
		}
		select {
		case lists <- update{}:
		case <-ctx.Done():
		}
		_ = home.Sleep(ctx, retryAfter)
	}
}

// followOnce follows one daemon until it ends.
func (n *Notifier) followOnce(ctx context.Context, lists chan<- update) error {
	from, err := n.Dial(ctx)
	for at := int64(0); err == nil; {
		var list []approval.StoredPending
		if list, at, err = from.Follow(ctx, at); err != nil {
			break
		}
		select {
		case lists <- update{list, from.Style()}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// show makes the notifications match what waits: the oldest requests have their own.
func (n *Notifier) show(ctx context.Context, now update) {
	now.waiting = slices.DeleteFunc(now.waiting, func(w approval.StoredPending) bool { return !time.Now().Before(w.Pending.ExpiresAt) })
	waits := map[approval.Key]bool{}
	for _, w := range now.waiting {
		waits[w.Key()] = true
	}
	for k, id := range n.shown {
		if !waits[k] {
			n.closeNotice(ctx, id)
			delete(n.shown, k)
		}
	}
	rest := 0
	for _, w := range now.waiting {
		switch _, known := n.shown[w.Key()]; {
		case known:
		case len(n.shown) >= maxShown:
			rest++
		default:
			note := now.style.Notice(w.Pending)
			if id := n.notify(ctx, 0, note.Title, note.Text, now.style.OpenNotice()); id != 0 {
				n.shown[w.Key()] = id
			}
		}
	}
	n.showMore(ctx, rest, now.style)
}

// showMore shows how many requests have no notification of their own.
func (n *Notifier) showMore(ctx context.Context, rest int, style chat.Style) {
	switch {
	case rest > 0:
		if id := n.notify(ctx, n.more, "permesso", style.MoreNotices(rest), style.OpenNotice()); id != 0 {
			n.more = id
		}
	case n.more != 0:
		n.closeNotice(ctx, n.more)
		n.more = 0
	}
}

// notify shows or replaces a notification, and returns its ID, 0 if it failed: the next change tries again.
func (n *Notifier) notify(ctx context.Context, replaces uint32, title, text, open string) (id uint32) {
	if n.markup {
		text = html.EscapeString(text)
	}
	ctx, stop := toItsEnd(ctx)
	defer stop()
	hints := map[string]dbus.Variant{"urgency": dbus.MakeVariant(urgent), "desktop-entry": dbus.MakeVariant("permesso")}
	err := n.object.CallWithContext(ctx, busName+".Notify", 0, "permesso", replaces, "", title, text, []string{defaultClick, open}, hints, int32(0)).Store(&id)
	if err != nil {
		n.Log(fmt.Errorf("show notification: %w", err))
	}
	return id
}

// toItsEnd is the context of a call that is not cut off when ctx ends: it would leave a notification without a known ID.
func toItsEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
}

func (n *Notifier) closeNotice(ctx context.Context, id uint32) {
	ctx, stop := toItsEnd(ctx)
	defer stop()
	// A server may report one that a person has closed as an error.
	_ = n.object.CallWithContext(ctx, busName+".CloseNotification", 0, id).Err
}

// handle opens the page of a notification that was clicked. One that a person closed stays closed.
func (n *Notifier) handle(ctx context.Context, s *dbus.Signal) {
	var id uint32
	var action string
	if s == nil || s.Name != busName+".ActionInvoked" || dbus.Store(s.Body, &id, &action) != nil || action != defaultClick || id == 0 {
		return
	}
	k, own := n.nothing, id == n.more
	for key, of := range n.shown {
		if of == id {
			k, own = key, true
		}
	}
	if own { // other programs' clicks are broadcast, too
		if err := n.Open(ctx, k); err != nil {
			n.Log(fmt.Errorf("open the request: %w", err))
		}
	}
}
