package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"
)

// escape is one attempt of an agent to leave its sandbox. It succeeded if try returns nil.
type escape struct {
	kind, name string
	try        func(q *escapeTargets) error
	needsRoot  bool // without a sandbox, too, only root may do it
}

// escapeTargets is what the attempts aim at. An attacker could know or guess all of it.
type escapeTargets struct {
	Gate, Supervisor, Handler victim
	HostPIDs                  string // the host's PID namespace
	Home, Config              string
	Requests, Responses       string // as the agent sees them
	Other                     string // the requests of another workspace, on the host
	Pending, Done             string // requests
	Readable                  string // a file of the host that every user may read
	Environment               string // a value in the environment that starts the sandbox
	Sockets                   map[string]string
	Abstract, Loopback        string
	SharedMemory              int    // a key, 0666
	SharedFile                string // in /dev/shm, 0666
	Key                       int    // in a keyring of the user that runs the test; every user may read and write it
	Handle                    []byte // of the MAC key
	HandleType                int32
	Disk                      uint64 // the device that holds HOME
	Control                   bool   // the targets are the attempts' own: each attempt must succeed
}

// victim is a process. A sandbox may use its PID for another one.
type victim struct {
	PID   int
	Since string // its start, in ticks since boot
}

func startedAt(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))[19]
}

// at makes an attempt at a process.
func (v victim) at(f func(pid int) error) error {
	if v.PID == 0 {
		return errors.New("no process to aim at")
	}
	if since := startedAt(v.PID); since != "" && since != v.Since {
		return unix.ESRCH // another process has its PID
	}
	return f(v.PID)
}

func signalWith(sig syscall.Signal) func(int) error {
	return func(pid int) error { return unix.Kill(pid, sig) }
}

func atGate(f func(pid int) error) func(*escapeTargets) error {
	return func(q *escapeTargets) error { return q.Gate.at(f) }
}

// onThread runs f on a thread of its own, which ends with it.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends
		done <- f()
	}()
	return <-done
}

// rawCall makes a system call that x/sys does not wrap.
func rawCall(number uintptr, args ...uintptr) (uintptr, error) {
	args = append(args, make([]uintptr, 6-len(args))...)
	r, _, errno := unix.Syscall6(number, args[0], args[1], args[2], args[3], args[4], args[5])
	if errno != 0 {
		return 0, errno
	}
	return r, nil
}

// vmAccess reads or writes at an address that is not mapped: EFAULT means that the kernel
// allowed the access.
func vmAccess(number uintptr) func(int) error {
	return func(pid int) error {
		var b [8]byte
		local := unix.Iovec{Base: &b[0], Len: 8}
		remote := unix.RemoteIovec{Base: 8, Len: 8}
		_, err := rawCall(number, uintptr(pid), uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1)
		if errors.Is(err, unix.EFAULT) {
			return nil
		}
		return err
	}
}

// openProc opens a file of a process.
func openProc(name string, flags int) func(int) error {
	return func(pid int) error {
		f, err := os.OpenFile(fmt.Sprintf("/proc/%d/%s", pid, name), flags, 0)
		if err != nil {
			return err
		}
		return f.Close()
	}
}

func withPidfd(f func(fd int) error) func(int) error {
	return func(pid int) error {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return f(fd)
	}
}

func readAll(path string) error { return openAs(path, os.O_RDONLY) }

func openAs(path string, flags int) error {
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// enterNamespace joins the namespaces of a process. A thread that shares its folder with
// others may not, so it first stops sharing.
func enterNamespace(fd, kind int) error {
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		return unix.Setns(fd, kind)
	})
}

// firstOf tries f with each file; without one it is ENOENT.
func firstOf(pattern string, f func(path string) error) error {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	err = unix.ENOENT
	for _, path := range paths {
		if err = f(path); err == nil {
			return nil
		}
	}
	return err
}

