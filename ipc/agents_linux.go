package ipc

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/approval/hints"
)

// An access control list as the kernel stores it: posix_acl_xattr.h and acl(5).
const (
	aclName    = "system.posix_acl_access"
	aclVersion = 2
	aclNoID    = 1<<32 - 1

	aclUserObj, aclUser, aclGroupObj, aclGroup, aclMask, aclOther = 1, 2, 4, 8, 16, 32

	aclEnter = 1 // x: pass through the folder, without listing it
)

type aclEntry struct {
	Tag, Perm uint16
	ID        uint32
}

// AdmitAgents lets each workspace's agents, by UID, pass through HOME, ipc/ and the
// workspace's folder to its requests and responses, and no other user: each folder gets
// the entry user:UID:--x. Such an entry for another UID is removed; all other entries and
// the access of all other users stay. It returns the errors of all folders.
func (l Layout) AdmitAgents(agents map[string][]uint32) error {
	var all []uint32
	var errs []error
	for ws, uids := range agents {
		all = append(all, uids...)
		errs = append(errs, admit(l.Workspace(ws), uids))
	}
	return errors.Join(append(errs, admit(l.IPC(), all), admit(l.Home, all))...)
}

func admit(dir string, uids []uint32) error {
	acl, err := readACL(dir)
	if errors.Is(err, unix.ENOTSUP) && len(uids) == 0 {
		return nil
	}
	if err == nil {
		if next := withAgents(acl, uids); !slices.Equal(next, acl) {
			err = unix.Setxattr(dir, aclName, encodeACL(next), 0)
		}
	}
	if err != nil {
		return hints.Add(fmt.Errorf("let agents %d pass through %s: %w", uids, dir, err),
			"HOME needs a file system with access control lists (ext4, xfs, btrfs)")
	}
	return nil
}

// withAgents returns a list in which exactly these users may only enter. The mask limits
// what the other entries grant: it is applied to them, before it grows.
func withAgents(acl []aclEntry, uids []uint32) []aclEntry {
	ours := func(e aclEntry) bool { return e.Tag == aclUser && e.Perm == aclEnter }
	if len(uids) == 0 && !slices.ContainsFunc(acl, ours) {
		return acl
	}
	mask := uint16(7)
	for _, e := range acl {
		if e.Tag == aclMask {
			mask = e.Perm
		}
	}
	uids = slices.Clone(uids)
	var next []aclEntry
	var union uint16
	for _, e := range acl {
		if e.Tag == aclMask || ours(e) {
			continue
		}
		limited := e.Tag&(aclUser|aclGroupObj|aclGroup) != 0
		if limited {
			e.Perm &= mask
		}
		if e.Tag == aclUser && slices.Contains(uids, e.ID) {
			e.Perm |= aclEnter
			uids = slices.DeleteFunc(uids, func(id uint32) bool { return id == e.ID })
		}
		if limited {
			union |= e.Perm
		}
		next = append(next, e)
	}
	slices.Sort(uids)
	for _, id := range slices.Compact(uids) {
		next, union = append(next, aclEntry{aclUser, aclEnter, id}), union|aclEnter
	}
	if slices.ContainsFunc(next, func(e aclEntry) bool { return e.Tag&(aclUser|aclGroup) != 0 }) {
		next = append(next, aclEntry{aclMask, union, aclNoID})
	}
	slices.SortFunc(next, func(a, b aclEntry) int { return cmp.Or(cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.ID, b.ID)) })
	return next
}

// readACL returns a folder's list; without one, its mode as a list.
func readACL(dir string) ([]aclEntry, error) {
	b := make([]byte, 1<<16) // the largest value
	n, err := unix.Getxattr(dir, aclName, b)
	if errors.Is(err, unix.ENODATA) {
		info, err := os.Lstat(dir)
		if err != nil {
			return nil, err
		}
		mode := uint16(info.Mode().Perm())
		return []aclEntry{{aclUserObj, mode >> 6, aclNoID}, {aclGroupObj, mode >> 3 & 7, aclNoID}, {aclOther, mode & 7, aclNoID}}, nil
	}
	if err != nil {
		return nil, err
	}
	if n < 4 || (n-4)%8 != 0 || binary.LittleEndian.Uint32(b) != aclVersion {
		return nil, fmt.Errorf("access control list of %s: not of version %d", dir, aclVersion)
	}
	acl := make([]aclEntry, (n-4)/8)
	_, err = binary.Decode(b[4:n], binary.LittleEndian, acl)
	return acl, err
}

// encodeACL never fails: the entries have a fixed size.
func encodeACL(acl []aclEntry) []byte {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, uint32(aclVersion))
	_ = binary.Write(&b, binary.LittleEndian, acl)
	return b.Bytes()
}

// CheckAgentPath returns why an agent that runs as uid cannot reach the folders of a
// workspace: the first folder on the path that does not let it through. It does not know
// the user's groups: a folder that lets its group through is not reported. The error has a
// hint.
func (l Layout) CheckAgentPath(ws string, uid uint32) error {
	path, err := filepath.EvalSymlinks(l.Workspace(ws))
	if err != nil {
		return err
	}
	var above []string
	for ; path != filepath.Dir(path); path = filepath.Dir(path) {
		above = append(above, path)
	}
	for _, dir := range slices.Backward(above) {
		enters, err := mayEnter(dir, uid)
		if err != nil {
			return fmt.Errorf("check the way of UID %d: %w", uid, err)
		}
		if !enters {
			return hints.Add(fmt.Errorf("UID %d (agent_uid) cannot reach its requests and responses: %s does not let it through", uid, dir),
				"setfacl -m u:"+strconv.Itoa(int(uid))+":x "+shellQuote(dir)+", or move HOME below a folder that every user may enter, such as /var/lib")
		}
	}
	return nil
}

func mayEnter(dir string, uid uint32) (bool, error) {
	acl, err := readACL(dir)
	if errors.Is(err, unix.ENOTSUP) {
		info, statErr := os.Lstat(dir)
		if statErr != nil {
			return false, statErr
		}
		return info.Mode().Perm()&0o011 != 0, nil
	}
	if err != nil {
		return false, err
	}
	if owner, err := ownerOf(dir); err != nil || owner == int(uid) {
		return err == nil, err
	}
	mask := uint16(7)
	var other, group bool
	var named *aclEntry
	for i, e := range acl {
		switch {
		case e.Tag == aclMask:
			mask = e.Perm
		case e.Tag == aclOther:
			other = e.Perm&aclEnter != 0
		case e.Tag == aclUser && e.ID == uid:
			named = &acl[i]
		case e.Tag == aclGroup || e.Tag == aclGroupObj:
			group = group || e.Perm&aclEnter != 0
		}
	}
	if named != nil {
		return named.Perm&mask&aclEnter != 0, nil
	}
	return other || group && mask&aclEnter != 0, nil
}
