package sandbox

import "golang.org/x/sys/unix"

const (
	auditArch    = unix.AUDIT_ARCH_X86_64
	firstForeign = 0x40000000 // the calls of x32
)

// Calls that newer architectures do not have.
var (
	oldRefused = []uint32{unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_USELIB, unix.SYS_USTAT, unix.SYS_SYSFS, unix.SYS__SYSCTL}
	oldModes   = []argOf{{unix.SYS_CHMOD, 1}, {unix.SYS_CREAT, 1}, {unix.SYS_MKNOD, 1}}
	oldOpens   = []argOf{{unix.SYS_OPEN, 2}}
)