func processEscapes() []escape {
	const kind = "processes"
	gate := func(name string, f func(pid int) error) escape { return escape{kind: kind, name: name, try: atGate(f)} }
	return []escape{
		gate("signal 0 to the gate", signalWith(0)),
		gate("a signal to a thread of the gate", func(pid int) error { return unix.Tgkill(pid, pid, 0) }),
		gate("a queued signal to the gate", func(pid int) error {
			info := [128]byte{8: 0xff, 9: 0xff, 10: 0xff, 11: 0xff} // si_code: SI_QUEUE
			_, err := rawCall(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), uintptr(unix.SIGWINCH), uintptr(unsafe.Pointer(&info)))
			return err
		}),
		gate("a signal through a pidfd", withPidfd(func(fd int) error { return unix.PidfdSendSignal(fd, unix.SIGWINCH, nil, 0) })),
		gate("own signals of a socket to the gate", func(pid int) error {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			defer unix.Close(pair[0])
			defer unix.Close(pair[1])
			_, err = unix.FcntlInt(uintptr(pair[0]), unix.F_SETOWN, pid)
			return err
		}),
		gate("attach as a debugger", func(pid int) error {
			return onThread(func() error {
				if err := unix.PtraceAttach(pid); err != nil {
					return err
				}
				_, err := unix.Wait4(pid, nil, unix.WALL, nil)
				return errors.Join(err, unix.PtraceDetach(pid))
			})
		}),
		gate("seize as a debugger", func(pid int) error { return onThread(func() error { return unix.PtraceSeize(pid) }) }),
		gate("read memory", vmAccess(unix.SYS_PROCESS_VM_READV)),
		gate("write memory", vmAccess(unix.SYS_PROCESS_VM_WRITEV)),
		gate("/proc/PID/mem for reading", openProc("mem", os.O_RDONLY)),
		gate("/proc/PID/mem for writing", openProc("mem", os.O_RDWR)),
		gate("/proc/PID/environ", openProc("environ", os.O_RDONLY)),
		gate("/proc/PID/maps", openProc("maps", os.O_RDONLY)),
		gate("/proc/PID/cmdline", openProc("cmdline", os.O_RDONLY)),
		gate("/proc/PID/root", func(pid int) error { return readAll(fmt.Sprintf("/proc/%d/root/etc/passwd", pid)) }),
		gate("/proc/PID/cwd", func(pid int) error { _, err := os.ReadDir(fmt.Sprintf("/proc/%d/cwd", pid)); return err }),
		gate("/proc/PID/exe", openProc("exe", os.O_RDONLY)),
		gate("a descriptor in /proc/PID/fd", func(pid int) error {
			return firstOf(fmt.Sprintf("/proc/%d/fd/*", pid), func(path string) error { _, err := os.Readlink(path); return err })
		}),
		gate("a descriptor through a pidfd", withPidfd(func(fd int) error {
			got, err := unix.PidfdGetfd(fd, 0, 0)
			if err != nil {
				return err
			}
			return unix.Close(got)
		})),
		gate("enter the gate's mounts", func(pid int) error {
			f, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
			if err != nil {
				return err
			}
			defer f.Close()
			return enterNamespace(int(f.Fd()), unix.CLONE_NEWNS)
		}),
		gate("enter the gate's namespaces through a pidfd", withPidfd(func(fd int) error {
			return enterNamespace(fd, unix.CLONE_NEWNS|unix.CLONE_NEWPID|unix.CLONE_NEWNET)
		})),
		gate("limit the gate", func(pid int) error { return unix.Prlimit(pid, unix.RLIMIT_CORE, &unix.Rlimit{}, nil) }),
		gate("read the gate's limits", func(pid int) error { return unix.Prlimit(pid, unix.RLIMIT_CORE, nil, &unix.Rlimit{}) }),
		gate("slow the gate down", func(pid int) error { return unix.Setpriority(unix.PRIO_PROCESS, pid, 19) }),
		gate("slow the gate's disk down", func(pid int) error {
			_, err := rawCall(unix.SYS_IOPRIO_SET, 1, uintptr(pid), 3<<13)
			return err
		}),
		gate("keep the gate from a processor", func(pid int) error {
			var set unix.CPUSet
			if err := unix.SchedGetaffinity(0, &set); err != nil {
				return err
			}
			return unix.SchedSetaffinity(pid, &set)
		}),
		gate("make the gate the first to be killed", openProc("oom_score_adj", os.O_WRONLY)),
		{kind: kind, name: "read the environment that started the sandbox", try: func(q *escapeTargets) error {
			return firstOf("/proc/[0-9]*/environ", func(path string) error { // its own among them
				b, err := os.ReadFile(path)
				if err == nil && !bytes.Contains(b, []byte(q.Environment)) {
					return unix.ENOENT
				}
				return err
			})
		}},
		{kind: kind, name: "stop the handler of another workspace", try: func(q *escapeTargets) error { return q.Handler.at(signalWith(unix.SIGSTOP)) }},
		{kind: kind, name: "kill the handler of another workspace", try: func(q *escapeTargets) error { return q.Handler.at(signalWith(unix.SIGKILL)) }},
		{kind: kind, name: "kill the process group of a handler", try: func(q *escapeTargets) error {
			return q.Handler.at(func(pid int) error { return unix.Kill(-pid, unix.SIGKILL) })
		}},
		{kind: kind, name: "kill the supervisor", try: func(q *escapeTargets) error { return q.Supervisor.at(signalWith(unix.SIGKILL)) }},
		gate("stop the gate", signalWith(unix.SIGSTOP)),
		gate("end the gate", signalWith(unix.SIGTERM)),
		gate("kill the gate", signalWith(unix.SIGKILL)),
		{kind: kind, name: "kill every process", try: func(q *escapeTargets) error {
			here, err := os.Readlink("/proc/self/ns/pid")
			switch {
			case err != nil:
				return err
			case q.HostPIDs == "":
				return errors.New("the host's PID namespace is not known: this could kill the host")
			case here == q.HostPIDs:
				return nil // it would succeed: every process of the host is within reach
			}
			return unix.Kill(-1, unix.SIGKILL)
		}},
	}
}

