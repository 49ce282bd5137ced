package main

import (
	"github.com/permesso-dev/permesso/security/receipt"
	"github.com/permesso-dev/permesso/security/seal"
)

// keys are the secret keys of one home.
type keys struct {
	seal   *seal.Key
	signer *receipt.Signer
}

func (h *instance) loadKeys() (*keys, error) {
	s, err := seal.Load(h.fs, h.layout.Keys())
	if err != nil {
		return nil, err
	}
	return &keys{seal: s}, nil
}

// makeKeys creates missing keys; only the daemon and init call it.
func (h *instance) makeKeys() (*keys, error) {
	s, err := seal.LoadOrCreate(h.fs, h.layout.Keys())
	if err != nil {
		return nil, err
	}
	signer, err := receipt.LoadOrCreate(h.fs, h.layout.Keys(), h.cfg.GateName)
	if err != nil {
		return nil, err
	}
	return &keys{seal: s, signer: signer}, nil
}
