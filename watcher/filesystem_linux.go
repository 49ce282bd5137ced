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
	return remoteTypes[uint32(st.Type)] // magic numbers have 32 bits; the width of the field varies
}

// remoteTypes are by the magic numbers of statfs(2) and linux/magic.h.
var remoteTypes = map[uint32]string{
	0x6969:     "NFS",
	0x01021997: "9p",
	0x65735546: "FUSE or virtiofs",
	0x517b:     "SMB",
	0xff534d42: "SMB",
	0xfe534d42: "SMB",
	0x00c36400: "Ceph",
	0x5346414f: "AFS",
	0x6b414653: "AFS",
	0x73757245: "Coda",
	0x7461636f: "OCFS2",
	0x01161970: "GFS2",
	0x0bd00bd0: "Lustre",
	0x47504653: "GPFS",
	0x786f4256: "a VirtualBox shared folder",
	0xbacbacbc: "a VMware shared folder",
}