// forge writes a file among the responses.
func (q *escapeTargets) forge() error {
	return os.WriteFile(filepath.Join(q.Responses, "forged.json"), []byte("{}"), 0o644)
}

func (q *escapeTargets) remount() error {
	if err := unix.Mount("", q.Responses, "", unix.MS_REMOUNT|unix.MS_BIND, ""); err != nil {
		return err
	}
	return q.forge()
}

func (q *escapeTargets) unmount() error { return unix.Unmount(q.Responses, unix.MNT_DETACH) }

// protectResponses makes the responses read-only, as a sandbox does.
func (q *escapeTargets) protectResponses() error {
	return errors.Join(unix.Mount(q.Responses, q.Responses, "", unix.MS_BIND, ""),
		unix.Mount("", q.Responses, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
}

// asRootOfItsOwn makes an attempt as root of new namespaces.
func asRootOfItsOwn(f func(q *escapeTargets) error) func(q *escapeTargets) error {
	return func(q *escapeTargets) error {
		if q.Control { // the kernel locks mounts from outside: this one is its own
			if err := errors.Join(unix.Mount("none", q.Responses, "tmpfs", 0, ""), q.protectResponses()); err != nil {
				return err
			}
		}
		return f(q)
	}
}

func mountEscapes() []escape {
	const kind = "mounts"
	open := func(fd int, err error) error {
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
	return []escape{
		{kind: kind, name: "remount the responses for writing", try: (*escapeTargets).remount},
		{kind: kind, name: "clear the read-only flag of the responses", try: func(q *escapeTargets) error {
			if err := unix.MountSetattr(unix.AT_FDCWD, q.Responses, 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}); err != nil {
				return err
			}
			return q.forge()
		}},
		{kind: kind, name: "unmount the responses", try: (*escapeTargets).unmount},
		{kind: kind, name: "mount the requests over the responses", try: func(q *escapeTargets) error { return unix.Mount(q.Requests, q.Responses, "", unix.MS_BIND, "") }},
		{kind: kind, name: "clone the mount of the responses", try: func(q *escapeTargets) error {
			return open(unix.OpenTree(unix.AT_FDCWD, q.Responses, unix.OPEN_TREE_CLONE))
		}},
		{kind: kind, name: "move the mount of the responses", try: func(q *escapeTargets) error {
			return unix.MoveMount(unix.AT_FDCWD, q.Responses, unix.AT_FDCWD, q.Requests, 0)
		}},
		{kind: kind, name: "mount a file system", try: func(q *escapeTargets) error { return unix.Mount("none", q.Requests, "tmpfs", 0, "") }},
		{kind: kind, name: "open a file system", try: func(*escapeTargets) error { return open(unix.Fsopen("tmpfs", 0)) }},
		{kind: kind, name: "unmount the cover of the kernel's settings", try: func(q *escapeTargets) error {
			if q.Control {
				if err := unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND, ""); err != nil {
					return err
				}
			}
			return unix.Unmount("/proc/sys", unix.MNT_DETACH)
		}},
		{kind: kind, name: "change the root by chroot", try: inChild("chroot", 0)},
		{kind: kind, name: "change the root by pivot_root", try: inChild("pivot", 0)},
		{kind: kind, name: "remount the responses as root of its own namespace", try: inChild("remount", unix.CLONE_NEWUSER|unix.CLONE_NEWNS)},
		{kind: kind, name: "unmount the responses as root of its own namespace", try: inChild("unmount", unix.CLONE_NEWUSER|unix.CLONE_NEWNS)},
		{kind: kind, name: "open the MAC key by its handle", needsRoot: true, try: func(q *escapeTargets) error {
			dir, err := os.Open(q.Requests)
			if err != nil {
				return err
			}
			defer dir.Close()
			return open(unix.OpenByHandleAt(int(dir.Fd()), unix.NewFileHandle(q.HandleType, q.Handle), unix.O_RDONLY))
		}},
		{kind: kind, name: "make a device of the host's disk", needsRoot: true, try: func(q *escapeTargets) error {
			path := filepath.Join(q.Requests, "disk")
			if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(q.Disk)); err != nil {
				return err
			}
			return os.Remove(path)
		}},
		{kind: kind, name: "set the host's name", try: func(*escapeTargets) error {
			name, err := os.Hostname()
			if err != nil {
				return err
			}
			return unix.Sethostname([]byte(name))
		}},
	}
}

