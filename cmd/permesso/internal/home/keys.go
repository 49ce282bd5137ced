package home

import (
	"github.com/permesso-dev/permesso/security/receipt"
	"github.com/permesso-dev/permesso/security/seal"
)

// Keys are the secret keys of one home.
type Keys struct {
	Seal   *seal.Key
	Signer *receipt.Signer
}

// LoadKeys reads the key of the seals.
func (h *Home) LoadKeys() (*Keys, error) {
	s, err := seal.Load(h.FS, h.Layout.Keys())
	if err != nil {
		return nil, err
	}
	return &Keys{Seal: s}, nil
}

// MakeKeys creates missing keys; only the daemon and init call it.
func (h *Home) MakeKeys() (*Keys, error) {
	s, err := seal.LoadOrCreate(h.FS, h.Layout.Keys())
	if err != nil {
		return nil, err
	}
	signer, err := receipt.LoadOrCreate(h.FS, h.Layout.Keys(), h.Config.GateName)
	if err != nil {
		return nil, err
	}
	return &Keys{Seal: s, Signer: signer}, nil
}
