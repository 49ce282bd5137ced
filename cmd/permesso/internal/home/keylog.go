package home

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/apikey"
	"github.com/permesso-dev/permesso/approval/event"
)

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
	write := func(e event.Kind, by string) error {
		if m.knows(e, k.ID) {
			return nil
		}
		return m.Audit(event.Entry{
			Event: e, Workspace: k.Workspace, ClientID: k.ClientID(), Grant: k.ID, By: by, Via: "cli",
			Reason: k.Name, Detail: may,
		})
	}
	if err := write(event.KeyCreated, k.CreatedBy); err != nil || k.RevokedAt.IsZero() {
		return err
	}
	return write(event.KeyRevoked, k.RevokedBy)
}