// childEscapes would change the process that makes them.
var childEscapes = map[string]func(q *escapeTargets) error{
	"chroot": func(*escapeTargets) error { return unix.Chroot("/tmp") },
	"pivot": func(q *escapeTargets) error {
		if q.Control {
			if err := errors.Join(unix.Mount("none", "/tmp", "tmpfs", 0, ""), os.Mkdir("/tmp/old", 0o700)); err != nil {
				return err
			}
		}
		return unix.PivotRoot("/tmp", "/tmp/old")
	},
	"nothing": func(*escapeTargets) error { return nil },
	"remount": asRootOfItsOwn((*escapeTargets).remount),
	"unmount": asRootOfItsOwn((*escapeTargets).unmount),
}

func dial(network, address string) error {
	c, err := net.DialTimeout(network, address, testTimeout)
	if err != nil {
		return err
	}
	return c.Close()
}

func socketEscapes() []escape {
	const kind = "sockets"
	unixSocket := func(name string) escape {
		return escape{kind: kind, name: "connect to " + name, try: func(q *escapeTargets) error {
			path, ok := q.Sockets[name]
			if !ok {
				return errors.New("no socket to aim at")
			}
			return dial("unix", path)
		}}
	}
	return []escape{
		unixSocket("the daemon's own socket"),
		unixSocket("the approvers' socket"),
		unixSocket("the API's socket"),
		unixSocket("a socket where Docker and D-Bus have theirs"),
		unixSocket("a socket in the host's /tmp"),
		{kind: kind, name: "connect to the daemon through /proc", try: func(q *escapeTargets) error {
			return q.Gate.at(func(pid int) error {
				return dial("unix", fmt.Sprintf("/proc/%d/root%s", pid, q.Sockets["the approvers' socket"]))
			})
		}},
		{kind: kind, name: "connect to an abstract socket", try: func(q *escapeTargets) error { return dial("unix", "@"+q.Abstract) }},
		{kind: kind, name: "connect to the API on the loopback", try: func(q *escapeTargets) error { return dial("tcp", q.Loopback) }},
		{kind: kind, name: "read every packet", needsRoot: true, try: func(*escapeTargets) error {
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		}},
		{kind: kind, name: "attach shared memory of the host", try: func(q *escapeTargets) error {
			id, err := unix.SysvShmGet(q.SharedMemory, 0, 0)
			if err != nil {
				return err
			}
			b, err := unix.SysvShmAttach(id, 0, 0)
			if err != nil {
				return err
			}
			return unix.SysvShmDetach(b)
		}},
	}
}

