package home

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/store"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/seal"
)

// Keyring reads API keys from their files. It checks the file at every use, so
// that a revoked key stops working at once.
type Keyring struct {
	store *ipc.Store
	seal  *seal.Key
	known *knownKeys
}

// Keyring is the keyring of this home.
func (h *Home) Keyring(k *Keys) Keyring { return Keyring{h.Store, k.Seal, &knownKeys{}} }

// knownKeys caches keys with the file that they were read from. Creating or
// revoking a key writes a new file.
type knownKeys struct {
	mu   sync.Mutex
	byID map[string]knownKey
}

type knownKey struct {
	file fs.FileInfo
	key  apikey.Key
}

// maxKnown limits the cache; there are rarely more keys than this.
const maxKnown = 1000

// find returns the cached key, if its file is still the same.
func (c *knownKeys) find(id string, now fs.FileInfo) *apikey.Key {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.byID[id]
	if !ok || !os.SameFile(at.file, now) || at.file.Size() != now.Size() || !at.file.ModTime().Equal(now.ModTime()) {
		return nil
	}
	k := at.key
	k.Scopes = slices.Clone(k.Scopes)
	return &k
}

func (c *knownKeys) keep(id string, file fs.FileInfo, k *apikey.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID == nil || len(c.byID) >= maxKnown {
		c.byID = map[string]knownKey{}
	}
	copied := *k
	copied.Scopes = slices.Clone(k.Scopes)
	c.byID[id] = knownKey{file, copied}
}

// Key implements httpapi.Keys.
func (r Keyring) Key(hash string) (*apikey.Key, error) {
	k, err := r.current(apikey.ID(hash))
	if err == nil && k.Hash != hash {
		return nil, fmt.Errorf("find key: %w", fs.ErrNotExist)
	}
	return k, err
}

// current is byID with the cache. It calls Stat before it reads, so that a
// change in between is seen by the next call.
func (r Keyring) current(id string) (*apikey.Key, error) {
	file, err := r.store.Stat(approval.DocAPIKey, apikey.DocKey(id))
	if err != nil {
		return nil, err
	}
	if k := r.known.find(id, file); k != nil {
		return k, nil
	}
	k, err := r.byID(id)
	if err == nil {
		r.known.keep(id, file, k)
	}
	return k, err
}

func (r Keyring) byID(id string) (*apikey.Key, error) {
	b, err := r.store.Read(context.Background(), approval.DocAPIKey, apikey.DocKey(id))
	if err != nil {
		return nil, err
	}
	body, err := r.seal.Open(approval.DocAPIKey, apikey.DocKey(id), b)
	if err != nil {
		return nil, fmt.Errorf("open key %s: %w", id, err)
	}
	return apikey.Parse(body, id)
}

// Save writes a key to its file.
func (r Keyring) Save(k *apikey.Key, how store.Mode) error {
	if err := k.Check(); err != nil {
		return err
	}
	body, err := k.Encode()
	if err != nil {
		return err
	}
	at := apikey.DocKey(k.ID)
	return r.store.Commit(context.Background(), store.Op{Doc: approval.DocAPIKey, Key: at, Bytes: r.seal.Seal(approval.DocAPIKey, at, body), Mode: how})
}

// All returns the readable keys and counts the unreadable ones.
func (r Keyring) All() (list []*apikey.Key, damaged int, err error) {
	ids, _, err := r.store.List(context.Background(), approval.DocAPIKey, apikey.DocKey("").Workspace)
	if err != nil {
		return nil, 0, fmt.Errorf("list keys: %w", err)
	}
	for _, id := range ids {
		k, err := r.byID(id)
		if err != nil {
			damaged++
			continue
		}
		list = append(list, k)
	}
	slices.SortFunc(list, func(a, b *apikey.Key) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return list, damaged, nil
}

// Find returns the one key whose id begins with typed. A client's id is the
// beginning of its key's id.
func (r Keyring) Find(typed string) (*apikey.Key, error) {
	if strings.HasPrefix(typed, "permesso_") {
		return nil, console.Fail(console.ExitUsage, "permesso key list shows the ids", "expected the id of a key, got the key itself: never put a key on a command line")
	}
	if len(typed) < 4 {
		return nil, console.Fail(console.ExitUsage, "permesso key list shows the ids", "ID %q is too short: give at least 4 digits", typed)
	}
	list, _, err := r.All()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(k *apikey.Key) bool { return !strings.HasPrefix(k.ID, typed) })
	switch len(list) {
	case 0:
		return nil, console.Fail(console.ExitRefused, "permesso key list --all lists the keys", "no key %q", typed)
	case 1:
		return list[0], nil
	}
	return nil, console.Fail(console.ExitRefused, "give more digits", "%q matches %d keys", typed, len(list))
}

// auditKeyChanges writes one audit entry for each new and each revoked API key.
func (m *Memory) auditKeyChanges() error {
	ids, _, err := m.home.Store.List(context.Background(), approval.DocAPIKey, apikey.DocKey("").Workspace)
	if err != nil {
		return fmt.Errorf("list keys: %w", err)
	}
	var errs []error
	for _, id := range ids {
		if k, err := m.keys.current(id); err == nil { // the others are not accepted; key list counts them
			errs = append(errs, m.auditKey(k))
		}
	}
	return errors.Join(errs...)
}

func (m *Memory) auditKey(k *apikey.Key) error {
	may := strings.Join(k.Scopes, ",")
	if k.Owner != "" {
		may += " for " + k.Owner
	}
	e := event.Entry{
		Event: event.KeyCreated, Workspace: k.Workspace, ClientID: k.ClientID(), Grant: k.ID, By: k.CreatedBy, Via: "cli",
		Reason: k.Name, Detail: may,
	}
	if err := m.AuditOnce(e); err != nil || k.RevokedAt.IsZero() {
		return err
	}
	e.Event, e.By = event.KeyRevoked, k.RevokedBy
	return m.AuditOnce(e)
}
