package watcher

import "golang.org/x/sys/unix"

// unreached names the file system of a path where inotify does not see what other
// hosts (or the far side of a user-space file system) change, and is "" where it
// sees everything. virtiofs, sshfs and the like all report FUSE.
func unreached(path string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "" // the watch itself will say what is wrong
	}
	return unreachedType(uint32(st.Type)) // magics have 32 bits; the width of the field varies
}

// unreachedType goes by the magic numbers of statfs(2) and linux/magic.h.
func unreachedType(magic uint32) string {
	switch magic {
	case 0x6969:
		return "NFS"
	case 0x01021997:
		return "9p"
	case 0x65735546:
		return "FUSE or virtiofs"
	case 0x517b, 0xff534d42, 0xfe534d42:
		return "SMB"
	case 0x00c36400:
		return "Ceph"
	case 0x5346414f, 0x6b414653:
		return "AFS"
	case 0x73757245:
		return "Coda"
	case 0x7461636f:
		return "OCFS2"
	case 0x01161970:
		return "GFS2"
	case 0x0bd00bd0:
		return "Lustre"
	case 0x47504653:
		return "GPFS"
	case 0x786f4256:
		return "a VirtualBox shared folder"
	case 0xbacbacbc:
		return "a VMware shared folder"
	}
	return ""
}