func fileEscapes() []escape {
	const kind = "files"
	at := func(name string, path func(q *escapeTargets) string, f func(path string) error) escape {
		return escape{kind: kind, name: name, try: func(q *escapeTargets) error { return f(path(q)) }}
	}
	host := func(name, below string, f func(path string) error) escape {
		return at(name, func(q *escapeTargets) string {
			return filepath.Join(q.Home, strings.NewReplacer("PENDING", q.Pending, "WORKSPACE", "annes").Replace(below))
		}, f)
	}
	response := func(name string, f func(path string) error) escape {
		return at(name, func(q *escapeTargets) string { return filepath.Join(q.Responses, q.Done+".json") }, f)
	}
	create := func(path string) error { return openAs(path, os.O_WRONLY|os.O_CREATE) }
	appendTo := func(path string) error { return openAs(path, os.O_WRONLY|os.O_APPEND) }
	list := func(path string) error { _, err := os.ReadDir(path); return err }
	same := func(path string) error { // writes what is there
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(path, b, 0)
	}
	beside := func(name string, f func(own, path string) error) escape {
		return escape{kind: kind, name: name, try: func(q *escapeTargets) error {
			own := filepath.Join(q.Requests, ".tmp-own")
			_ = os.RemoveAll(own) // of the attempt before
			return f(own, filepath.Join(q.Responses, q.Done+".json"))
		}}
	}
	kernel := func(name, path string) escape {
		return escape{kind: kind, name: name, needsRoot: true, try: func(*escapeTargets) error { return same(path) }}
	}
	return []escape{
		{kind: kind, name: "create a response", try: (*escapeTargets).forge},
		response("append to a response", appendTo),
		response("truncate a response", func(path string) error { return os.Truncate(path, 3) }),
		response("open a response again for writing", func(path string) error {
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			return openAs(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_WRONLY)
		}),
		response("chmod a response", func(path string) error { return os.Chmod(path, 0o666) }),
		response("chown a response", func(path string) error { return os.Lchown(path, os.Getuid(), os.Getgid()) }),
		response("date a response back", func(path string) error { return os.Chtimes(path, time.Unix(0, 0), time.Unix(0, 0)) }),
		response("mark a response", func(path string) error { return unix.Setxattr(path, "user.mark", []byte("x"), 0) }),
		response("rename a response", func(path string) error { return os.Rename(path, path+".old") }),
		response("remove a response", os.Remove),
		beside("link to a response", func(own, path string) error { return os.Link(path, own) }),
		beside("rename a file over a response", func(own, path string) error {
			return errors.Join(os.WriteFile(own, nil, 0o644), os.Rename(own, path))
		}),
		beside("exchange a file with a response", func(own, path string) error {
			return errors.Join(os.WriteFile(own, nil, 0o644), unix.Renameat2(unix.AT_FDCWD, own, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE))
		}),
		{kind: kind, name: "write a response through a link in the requests", try: func(q *escapeTargets) error {
			own := filepath.Join(q.Requests, "through")
			_ = os.Remove(own)
			return errors.Join(os.Symlink(q.Responses, own), create(filepath.Join(own, "new.json")))
		}},
		{kind: kind, name: "decide, beside the requests", try: func(q *escapeTargets) error {
			return create(filepath.Join(q.Requests, "..", "approval_decisions", q.Pending+".json"))
		}},
		{kind: kind, name: "decide, through a link in the requests", try: func(q *escapeTargets) error {
			own := filepath.Join(q.Requests, "slots")
			_ = os.Remove(own)
			return errors.Join(os.Symlink("../approval_decisions", own), create(filepath.Join(own, q.Pending+".json")))
		}},
		host("decide, on the host", "ipc/WORKSPACE/approval_decisions/PENDING.json", create),
		host("read a pending request", "ipc/WORKSPACE/pending_approvals/PENDING.json", readAll),
		host("change a pending request", "ipc/WORKSPACE/pending_approvals/PENDING.json", appendTo),
		host("list the workspaces", "ipc", list),
		host("list HOME", "", list),
		host("read the MAC key", "keys/mac.key", readAll),
		host("write the MAC key", "keys/mac.key", appendTo),
		host("list the keys", "keys", list),
		host("read the audit log", "audit/log.jsonl", readAll),
		host("append to the audit log", "audit/log.jsonl", appendTo),
		host("take the daemon's lock", "lock", func(path string) error {
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil // within reach
			}
			return err
		}),
		{kind: kind, name: "reach the MAC key through a symbolic link", try: linkToKey(os.Symlink)},
		{kind: kind, name: "reach the MAC key through a hard link", try: linkToKey(os.Link)},
		at("write the configuration", func(q *escapeTargets) string { return q.Config }, appendTo),
		at("write requests of another workspace", func(q *escapeTargets) string { return filepath.Join(q.Other, "x.json") }, create),
		at("read a file of the host", func(q *escapeTargets) string { return q.Readable }, readAll),
		at("read the host's shared memory", func(q *escapeTargets) string { return q.SharedFile }, readAll),
		at("read the users of the host", func(*escapeTargets) string { return "/etc/passwd" }, readAll),
		at("list the devices of the kernel", func(*escapeTargets) string { return "/sys/class" }, list),
		at("list the host's cgroups", func(*escapeTargets) string { return "/sys/fs/cgroup" }, list),
		kernel("set the kernel's program for core dumps", "/proc/sys/kernel/core_pattern"),
		kernel("set a limit of the kernel", "/proc/sys/fs/file-max"),
		kernel("set what the kernel does in a panic", "/proc/sys/kernel/panic"),
		kernel("set how the kernel gives memory", "/proc/sys/vm/overcommit_memory"),
		{kind: kind, name: "write any other file of the kernel", needsRoot: true, try: writeAnyKernelFile},
		{kind: kind, name: "write a file of the host's system", needsRoot: true, try: func(*escapeTargets) error { return appendTo("/usr/lib/os-release") }},
		{kind: kind, name: "add a program to the host", needsRoot: true, try: func(*escapeTargets) error {
			return errors.Join(create("/usr/local/bin/permesso-escaped"), os.Remove("/usr/local/bin/permesso-escaped"))
		}},
	}
}

