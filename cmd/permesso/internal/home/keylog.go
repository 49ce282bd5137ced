package home

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/permesso-dev/permesso/approval"
)

// auditKeyChanges writes one audit entry for each new and each revoked API key. The
// commands that change keys do not hold the log.
func (m *Memory) auditKeyChanges(add func(approval.Entry) error) error {
	ids, _, err := m.home.Store.List(context.Background(), approval.DocAPIKey, approval.APIKeyKey("").Workspace)
	if err != nil {
		return fmt.Errorf("list keys: %w", err)
	}
	ring := m.home.Keyring(m.Keys)
	var errs []error
	for _, id := range ids {
		info, err := m.home.FS.Stat(filepath.Join(m.home.Layout.APIKeys(), id+".json"))
		now := stamp{}
		if err == nil {
			now = stamp{info.Size(), info.ModTime()}
		}
		if err != nil || m.keysAt[id] == now {
			continue
		}
		k, err := ring.byID(id)
		if err != nil { // not accepted; key list counts it
			m.keysAt[id] = now
			continue
		}
		if err := m.auditKey(k, add); err != nil {
			errs = append(errs, err)
			continue
		}
		m.keysAt[id] = now
	}
	return errors.Join(errs...)
}

func (m *Memory) auditKey(k *approval.APIKey, add func(approval.Entry) error) error {
	may := strings.Join(k.Scopes, ",")
	if k.Owner != "" {
		may += " for " + k.Owner
	}
	write := func(e approval.Event, by string) error {
		if m.knows(e, k.ID) {
			return nil
		}
		return add(approval.Entry{
			Event: e, Workspace: k.Workspace, ClientID: k.ClientID(), Grant: k.ID, By: by, Via: "cli",
			Reason: k.Name, Detail: may,
		})
	}
	if err := write(approval.EventKeyCreated, k.CreatedBy); err != nil || k.RevokedAt.IsZero() {
		return err
	}
	return write(approval.EventKeyRevoked, k.RevokedBy)
}
