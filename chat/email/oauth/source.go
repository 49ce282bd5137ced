package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"github.com/permesso-dev/permesso/chat/email/mailbox"
	"github.com/permesso-dev/permesso/ipc/wholefile"
)

// Source gives access tokens. It keeps the last token in a file that only its owner can
// read. Another process may replace the file at any time, so it is read for every login.
type Source struct {
	Client func() (*Client, error) // called at each refresh, so that changed settings take effect
	File   string
	Setup  string // as in Client

	mu   sync.Mutex
	kept *Token // newer than the file, which could not be written
}

// early is how long before its end an access token is refreshed.
const early = 5 * time.Minute

const (
	logIn   = "log in"
	refresh = "refresh the access token"
)

// AccessToken is a token that is valid for at least five minutes. Its error is a *mailbox.Error.
func (s *Source) AccessToken(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.load()
	if err != nil {
		return "", err
	}
	if s.kept != nil && s.kept.Expiry.After(t.Expiry) {
		t = s.kept
	}
	if t.AccessToken != "" && time.Until(t.Expiry) > early {
		return t.AccessToken, nil
	}
	client, err := s.Client()
	if err != nil {
		return "", &mailbox.Error{Stage: refresh, Account: true, Err: err}
	}
	ctx, config := client.config(ctx)
	fresh, err := config.TokenSource(ctx, &oauth2.Token{RefreshToken: t.RefreshToken}).Token() // keeps the refresh token if the server sends no new one
	if err != nil {
		return "", client.explain(refresh, err)
	}
	if s.kept = fresh; s.save(fresh) == nil {
		s.kept = nil
	}
	return fresh.AccessToken, nil
}

// Save replaces the token.
func (s *Source) Save(t *Token) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = nil
	return s.save(t)
}

// load reads the file.
func (s *Source) load() (*Token, error) {
	failed := func(err error, help string) error {
		return &mailbox.Error{Stage: logIn, Account: true, Err: err, Help: help}
	}
	info, err := os.Stat(s.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, failed(errors.New("the gate is not authorized yet"), "run "+s.Setup)
	case err != nil:
		return nil, failed(err, "")
	case info.Mode().Perm()&0o077 != 0:
		return nil, failed(fmt.Errorf("%s: readable by other users", s.File), "chmod 600 "+s.File)
	}
	data, err := os.ReadFile(s.File)
	if err != nil {
		return nil, failed(err, "")
	}
	t := &Token{}
	if err := json.Unmarshal(data, t); err != nil || t.RefreshToken == "" {
		return nil, failed(fmt.Errorf("%s holds no refresh token", s.File), "run "+s.Setup+" again")
	}
	return t, nil
}

// save writes the file. It is durable: the server may have replaced the refresh token.
func (s *Source) save(t *Token) error {
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return wholefile.Replace(s.File, data, 0o600)
}
