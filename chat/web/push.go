package web

import (
	"errors"
	"net/http"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// Subscription is a browser that wants notifications without an open page: its push endpoint and its keys.
type Subscription struct {
	Endpoint, Key, Auth string
	Language            string
}

// pusher keeps the subscriptions of users.
type pusher interface {
	// Key is the public key with which browsers subscribe.
	Key() string
	// Subscribe keeps a subscription. Its error says what is wrong with it.
	Subscribe(u User, x Subscription) error
	// Unsubscribe ends the user's subscription with this endpoint. A missing one is no error.
	Unsubscribe(u User, endpoint string) error
}

// subscribe answers a script of the help page. It gets an empty response.
func (v *visit) subscribe() {
	endpoint, ok := formValue(v.r, "endpoint")
	key, hasKey := formValue(v.r, "p256dh")
	auth, hasAuth := formValue(v.r, "auth")
	v.changePush(ok && hasKey && hasAuth, func() error {
		return v.Backend.Push.Subscribe(v.se.user, Subscription{Endpoint: endpoint, Key: key, Auth: auth, Language: v.lang})
	})
}

func (v *visit) unsubscribe() {
	endpoint, ok := formValue(v.r, "endpoint")
	v.changePush(ok, func() error { return v.Backend.Push.Unsubscribe(v.se.user, endpoint) })
}

var errNoPush = errors.New("web push is not available")

func (v *visit) changePush(ok bool, change func() error) {
	err := errNoPush
	if ok && v.Backend.Push != nil {
		err = change()
	}
	if err != nil {
		v.log(err)
		v.fail(http.StatusBadRequest, v.w.BadForm)
		return
	}
	v.rw.WriteHeader(http.StatusNoContent)
}

// PushKey is the key with which this browser can subscribe, "" if it cannot.
func (p page) PushKey() string {
	if p.visit.Backend.Push == nil {
		return ""
	}
	return p.visit.Backend.Push.Key()
}

// worker serves the service worker. It is below no folder, so that its scope is all pages.
func worker(w http.ResponseWriter, r *http.Request) {
	r.SetPathValue("file", "worker.js")
	static(w, r)
}

// openPage is the page that notifications link to. It belongs to no session and says nothing of the request: its
// script leads to the request's page in the last session of this browser.
func (s *Server) openPage(w http.ResponseWriter, r *http.Request) {
	s.show(w, r, "open", "")
}

// linkedPath returns a path that a login link leads to if it is the page of a request, else "".
func linkedPath(path string) string {
	parts := strings.Split(path, "/")
	if len(parts) != 3 || parts[0] != "r" || !approval.ValidID(parts[2]) || strings.Trim(parts[1], workspaceLetters) != "" {
		return ""
	}
	return path
}

const workspaceLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
