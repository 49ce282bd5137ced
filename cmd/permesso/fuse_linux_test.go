package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
)

// TestServeRefusesFUSE runs serve on a FUSE that is really mounted, in a child with its own
// mounts. Where the machine has no FUSE, TestNotLocal of package ipc is all.
func TestServeRefusesFUSE(t *testing.T) {
	t.Parallel()
	if os.Getenv(mountNamespaceEnv) != "" {
		refusedFUSE(t)
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := inOwnMounts("TestServeRefusesFUSE", "root", 0).CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		out, err = inOwnMounts("TestServeRefusesFUSE", "user", syscall.CLONE_NEWUSER).CombinedOutput()
	}
	t.Logf("%s", out)
	require.NoError(t, err)
}

func refusedFUSE(t *testing.T) {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Logf("no FUSE here: %v", err)
		require.NotErrorIs(t, err, unix.EINVAL)
		return
	}
	d := mountDisk(t, "fuse", "fuse", fmt.Sprintf("fd=%d,rootmode=40700,user_id=%d,group_id=%d", fd, os.Getuid(), os.Getgid()))
	go emptyFUSE(fd) // ends when it is unmounted

	code, _, errs := runCommand("serve", "--home", d.path)
	require.Equal(t, console.ExitError, code)
	require.Contains(t, errs, "permesso: "+d.path+" is FUSE: a sync there may do nothing")
	require.Contains(t, errs, "\nhint: move HOME to a local disk (ext4, xfs or btrfs); or accept that: permesso serve --unsafe-home\n")

	code, _, errs = runCommand("serve", "--unsafe-home", "--home", d.path)
	require.Equal(t, console.ExitError, code)
	require.Contains(t, errs, "home is not on a local disk")
	require.Contains(t, errs, "function not implemented", "it goes on, and this file system makes no folders")
}

// The operations of linux/fuse.h that emptyFUSE knows.
const (
	fuseLookup, fuseForget, fuseGetattr, fuseInit, fuseBatchForget = 1, 2, 3, 26, 42

	fuseInitSize, fuseAttrSize = 64, 104
)

// emptyFUSE serves a file system of one empty folder, to which nothing can be added.
func emptyFUSE(fd int) {
	request := make([]byte, 1<<20)
	for {
		n, err := unix.Read(fd, request)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil || n < 40 {
			return
		}
		code, body := -int32(unix.ENOSYS), []byte(nil)
		switch binary.NativeEndian.Uint32(request[4:]) {
		case fuseForget, fuseBatchForget:
			continue
		case fuseInit:
			code, body = 0, make([]byte, fuseInitSize)
			binary.NativeEndian.PutUint32(body, 7)
			binary.NativeEndian.PutUint32(body[4:], 31)
			binary.NativeEndian.PutUint32(body[20:], 4096) // max_write
		case fuseLookup:
			code = -int32(unix.ENOENT)
		case fuseGetattr:
			code, body = 0, make([]byte, fuseAttrSize)
			attr := body[16:]
			binary.NativeEndian.PutUint64(attr, 1) // inode
			binary.NativeEndian.PutUint32(attr[60:], unix.S_IFDIR|0o700)
			binary.NativeEndian.PutUint32(attr[64:], 2) // links
			binary.NativeEndian.PutUint32(attr[68:], uint32(os.Getuid()))
			binary.NativeEndian.PutUint32(attr[72:], uint32(os.Getgid()))
		}
		reply := binary.NativeEndian.AppendUint32(nil, uint32(16+len(body)))
		reply = binary.NativeEndian.AppendUint32(reply, uint32(code))
		reply = append(append(reply, request[8:16]...), body...)
		if _, err := unix.Write(fd, reply); err != nil && !errors.Is(err, unix.ENOENT) {
			return
		}
	}
}