// writeAnyKernelFile opens each file of /proc that is not a process's, except pressure/:
// every user may wait for pressure there.
func writeAnyKernelFile(*escapeTargets) error {
	var opened error = unix.EACCES
	err := filepath.WalkDir("/proc", func(path string, d os.DirEntry, err error) error {
		name := strings.TrimPrefix(path, "/proc/")
		switch {
		case d != nil && d.IsDir() && (name != "" && name[0] >= '0' && name[0] <= '9' || name == "pressure"):
			return filepath.SkipDir
		case err != nil, d.IsDir(), !d.Type().IsRegular():
			return nil
		}
		if f, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
			opened = f.Close()
			return filepath.SkipAll
		}
		return nil
	})
	return errors.Join(err, opened)
}

func terminalEscapes() []escape {
	const kind = "signals"
	return []escape{
		{kind: kind, name: "type into the terminal", needsRoot: true, try: func(*escapeTargets) error {
			key := []byte{'x'}
			_, err := rawCall(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&key[0])))
			return err
		}},
		{kind: kind, name: "open the terminal that started it", try: func(*escapeTargets) error { return openAs("/dev/tty", os.O_RDWR) }},
		{kind: kind, name: "become the terminal's foreground process", try: func(*escapeTargets) error {
			return unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, unix.Getpgrp())
		}},
		{kind: kind, name: "ask who the terminal's foreground process is", try: func(*escapeTargets) error {
			_, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
			return err
		}},
	}
}

