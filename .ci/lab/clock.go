package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A time namespace shifts only the clocks that count from the start of the machine, and a preloaded library does not reach
// a Go program, which asks the kernel itself. So the program under a clock that jumps is built with another time.Now, which
// adds the seconds in the file that LAB_CLOCK names. Its timers, as those of a machine whose clock jumps, stay as they are;
// the times of files are not shifted.
const labClock = `package time

import "syscall"

func labShift() (seconds int64) {
	name, ok := syscall.Getenv("LAB_CLOCK")
	if !ok {
		return 0
	}
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	var b [32]byte
	n, _ := syscall.Read(fd, b[:])
	syscall.Close(fd)
	sign := int64(1)
	for _, c := range b[:max(n, 0)] {
		switch {
		case c == '-':
			sign = -1
		case c >= '0' && c <= '9':
			seconds = seconds*10 + int64(c-'0')
		}
	}
	return sign * seconds
}
`

// buildShifted builds the program with a clock that the lab moves.
func (l *lab) buildShifted(program string) error {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	src := filepath.Join(strings.TrimSpace(string(root)), "src/time")
	b, err := os.ReadFile(filepath.Join(src, "time.go"))
	if err != nil {
		return err
	}
	head := "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	shifted := strings.Replace(string(b), head, head+"\tsec += labShift()\n", 1)
	if shifted == string(b) {
		return fmt.Errorf("%s has another time.Now than the lab knows", src)
	}
	dir := filepath.Join(l.folder, "clock")
	p := place{}
	if err := p.write(filepath.Join(dir, "time.go"), shifted, 0o644); err != nil {
		return err
	}
	if err := p.write(filepath.Join(dir, "lab.go"), labClock, 0o644); err != nil {
		return err
	}
	overlay := text(object{"Replace": object{
		filepath.Join(src, "time.go"): filepath.Join(dir, "time.go"),
		filepath.Join(src, "lab.go"):  filepath.Join(dir, "lab.go"),
	}})
	if err := p.write(filepath.Join(dir, "overlay.json"), overlay, 0o644); err != nil {
		return err
	}
	return build("-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "./cmd/permesso")
}

func build(args ...string) error {
	if out, err := exec.Command("go", append([]string{"build"}, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// shift moves the clock of the daemon, the hooks and the approver.
func (w *setting) shift(by time.Duration) error {
	return w.write(filepath.Join(w.dir, "clock"), fmt.Sprint(int64(by/time.Second)), 0o644)
}
