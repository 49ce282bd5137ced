//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Where struct seccomp_data has what a filter reads: seccomp(2). Of an argument, these are
// the low 32 bits on a little-endian machine, and the kernel reads no others of those below.
const (
	callNumber, callArch = 0, 4
	firstArg, argSize    = 16, 8
)

const (
	setID      = unix.S_ISUID | unix.S_ISGID
	namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
	creates    = unix.O_CREAT | unix.O_TMPFILE&^unix.O_DIRECTORY // the flags with which an open has a mode
)

var (
	allow  = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	refuse = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	absent = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}
)

// refused are the calls that no agent needs: keys belong to the user and not to a
// namespace, and in a user namespace the others would meet a process with capabilities.
var refused = []uint32{
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_CHROOT, unix.SYS_PIVOT_ROOT,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_MOUNT_SETATTR,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_FANOTIFY_INIT, unix.SYS_KCMP,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	unix.SYS_SYSLOG, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_VHANGUP,
}

// unknown are calls that a filter cannot judge, because what they are to do is in memory.
// Programs do without them on older kernels.
var unknown = []uint32{
	unix.SYS_CLONE3, unix.SYS_OPENAT2, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
}

// argOf is a call, and the index of the argument that counts.
type argOf struct{ call, arg uint32 }

// modes are the calls that set a file's mode.
var modes = append([]argOf{{unix.SYS_FCHMOD, 1}, {unix.SYS_FCHMODAT, 2}, {unix.SYS_FCHMODAT2, 2}, {unix.SYS_MKNODAT, 2}}, oldModes...)

// opens are the calls that set it only with some flags, which are the argument before.
var opens = append([]argOf{{unix.SYS_OPENAT, 3}}, oldOpens...)

// Filter returns the seccomp filter of the sandbox, as bubblewrap reads it: an array of
// struct sock_filter. It refuses namespaces, the kernel's keyrings, set-user-ID files and
// what else only an attack needs, and programs of another architecture than this one's. It
// is nil on an architecture that has none.
func Filter() []byte {
	raw, err := bpf.Assemble(program())
	if err != nil {
		panic(err) // it is constant
	}
	var b []byte
	for _, in := range raw {
		b = binary.LittleEndian.AppendUint16(b, in.Op)
		b = binary.LittleEndian.AppendUint32(append(b, in.Jt, in.Jf), in.K)
	}
	return b
}

func load(offset uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: offset, Size: 4} }

func loadArg(n uint32) bpf.Instruction { return load(firstArg + argSize*n) }

// when is what follows if the number of the call is loaded and the same. It must return.
func when(call uint32, then ...bpf.Instruction) []bpf.Instruction {
	return append([]bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: call, SkipTrue: uint8(len(then))}}, then...)
}

// unlessBits allows what has none of the bits.
func unlessBits(bits uint32) []bpf.Instruction {
	return []bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: bits, SkipTrue: 1}, allow}
}

func program() []bpf.Instruction {
	list := []bpf.Instruction{
		load(callArch),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		absent,
		load(callNumber),
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: firstForeign, SkipTrue: 1},
		absent,
	}
	add := func(more []bpf.Instruction) { list = append(list, more...) }
	for _, call := range slices.Concat(refused, oldRefused) {
		add(when(call, refuse))
	}
	for _, call := range unknown {
		add(when(call, absent))
	}
	add(when(unix.SYS_CLONE, slices.Concat([]bpf.Instruction{loadArg(0)}, unlessBits(namespaces), []bpf.Instruction{refuse})...))
	for _, m := range modes {
		add(when(m.call, slices.Concat([]bpf.Instruction{loadArg(m.arg)}, unlessBits(setID), []bpf.Instruction{refuse})...))
	}
	for _, m := range opens {
		add(when(m.call, slices.Concat([]bpf.Instruction{loadArg(m.arg - 1)}, unlessBits(creates),
			[]bpf.Instruction{loadArg(m.arg)}, unlessBits(setID), []bpf.Instruction{refuse})...))
	}
	equal := func(call, arg uint32, values ...uint32) {
		body := []bpf.Instruction{loadArg(arg)}
		for i, v := range values {
			body = append(body, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(len(values) - i)})
		}
		add(when(call, append(body, allow, refuse)...))
	}
	equal(unix.SYS_IOCTL, 1, unix.TIOCSTI, unix.TIOCLINUX)
	equal(unix.SYS_SOCKET, 0, unix.AF_VSOCK) // leads out of a network namespace, to the hypervisor
	return append(list, allow)
}