// filterEscapes are what the kernel allows every user, without any capability.
func filterEscapes() []escape {
	const kind = "filter"
	key := func(name string, f func(key int) error) escape {
		return escape{kind: kind, name: name, try: func(q *escapeTargets) error { return f(q.Key) }}
	}
	// setID makes a program that runs as the agent's user, for each one who starts it on the host.
	setID := func(name string, f func(path string) error) escape {
		return escape{kind: kind, name: "a set-user-ID file by " + name, try: func(q *escapeTargets) error {
			own := filepath.Join(q.Requests, ".tmp-set-id")
			_ = os.Remove(own)
			defer os.Remove(own)
			return f(own)
		}}
	}
	const mode = unix.S_ISUID | 0o755
	existing := func(f func(path string) error) func(string) error {
		return func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o755), f(path)) }
	}
	opened := func(flags int) func(string) error {
		return func(path string) error {
			fd, err := unix.Open(path, flags, mode)
			if err != nil {
				return err
			}
			return unix.Close(fd)
		}
	}
	return []escape{
		key("read a key of the host", func(key int) error {
			_, err := unix.KeyctlBuffer(unix.KEYCTL_READ, key, make([]byte, 64), 64)
			return err
		}),
		key("change a key of the host", func(key int) error {
			_, err := unix.KeyctlBuffer(unix.KEYCTL_UPDATE, key, []byte("changed"), 7)
			return err
		}),
		key("add a key to the user's keyring", func(int) error {
			key, err := unix.AddKey("user", "permesso-escaped", []byte("x"), unix.KEY_SPEC_USER_KEYRING)
			if err != nil {
				return err
			}
			_, err = unix.KeyctlInt(unix.KEYCTL_UNLINK, key, unix.KEY_SPEC_USER_KEYRING, 0, 0)
			return err
		}),
		{kind: kind, name: "request a key", try: func(q *escapeTargets) error {
			return onThread(func() error {
				if q.Control {
					if _, err := unix.AddKey("user", "permesso-requested", []byte("x"), unix.KEY_SPEC_THREAD_KEYRING); err != nil {
						return err
					}
				}
				_, err := unix.RequestKey("user", "permesso-requested", "", 0)
				return err
			})
		}},
		setID("chmod", existing(func(path string) error { return unix.Chmod(path, mode) })),
		setID("fchmod", existing(func(path string) error {
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer f.Close()
			return unix.Fchmod(int(f.Fd()), mode)
		})),
		setID("fchmodat", existing(func(path string) error { return unix.Fchmodat(unix.AT_FDCWD, path, mode, 0) })),
		setID("fchmodat2", existing(func(path string) error {
			err := unix.Fchmodat(unix.AT_FDCWD, path, mode, unix.AT_SYMLINK_NOFOLLOW)
			if errors.Is(err, unix.EOPNOTSUPP) { // a kernel before 6.6
				err = unix.Fchmodat(unix.AT_FDCWD, path, mode, 0)
			}
			return err
		})),
		setID("creating it", opened(unix.O_CREAT|unix.O_WRONLY)),
		setID("creating it without a name", func(path string) error { return opened(unix.O_TMPFILE | unix.O_WRONLY)(filepath.Dir(path)) }),
		setID("mknod", func(path string) error { return unix.Mknod(path, unix.S_IFREG|mode, 0) }),
		setID("chmod, for its group", existing(func(path string) error { return unix.Chmod(path, unix.S_ISGID|0o755) })),
		{kind: kind, name: "capabilities in a user namespace by clone", try: inChild("nothing", unix.CLONE_NEWUSER)},
		{kind: kind, name: "capabilities in a user namespace by unshare", try: func(*escapeTargets) error {
			out, err := osexec.Command("/usr/bin/unshare", "--user", "--map-root-user", "/bin/true").CombinedOutput() // a process with threads may not
			if err != nil && bytes.Contains(out, []byte("unshare failed: Operation not permitted")) {
				return unix.EPERM
			}
			return err
		}},
	}
}

// escapes are all attempts. Those that end the gate come last.
func escapes() []escape {
	return slices.Concat(fileEscapes(), socketEscapes(), mountEscapes(), terminalEscapes(), filterEscapes(), processEscapes())
}

// inChild makes an attempt in another process of this program.
func inChild(name string, namespaces uintptr) func(*escapeTargets) error {
	return func(q *escapeTargets) error {
		cmd := osexec.Command("/proc/self/exe")
		cmd.Env = []string{escapeVariable + "=" + name, raceExitsFast}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
		if namespaces&unix.CLONE_NEWUSER != 0 {
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
		} else if q.Control {
			cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNS
		}
		in, err := json.Marshal(q)
		if err != nil {
			return err
		}
		cmd.Stdin = bytes.NewReader(in)
		out, err := cmd.Output()
		if err != nil {
			return err
		}
		var r escapeResult
		if err := json.Unmarshal(out, &r); err != nil || r.Escaped {
			return err
		}
		return r.err()
	}
}

func linkToKey(link func(from, to string) error) func(*escapeTargets) error {
	return func(q *escapeTargets) error {
		own := filepath.Join(q.Requests, ".tmp-own")
		_ = os.RemoveAll(own)
		if err := link(filepath.Join(q.Home, "keys", "mac.key"), own); err != nil {
			return err
		}
		return errors.Join(readAll(own), os.Remove(own))
	}
}
