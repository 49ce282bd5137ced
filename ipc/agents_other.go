//go:build !linux

package ipc

import "errors"

// AdmitAgents works on Linux only.
func (l Layout) AdmitAgents(agents map[string][]uint32) error {
	for _, uids := range agents {
		if len(uids) > 0 {
			return errors.ErrUnsupported
		}
	}
	return nil
}

// CheckAgentPath works on Linux only.
func (l Layout) CheckAgentPath(string, uint32) error { return errors.ErrUnsupported }
