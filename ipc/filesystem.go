package ipc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval/hints"
)

// notLocal are file systems whose syncs and locks are another machine's or program's affair.
var notLocal = map[string]string{
	"9p": "9p", "nfs": "NFS", "nfs4": "NFS", "cifs": "SMB", "smb3": "SMB", "smbfs": "SMB", "ceph": "Ceph", "afs": "AFS",
	"fuse": "FUSE", "fuseblk": "FUSE", "virtiofs": "FUSE (virtiofs)", "vboxsf": "a shared folder of VirtualBox",
}

// NotLocal says why the promises of a journal do not hold on this mount; nil: they do. Syncs
// there may do nothing, report no errors, or last seconds, and a lock may not exclude a
// process on another machine.
func (m Mount) NotLocal() error {
	name := notLocal[m.Type]
	if strings.HasPrefix(m.Type, "fuse.") {
		name = "FUSE (" + strings.TrimPrefix(m.Type, "fuse.") + ")"
	}
	if name == "" {
		return nil
	}
	return hints.Add(fmt.Errorf("%s is %s: a sync there may do nothing and report no error, so that a power cut or a lost connection "+
		"can lose decisions that were acknowledged, and a second daemon may not be kept out", m.Point, name),
		"move HOME to a local disk (ext4, xfs or btrfs)")
}

// OverwriteNeedsSpace says why a write into the journal can fail on a full disk, although its
// place was written before; nil: it cannot.
func (m Mount) OverwriteNeedsSpace() error {
	if !slices.Contains([]string{"btrfs", "zfs", "bcachefs", "nilfs2", "overlay"}, m.Type) {
		return nil
	}
	hint := "keep some space free: below that, the daemon takes no new work"
	if m.Type == "btrfs" {
		hint += "; or, while it is stopped: chattr +C HOME/journal, and copy its files anew"
	}
	return hints.Add(fmt.Errorf("%s is %s, which writes to new places: on a full disk the journal can fail, and the daemon then has to be restarted",
		m.Point, m.Type), hint)
}

// SyncErrorsLost says why this system does not report a failed write to a sync of the whole
// file system; nil: it does. Then checkpoints sync each file: Store.SyncEach.
func SyncErrorsLost() error {
	release, ok := kernelRelease()
	if ok && !olderThan(release, 5, 8) {
		return nil
	}
	return hints.Add(fmt.Errorf("%s does not report a failed write to syncfs: checkpoints sync each file instead, which is slower", release),
		"use Linux 5.8 or later")
}

// olderThan compares a kernel's release, such as Linux 5.4.0-150-generic.
func olderThan(release string, major, minor int) bool {
	var x, y int
	if n, _ := fmt.Sscanf(release, "Linux %d.%d", &x, &y); n != 2 {
		return false
	}
	return x < major || x == major && y < minor
}
