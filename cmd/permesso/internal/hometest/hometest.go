// Package hometest is test support: it fills a home with documents.
package hometest

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
)

// PlantSettled writes a record, a response and a marker with this time.
func PlantSettled(h *home.Home, k approval.Key, ended time.Time) error {
	keys, err := h.LoadKeys()
	if err != nil {
		return err
	}
	resp, err := (&approval.Response{
		Version: approval.Version, RequestID: k.ID, RequestSHA256: approval.Digest(nil), Status: approval.StatusDenied, RespondedAt: ended.UTC(),
	}).Encode()
	if err != nil {
		return err
	}
	body, err := (&approval.Record{
		Version: approval.Version, RequestID: k.ID, Workspace: k.Workspace, Status: approval.StatusDenied, RequestSHA256: approval.Digest(nil),
		RequestedAt: ended.Add(-time.Minute).UTC(), EndedAt: ended.UTC(), Response: resp,
	}).Encode()
	if err != nil {
		return err
	}
	records, responses := h.Layout.Records(k.Workspace), h.Layout.Responses(k.Workspace)
	for _, f := range []struct {
		name    string
		content []byte
	}{ // the record first: a running daemon takes a response without one for a forgery
		{filepath.Join(records, k.ID+".json"), keys.Seal.Seal(approval.DocRecord, k, body)},
		{filepath.Join(records, k.ID+".redeemed"), []byte("{}")},
		{filepath.Join(responses, k.ID+".json"), resp},
	} {
		if err := errors.Join(os.WriteFile(f.name, f.content, 0o600), os.Chtimes(f.name, ended, ended)); err != nil {
			return err
		}
	}
	return nil
}
