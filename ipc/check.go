package ipc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/permesso-dev/permesso/approval/hints"
)

// CheckPrivate refuses a HOME or workspace in which another user could decide or answer:
// a folder that is missing, a link, not a folder, or open to other users. The error has
// a hint.
func (l Layout) CheckPrivate(fsys FS, ws string) error {
	if err := checkWorkspace(ws); err != nil {
		return err
	}
	for _, f := range slices.Concat(l.homeFolders(), l.workspaceFolders(ws)) {
		if err := f.check(fsys); err != nil {
			return err
		}
	}
	return l.checkVersionFile(fsys)
}

func (f folder) check(fsys FS) error {
	info, err := f.info(fsys)
	if err != nil {
		return err
	}
	open := info.Mode().Perm() & f.refuse
	if open == 0 {
		return nil
	}
	may := "read"
	if open&othersWrite != 0 {
		may = "write to"
	}
	return hints.Add(fmt.Errorf("check folder %s: other users may %s it (mode %04o)", f.path, may, info.Mode().Perm()),
		fmt.Sprintf("look through it, then: chmod %04o %s", f.mode, shellQuote(f.path)))
}

// info returns the file info of a real folder.
func (f folder) info(fsys FS) (fs.FileInfo, error) {
	info, err := lstat(fsys, f.path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("check folder: %w", err)
	case info.Mode()&fs.ModeSymlink != 0:
		return nil, hints.Add(fmt.Errorf("check folder %s: is a symbolic link", f.path),
			fmt.Sprintf("remove the link and make a real folder: rm %[1]s && mkdir -m %04[2]o %[1]s", shellQuote(f.path), f.mode))
	case !info.IsDir():
		return nil, hints.Add(fmt.Errorf("check folder %s: is not a folder", f.path),
			fmt.Sprintf("move it away, then: mkdir -m %04o %s", f.mode, shellQuote(f.path)))
	}
	return info, nil
}

// shellQuote quotes a path for the hints, which users paste into a shell.
func shellQuote(path string) string {
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// CheckFolders is CheckPrivate for doctor: it continues after the first error, checks
// owners too, and returns the number of folders. Each error has a hint.
// A missing folder is fs.ErrNotExist; the next start creates it.
func (l Layout) CheckFolders(fsys FS, workspaces ...string) (seen int, wrong []error) {
	owner, err := ownerOf(l.Home)
	if err != nil {
		return 0, []error{fmt.Errorf("check home: %w", err)}
	}
	folders := l.homeFolders()
	for _, ws := range workspaces {
		if err := checkWorkspace(ws); err != nil {
			wrong = append(wrong, err)
			continue
		}
		folders = append(folders, l.workspaceFolders(ws)...)
	}
	for _, f := range folders {
		seen++
		if err := f.check(fsys); err != nil {
			wrong = append(wrong, err)
		} else if err := f.checkOwner(owner); err != nil {
			wrong = append(wrong, err)
		}
	}
	if err := l.checkVersionFile(fsys); err != nil {
		wrong = append(wrong, err)
	}
	return seen, wrong
}

// checkOwner requires one owner for all folders but the requests: the owner of a folder
// can change its mode.
func (f folder) checkOwner(owner int) error {
	if f.refuse == 0 {
		return nil
	}
	is, err := ownerOf(f.path)
	if err != nil || is == owner {
		return err
	}
	return hints.Add(fmt.Errorf("check folder %s: owned by UID %d, but HOME by UID %d", f.path, is, owner),
		fmt.Sprintf("look through it, then: chown %d %s", owner, shellQuote(f.path)))
}

func ownerOf(path string) (int, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	return uidOf(info), nil
}

func uidOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// CheckPath reports which users, besides root and uid, could put another file or folder
// at path: by writing to it or to a folder above it, or by owning one of them. It follows
// links, and checks the folders above their targets too. A missing path is
// fs.ErrNotExist.
func CheckPath(path string, uid int) []error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return []error{fmt.Errorf("check path: %w", err)}
	}
	var wrong []error
	var seen []string
	for _, path := range []string{path, real} {
		for ; ; path = filepath.Dir(path) {
			if !slices.Contains(seen, path) {
				seen = append(seen, path)
				if err := checkPathElement(path, uid); err != nil {
					wrong = append(wrong, err)
				}
			}
			if path == filepath.Dir(path) {
				break
			}
		}
	}
	return wrong
}

// checkPathElement checks one element of a path. A folder with the sticky bit may be
// writable by all users: only the owner of a file in it can rename that file.
func checkPathElement(path string, uid int) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("check path: %w", err)
	}
	if owner := uidOf(info); owner != 0 && owner != uid && !unmappedOwner(owner) {
		return hints.Add(fmt.Errorf("%s is owned by UID %d, who may replace its content", path, owner),
			fmt.Sprintf("chown %d %s, or use another path", uid, shellQuote(path)))
	}
	open := info.Mode().Perm() & othersWrite
	switch {
	case info.Mode()&fs.ModeSymlink != 0, open == 0, info.IsDir() && info.Mode()&fs.ModeSticky != 0:
		return nil
	case open == 0o020 && hasPrivateGroup(info):
		return nil
	}
	who, bits := "every user", "o-w"
	switch open {
	case 0o020:
		who, bits = "its group", "g-w"
	case 0o022:
		bits = "go-w"
	}
	return hints.Add(fmt.Errorf("%s may write to %s (mode %04o)", who, path, info.Mode().Perm()),
		fmt.Sprintf("chmod %s %s", bits, shellQuote(path)))
}

// unmappedOwner reports whether an owner is unknown: in a user namespace, all users that
// it does not map have the same number, root too.
func unmappedOwner(owner int) bool {
	uids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || slices.Equal(strings.Fields(string(uids)), []string{"0", "0", "4294967295"}) {
		return false
	}
	overflow, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	return err == nil && strings.TrimSpace(string(overflow)) == strconv.Itoa(owner)
}

// hasPrivateGroup reports whether a file's group is its user's own, as many systems
// create for each user. With their umask that group may write.
func hasPrivateGroup(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	u, err := user.LookupId(strconv.Itoa(int(st.Uid)))
	if err != nil || u.Gid != strconv.Itoa(int(st.Gid)) {
		return false
	}
	g, err := user.LookupGroupId(u.Gid)
	return err == nil && g.Name == u.Username && u.Uid != "0"
}

// CheckSecret refuses a file that users other than its owner may read. A missing file is
// fs.ErrNotExist.
func CheckSecret(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("check secret: %w", err)
	}
	if open := info.Mode().Perm() & othersAccess; open != 0 && (open&^0o070 != 0 || !hasPrivateGroup(info)) {
		return hints.Add(fmt.Errorf("other users may read %s (mode %04o)", path, info.Mode().Perm()),
			fmt.Sprintf("chmod 600 %s, and replace the secret if one of them may have read it", shellQuote(path)))
	}
	return nil
}

// CheckProgram says why path cannot be run, or which users besides root and uid could put
// another program there.
func CheckProgram(path string, uid int) []error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []error{hints.Add(fmt.Errorf("%s does not exist", path), "install it, or configure another program")}
	case err != nil:
		return []error{fmt.Errorf("check program: %w", err)}
	case !info.Mode().IsRegular():
		return []error{hints.Add(fmt.Errorf("%s is not a program", path), "configure another program")}
	case info.Mode().Perm()&0o111 == 0:
		return []error{hints.Add(fmt.Errorf("%s is not executable", path), "chmod +x "+shellQuote(path))}
	}
	return CheckPath(path, uid)
}
