package watcher

import "golang.org/x/sys/unix"

// remoteFileSystem names the file system of a path if inotify does not report
// changes by other hosts (or behind a user-space file system) there, else "".
// virtiofs, sshfs and similar ones report FUSE.
func remoteFileSystem(path string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "" // placing the watch will report the error
	}
	return remoteType(uint32(st.Type)) // magic numbers have 32 bits; the width of the field varies
}

// remoteType uses the magic numbers of statfs(2) and linux/magic.h.
func remoteType(magic uint32) string {
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
